"""The worker: the same answers as in this process, and what hangs or dies costs one program, told as what it was."""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import kvconform
import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.apart.wire import as_exception, differs, overwrite, packed, told, unpacked
from kvconform.harness.apart.worker import FromPickle, FromTarget, Isolated, Recipe, Worker
from kvconform.harness.conformance import Guarding, conform
from kvconform.harness.errors import AdapterError, Died, KvconformError, MemoryLimit, TimeLimit, Unsupported
from kvconform.harness.implementation import Implementation
from kvconform.harness.judging import PATIENCE, PROFILES, Profile
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Program
from kvconform.harness.results import Case, exit_code, tally
from kvconform.harness.runner import Divergence, error_text
from kvconform.harness.scope import Scope
from kvconform.harness.target import Resolved
from kvconform.harness.trial import Subject, Trial, Verdict, attempt

ENGINES = '''
import ctypes, os, signal, subprocess, sys, threading, time
import torch
from kvconform.harness.errors import AdapterError, Unsupported
from kvconform.harness.implementation import Implementation

SIZE, STATES = 11, 97
TABLE = torch.linspace(-7, 9, STATES * SIZE, dtype=torch.float64).sin().reshape(STATES, SIZE) * 5


def after(state, token):
    return (state * 31 + token + 1) % STATES


class Plain:
    name = "table"
    vocab_size = SIZE

    def __init__(self, dtype=torch.float32):
        self.table = TABLE.to(dtype)

    def logits(self, tokens):
        rows = []
        for row in tokens.tolist():
            state, states = 0, []
            for token in row:
                states.append(state := after(state, token))
            rows.append(self.table[states])
        return torch.stack(rows)

    def to(self, dtype):
        return Plain(dtype)


class Engine(Implementation):
    """A right one: the cache is a number a row."""

    name = "engine"
    vocab_size = SIZE
    max_length = 64
    landmarks = (4, 9)

    def __init__(self, nth=3):
        self.table = TABLE.float()
        self.nth = nth
        self.begun = 0

    def new_cache(self, rows=1):
        self.begun += 1
        if self.begun % self.nth == 0:
            self.misbehave()
        return [[0] * rows, 0]

    def misbehave(self):
        pass

    def append(self, cache, tokens, lengths=None):
        rows = tokens.tolist()
        if not rows[0] or cache[1] + len(rows[0]) > 64 or any(token >= SIZE for row in rows for token in row):
            raise ValueError("that cannot be taken")
        given = []
        for place, row in enumerate(rows):
            states = []
            for token in row:
                cache[0][place] = after(cache[0][place], token)
                states.append(cache[0][place])
            given.append(self.table[states])
        cache[1] += len(rows[0])
        return torch.stack(given)

    def fork(self, cache):
        return [list(cache[0]), cache[1]]

    def length(self, cache):
        return cache[1]


class Spins(Engine):
    def misbehave(self):
        while True:
            pass


class Sleeps(Engine):
    def misbehave(self):
        time.sleep(600)


class StuckInC(Engine):
    """In C, and without letting go of the interpreter."""

    def misbehave(self):
        ctypes.PyDLL(None).sleep(600)


class Exits(Engine):
    def misbehave(self):
        print("the last words")
        os._exit(3)


class CallsExit(Engine):
    def misbehave(self):
        sys.exit("nothing left to do")


class Killed(Engine):
    def misbehave(self):
        os.kill(os.getpid(), signal.SIGKILL)


class FailsAndDies(Killed):
    """Wrong on so many programs, dead from then on, in every life."""

    def __init__(self, diary, programs):
        super().__init__(nth=1)
        self.diary, self.programs = diary, programs

    def misbehave(self):
        with open(self.diary, "a+") as diary:
            diary.write("x")
            if diary.tell() > self.programs:
                super().misbehave()

    def append(self, cache, tokens, lengths=None):
        return super().append(cache, tokens, lengths) + 1


class Crashes(Engine):
    def misbehave(self):
        ctypes.string_at(0)


class FloodsAndExits(Engine):
    def misbehave(self):
        for line in range(20000):
            print("a line of complaints, number", line, file=sys.stderr)
        os._exit(9)


class FloodsForEver(Engine):
    def misbehave(self):
        while True:
            print("drip", file=sys.stderr)


class Deaf(Engine):
    """Neither SIGTERM nor SIGINT ends it."""

    def misbehave(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        ctypes.PyDLL(None).sleep(600)


class Aliases(Engine):
    def append(self, cache, tokens, lengths=None):
        logits = super().append(cache, tokens, lengths)
        if not hasattr(self, "buffer"):
            self.buffer = torch.zeros(64 * SIZE * 4)
        return self.buffer[: logits.numel()].copy_(logits.flatten()).view(logits.shape)


class Mutates(Engine):
    def append(self, cache, tokens, lengths=None):
        logits = super().append(cache, tokens, lengths)
        tokens[:, -1] = 0 if tokens[0, -1] else 1
        return logits


class Raises(Engine):
    def length(self, cache):
        class EngineError(ValueError): pass
        kinds = [ValueError("no\\nbacktrace"), EngineError("own"), KeyError("gone"), TypeError("other"), Unsupported("cannot")]
        raise [*kinds, AdapterError("glue")][cache[1]]


class Wrong(Engine):
    def append(self, cache, tokens, lengths=None):
        return super().append(cache, tokens, lengths), cache


class Floorless(Engine):
    capabilities = frozenset({"crop"})

    def crop(self, cache, length):
        pass

    def crop_floor(self, lengths):
        return 1 // 0


class CannotBeBuilt(Engine):
    def __init__(self):
        raise OSError("no such weights")


class DiesWhenBuilt(Engine):
    def __init__(self):
        os._exit(7)


class Lambda(Engine):
    def __init__(self):
        super().__init__()
        self.hook = lambda: None


class Naps(Engine):
    def nap(self, seconds):
        time.sleep(seconds)


class Spawner:
    """An adapter to an engine that is a program of its own."""

    def spawn(self):
        self.engine = subprocess.Popen(["sleep", "600"])
        return self.engine.pid


class Surroundings:
    def tell(self):
        return os.environ["KVCONFORM_TRIED"], os.getcwd(), torch.get_num_threads()


class Nobody:
    """Not an implementation at all: what a sweep may ask of a worker."""

    def double(self, number):
        return {"twice": 2 * number}
'''

ONE = Program.parse("append a 5 9 3; append a 7; append a 1 2")
BUILT_IN = "builtin:gpt/concat"


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A user's module, which a worker imports as this process does."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "kvconform_engines.py").write_text(ENGINES)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("kvconform_engines")
    sys.path.remove(str(folder))


@pytest.fixture
def started() -> Iterator[Callable[..., Worker]]:
    """Starts workers that are ended with the test."""
    all_of_them: list[Worker] = []

    def start(recipe: Callable[[], Any], limit: float | None = 20.0) -> Worker:
        all_of_them.append(Worker(recipe, limit))
        return all_of_them[-1]

    yield start
    for worker in all_of_them:
        worker.close()


def pid_of(worker: Worker) -> int:
    (child,) = worker._children
    return child.pid


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def ends_soon(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


def judged(engines: ModuleType, kind: str, limit: float = 1.0, pattern: str = "", examples: int = 6) -> list[Case]:
    clauses = [clause for clause in registry.clauses() if clause.id.startswith(pattern)]
    engine = getattr(engines, kind)()
    guarding = Guarding(limit, FromPickle.of(engine))
    profile = Profile("test", examples=examples)
    return list(conform("py:engine", Resolved(engine, engines.Plain()), clauses, profile, guarding=guarding))


# --- the same answers ---


def test_it_says_of_itself_what_the_implementation_says(started: Callable[..., Worker]) -> None:
    own, other = registry.resolve(BUILT_IN).implementation, Isolated(started(FromTarget(BUILT_IN)))
    public = [name for name in dir(Implementation) if not name.startswith("_")]
    said = [name for name in public if not inspect.isfunction(getattr(Implementation, name)) and name != "refusals"]
    assert {"vocab_size", "max_length", "landmarks", "capabilities", "dtype", "device", "ragged"} <= set(said)
    for name in said:
        assert getattr(other, name) == getattr(own, name), name
    for name in public:
        if inspect.isfunction(getattr(Implementation, name)):
            assert name in vars(Isolated), f"{name} of the contract is not passed on to the worker"


@pytest.mark.parametrize("target", [BUILT_IN, "builtin:llama/concat"])
def test_logits_are_the_same_bits(started: Callable[..., Worker], target: str) -> None:
    own, other = registry.resolve(target).implementation, Isolated(started(FromTarget(target)))
    tokens = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    caches = own.new_cache(2), other.new_cache(2)
    for part in (tokens[:, :5], tokens[:, 5:6], tokens[:, 6:]):
        assert other.append(caches[1], part.clone()).equal(own.append(caches[0], part.clone()))
    assert other.length(caches[1]) == own.length(caches[0])


def test_every_operation_reaches_the_worker(started: Callable[..., Worker]) -> None:
    resolved = registry.resolve(BUILT_IN)
    worker = started(FromTarget(BUILT_IN))
    subject = Subject(Isolated(worker), Oracle(resolved.reference, torch.float32), worker)
    text = "append a 1 2 3 | 4 5 6; fork a b; crop a 0; append a 9 | 8 8; reset b; append b 7; join a b; select a 1 2; "
    trial = attempt(logits_match, Program.parse(text + "restore a; append a 3 | 4; drop a; append a 3"), subject)
    assert (trial.verdict, trial.detail) == (Verdict.PASSED, "")


def same(case: Case) -> tuple[object, ...]:
    return (case.clause, case.dtype, case.verdict, case.reason, case.programs, case.positions, case.largest, case.findings)


@pytest.mark.parametrize("fault", ["concat", "output_aliased", "inputs_mutated", "cache_ignored", "wrong_dtype", "raises"])
def test_a_clause_has_the_power_that_it_has_in_this_process(fault: str) -> None:
    """The caller's tokens, logits that are written again, and work that is counted are all in another process."""
    target = f"builtin:gpt/{fault}"
    resolved, profile = registry.resolve(target), Profile("test", examples=3)
    asked = ["decode.incremental", "decode.reuses_work", "lifecycle.no_aliasing", "lifecycle.inputs_untouched"]
    clauses = [clause for clause in registry.clauses() if clause.id in asked]
    apart = conform(target, resolved, clauses, profile, ["float32"], guarding=Guarding(20, FromTarget(target)))
    here = [same(case) for case in conform(target, resolved, clauses, profile, ["float32"])]
    assert [same(case) for case in apart] == here
    assert any(case[2] is Verdict.FAILED for case in here) is (fault != "concat")


def test_two_precisions_are_two_processes(started: Callable[..., Worker]) -> None:
    single = Isolated(started(FromTarget(BUILT_IN)))
    double = single.to(torch.float64)
    try:
        assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
        assert pid_of(single.worker) != pid_of(double.worker)
        assert double.append(double.new_cache(), torch.tensor([[1, 2]])).dtype == torch.float64
    finally:
        double.close()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([[1.5, float("nan")], [-0.0, float("inf")]], dtype=torch.bfloat16),
        torch.arange(12, dtype=torch.float64).reshape(3, 4).t(),
        torch.zeros(0, 3, 5),
        torch.tensor(4.0, requires_grad=True),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]).conj(),
    ],
    ids=["nan", "transposed", "empty", "scalar", "bool", "conjugated"],
)
def test_tensors_keep_their_bits(tensor: torch.Tensor) -> None:
    raw = packed(tensor)
    assert not differs(tensor, raw)
    back = unpacked(raw)
    assert (back.shape, back.dtype) == (tensor.shape, tensor.dtype)
    assert torch.equal(torch.nan_to_num(back), torch.nan_to_num(tensor))


def test_a_changed_tensor_differs_in_content_or_shape() -> None:
    tensor = torch.zeros(2, 2)
    raw = packed(tensor)
    for other in (torch.tensor([[0.0, 0], [0, -0.0]]), torch.zeros(4), torch.zeros(0)):
        assert differs(other, raw)
        held = other.clone()
        overwrite(held, raw)
        assert not differs(held, raw)


# --- errors ---


def test_errors_keep_name_text_and_whether_they_refuse(engines: ModuleType, started: Callable[..., Worker]) -> None:
    own = engines.Raises(nth=99)
    other = Isolated(started(FromPickle.of(own)))
    for length in range(6):
        caches = own.new_cache(), other.new_cache()
        if length:
            own.append(caches[0], torch.ones(1, length, dtype=torch.int64))
            other.append(caches[1], torch.ones(1, length, dtype=torch.int64))
        here, there = raised_by(own.length, caches[0]), raised_by(other.length, caches[1])
        assert error_text(there) == error_text(here)
        assert isinstance(there, other.refusals) is isinstance(here, own.refusals)
        for kind in (Unsupported, AdapterError):
            assert isinstance(there, kind) is isinstance(here, kind)


def raised_by(call: Callable[..., object], *given: object) -> Exception:
    try:
        call(*given)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_what_an_adapter_lost_in_the_worker_stays_lost() -> None:
    for error in (TimeLimit("slow"), Died("gone")):
        assert type(as_exception(told(error))) is type(error)


def test_an_answer_of_another_type_is_told_by_its_name(engines: ModuleType, started: Callable[..., Worker]) -> None:
    worker = started(partial(engines.Wrong, 99))
    trial = attempt(logits_match, ONE, Subject(Isolated(worker), Oracle(engines.Plain(), torch.float32), worker))
    told = "append gave a tuple of 2 where logits are due: return the logits alone, the rest stays in the cache"
    assert (trial.divergence, trial.detail) == (Divergence.SHAPE, told)


# --- what hangs or dies ---

HANGS = r"^(given up after \d+ programs: )?no answer within the time limit of 1 s"
MISBEHAVING = {
    "Spins": rf"{HANGS} in misbehave \(kvconform_engines\.py:\d+\)$",
    "Sleeps": rf"{HANGS} in misbehave \(kvconform_engines\.py:\d+\)$",
    "StuckInC": rf"{HANGS} in misbehave \(kvconform_engines\.py:\d+\)$",
    # Where it is seen when its time is over is the flood, or the call that it came in.
    "FloodsForEver": rf"{HANGS} in (misbehave|new_cache).*; the end of its output: .*drip \| drip",
    "Exits": r"^its process ended with exit code 3 in new_cache; the end of its output: the last words$",
    "CallsExit": r"^its process ended with exit code 1 in new_cache; the end of its output: nothing left to do$",
    "Killed": r"^its process was killed by SIGKILL \(for want of memory\?\) in new_cache$",
    "Crashes": r"^its process was killed by SIGSEGV in .*\(kvconform_engines\.py:\d+\)$",
    "FloodsAndExits": r"^its process ended with exit code 9 in new_cache; .*number 19998 \| a line .* 19999$",
}


@pytest.mark.parametrize("kind", MISBEHAVING)
def test_a_program_that_is_lost_is_errored_and_the_run_goes_on(engines: ModuleType, kind: str) -> None:
    # What ends by itself has all the time that it needs on a busy machine, a flood on standard error most of all.
    limit = 1.0 if MISBEHAVING[kind].startswith(HANGS) else 60.0
    cases = [case for pattern in ("decode.incremental", "reference.") for case in judged(engines, kind, limit, pattern)]
    errored, *others = cases
    assert errored.verdict is Verdict.ERRORED
    lost, told = errored.reason.split(": ", 1)
    assert lost == f"{errored.programs - errored.conclusive} of {errored.programs} programs"
    assert re.search(MISBEHAVING[kind], told), told
    assert "\n" not in errored.reason
    assert 0 < errored.conclusive < errored.programs
    assert {case.verdict for case in others} <= {Verdict.PASSED, Verdict.UNSUPPORTED}
    assert sum(tally(cases).values()) == len(cases)
    assert exit_code(cases) == 2


def test_a_whole_run_is_complete_though_every_third_program_dies(engines: ModuleType) -> None:
    cases = judged(engines, "Killed", limit=20)
    assert [case.clause for case in cases] == [clause.id for clause in registry.clauses()]
    assert not [case for case in cases if case.verdict is Verdict.FAILED]
    errored = [case for case in cases if case.verdict is Verdict.ERRORED]
    assert all("SIGKILL" in case.reason for case in errored)
    assert sum(0 < case.conclusive < case.programs for case in errored) >= 8


def test_a_death_costs_its_program_only(engines: ModuleType, started: Callable[..., Worker]) -> None:
    worker = started(partial(engines.Killed, 3))
    subject = Subject(Isolated(worker), Oracle(engines.Plain(), torch.float32), worker)
    trials: list[Trial] = [attempt(logits_match, ONE, subject) for _ in range(9)]
    assert [trial.verdict for trial in trials] == [Verdict.PASSED, Verdict.PASSED, Verdict.ERRORED] * 3
    assert worker.streak == 1


@pytest.mark.parametrize(("kind", "programs"), [("Killed", PATIENCE), ("Sleeps", PATIENCE)])
def test_a_clause_that_only_loses_programs_is_given_up(engines: ModuleType, kind: str, programs: int) -> None:
    engine = getattr(engines, kind)(nth=1)
    clauses = [clause for clause in registry.clauses() if clause.id in ("decode.incremental", "prefill.chunked")]
    guarding = Guarding(0.2, FromPickle.of(engine))
    found = conform("x", Resolved(engine, engines.Plain()), clauses, PROFILES["default"], guarding=guarding)
    first, second = found
    assert first.reason.startswith(f"given up after {programs} programs: ")
    assert (first.programs, second.programs, second.verdict) == (programs, 1, Verdict.ERRORED)


def test_an_occasional_hang_is_waited_for_a_few_times(engines: ModuleType) -> None:
    engine = engines.Sleeps(nth=2)
    clauses = [clause for clause in registry.clauses() if clause.id == "any.program"]
    guarding = Guarding(0.2, FromPickle.of(engine))
    (case,) = conform("x", Resolved(engine, engines.Plain()), clauses, PROFILES["default"], guarding=guarding)
    assert case.reason.startswith("given up after")
    assert case.programs - case.conclusive == PATIENCE


def test_only_time_in_the_worker_is_counted(engines: ModuleType, started: Callable[..., Worker]) -> None:
    worker = started(partial(engines.Engine, 99), 0.5)
    engine = Isolated(worker)

    def slow_reference() -> int:
        cache = engine.new_cache()
        time.sleep(0.7)
        return engine.length(cache)  # type: ignore[return-value]

    assert worker.run(slow_reference, engine) == 0


def test_calls_of_one_program_share_its_time(engines: ModuleType, started: Callable[..., Worker]) -> None:
    worker = started(engines.Naps, 1.0)
    for _ in range(2):
        worker.ask("nap", 0.6)
    with pytest.raises(TimeLimit):
        worker.run(lambda: [worker.ask("nap", 0.6) for _ in range(2)], worker)
    assert (worker.hangs, worker.streak) == (1, 1)


def test_a_cache_that_died_with_its_process_is_told_so(engines: ModuleType, started: Callable[..., Worker]) -> None:
    engine = Isolated(started(partial(engines.Killed, 2)))
    cache = engine.new_cache()
    with pytest.raises(Died, match="SIGKILL"):
        engine.new_cache()
    engine.drop(cache)
    with pytest.raises(Died, match="the cache was lost with the process that held it"):
        engine.length(cache)


def test_what_cannot_be_asked_for_programs_is_errored(engines: ModuleType) -> None:
    (case,) = judged(engines, "Floorless", pattern="branch.crop")
    assert case.verdict is Verdict.ERRORED
    raised = (
        r"crop_floor raised ZeroDivisionError: integer division or modulo by zero in crop_floor \(kvconform_engines\.py:\d+\)"
    )
    assert re.fullmatch(f"the harness or the adapter: AdapterError: {raised}", case.reason)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("CannotBeBuilt", "OSError: no such weights"), ("DiesWhenBuilt", "its process ended with exit code 7 while it was built")],
)
def test_what_cannot_be_built_is_errored_throughout(engines: ModuleType, kind: str, reason: str) -> None:
    engine, clauses = engines.Engine(), registry.clauses()
    guarding = Guarding(20, getattr(engines, kind))
    cases = list(conform("x", Resolved(engine, engines.Plain()), clauses, PROFILES["quick"], guarding=guarding))
    assert len(cases) == len(clauses)
    expected = f"it cannot be put in float32: Died: it cannot be built in a worker process: {reason}"
    assert {(case.verdict, case.reason) for case in cases} == {(Verdict.ERRORED, expected)}


# --- no process is left ---


def test_closing_ends_the_process_and_those_it_started(engines: ModuleType, started: Callable[..., Worker]) -> None:
    worker = started(engines.Spawner)
    grandchild = worker.ask("spawn")
    pids = [pid_of(worker), grandchild]
    assert all(map(is_running, pids))
    worker.close()
    assert all(map(ends_soon, pids))


def test_a_forgotten_worker_is_ended(engines: ModuleType) -> None:
    worker = Worker(engines.Engine)
    pid = pid_of(worker)
    del worker
    gc.collect()
    assert ends_soon(pid)


SCRIPT = """
import os, signal, sys, threading
import torch
from kvconform.harness.apart.worker import Worker
from kvconform_engines import Deaf, Engine
idle, deaf = Worker(Engine, None), Worker(Deaf, None)
print(idle._children[0].pid, deaf._children[0].pid, flush=True)
threading.Thread(target=lambda: deaf.ask("misbehave"), daemon=True).start()
threading.Event().wait(0.5)
{end}
"""


@pytest.mark.parametrize("end", ["1 / 0", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_at_the_end_of_the_run_no_worker_is_left(engines: ModuleType, end: str) -> None:
    killed = "SIGKILL" in end
    script = SCRIPT.format(end=end)
    if killed:  # one that is deaf and stuck in C ends itself, a minute after its time
        script = script.replace("Worker(Deaf, None)", "Worker(Engine, None)").replace('"misbehave"', '"length", 0')
    folder = Path(str(engines.__file__)).parent
    before = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if killed else 1)
    assert time.monotonic() - before < 60
    assert all(map(ends_soon, map(int, done.stdout.split())))


# --- objects, targets, and the interface ---


def test_an_object_is_sent_as_a_copy(engines: ModuleType, started: Callable[..., Worker]) -> None:
    engine = engines.Engine(nth=7)
    worker = started(FromPickle.of(engine))
    assert worker.ask("__getattribute__", "nth") == 7
    Isolated(worker).new_cache()
    assert engine.begun == 0


def test_what_cannot_be_sent_is_told_in_a_line(engines: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KvconformError, match=r"^Lambda cannot be sent to a worker \(.*lambda.*leave isolation out"):
        FromPickle.of(engines.Lambda())
    monkeypatch.setattr(engines.Engine, "__module__", "__main__")
    with pytest.raises(KvconformError, match=r"^Engine is defined in the script that runs"):
        kvconform.check(engines.Engine(), engines.Plain(), isolate=True)


def test_what_a_worker_prints_stays_out_of_ours(engines: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    judged(engines, "Exits", pattern="decode.incremental")
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_worker_holds_anything(engines: ModuleType, started: Callable[..., Worker]) -> None:
    assert started(engines.Nobody).ask("double", 21) == {"twice": 42}


def test_a_worker_has_our_folder_environment_and_threads(
    engines: ModuleType, started: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KVCONFORM_TRIED", "yes")
    monkeypatch.chdir(tmp_path)
    worker = started(engines.Surroundings)
    assert worker.ask("tell") == ("yes", str(tmp_path), torch.get_num_threads())


def test_a_restart_takes_no_import(engines: ModuleType, started: Callable[..., Worker]) -> None:
    worker = started(engines.Engine)
    worker.end()
    before = time.monotonic()
    Isolated(worker).new_cache()
    assert time.monotonic() - before < 1.5


def test_check_takes_isolation_and_a_time_limit(engines: ModuleType) -> None:
    run = kvconform.check(
        engines.Sleeps(),
        engines.Plain(),
        clause="decode.incremental",
        profile="quick",
        quiet=True,
        time_limit=0.3,
        isolate=True,
    )
    assert run.counts["errored"] == 1
    assert "within the time limit of 0.3 s" in run.cases[0].reason


def test_the_command_line_isolates(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from kvconform.interface import cli

    asked = ["check", BUILT_IN, "--clause", "prefill.*", "--dtype", "float32", "--max-examples", "2", "--json"]
    monkeypatch.setattr(sys, "argv", ["kvconform", *asked, "--isolate", "--time-limit", "20"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ended.value.code == 0
    assert [line["verdict"] for line in lines if "verdict" in line] == ["passed"] * 2


def test_a_recipe_names_its_precision() -> None:
    built = Recipe(FromTarget(BUILT_IN), "float64")()
    assert built.dtype == torch.float64


def test_a_failure_that_is_lost_when_repeated_stays_a_failure(engines: ModuleType, tmp_path: Path) -> None:
    (clause,) = (clause for clause in registry.clauses() if clause.id == "decode.incremental")
    fixed = len(list(clause.fixed(Scope.of(engines.Engine()))))
    engine = engines.FailsAndDies(str(tmp_path / "diary"), fixed)
    guarding = Guarding(20, FromPickle.of(engine))
    profile = Profile("test", examples=0)
    (case,) = conform("x", Resolved(engine, engines.Plain()), [clause], profile, guarding=guarding)
    assert (case.verdict, case.programs) == (Verdict.FAILED, fixed)
    told = "(not shrunk, for when repeated: its process was killed by SIGKILL"
    assert all(told in finding.detail and finding.divergence == "logits" for finding in case.findings)


def test_a_process_that_holds_too_much_is_ended() -> None:
    worker = Worker(partial(bytearray, bytes(2**10)), 60.0, 2**30)
    with pytest.raises(MemoryLimit, match=r"^its process held \d\.\d GiB, above the limit of 1 GiB"):
        worker.ask("__mul__", 3 * 2**19)
    assert worker.ask("__len__") == 2**10
    worker.close()

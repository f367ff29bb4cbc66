"""Engines over the line protocol: what they are asked, each way to go wrong told as what it was, and what it costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import kvconform
import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.apart.remote import RemoteEngine
from kvconform.harness.apart.session import Command
from kvconform.harness.conformance import Guarding, conform, subject
from kvconform.harness.errors import Broken, Died, KvconformError, TargetError, TimeLimit, Unsupported
from kvconform.harness.judging import Profile
from kvconform.harness.match import logits_match
from kvconform.harness.program import Program
from kvconform.harness.results import Case, tally
from kvconform.harness.trial import Trial, Verdict, attempt
from syrupy.assertion import SnapshotAssertion

ENGINES = Path(__file__).parent / "engines"
PROGRAM = Program.parse("append a 5 9 3; fork a b; append b 7; append a 1; crop a 2; append a 4")
BRIEF = Profile("brief", examples=3, shrink=False)


def command(engine: str, switches: str = "") -> str:
    return f"{sys.executable} {ENGINES / engine} {switches}".strip()


@pytest.fixture
def started() -> Iterator[Callable[..., RemoteEngine]]:
    engines: list[RemoteEngine] = []

    def start(engine: str, switches: str = "", limit: float | None = 30.0) -> RemoteEngine:
        engines.append(RemoteEngine(Command.parse(command(engine, switches)), limit=limit))
        return engines[-1]

    yield start
    for engine in engines:
        engine.engine.end()


def judged(target: str, program: Program = PROGRAM, limit: float = 30.0, stall: float = 5.0) -> tuple[Trial, Trial]:
    """A program, and the same again."""
    asked = subject(registry.resolve(target), "float32", Guarding(limit, stall=stall))
    try:
        return attempt(logits_match, program, asked), attempt(logits_match, program, asked)
    finally:
        asked.guard.close()


def cases(target: str, pattern: str, dtypes: tuple[str, ...] = ("float32",)) -> dict[str, Case]:
    asked = [clause for clause in registry.clauses() if clause.id.startswith(pattern)]
    return {case.clause: case for case in conform(target, registry.resolve(target), asked, BRIEF, dtypes)}


def test_an_engine_is_an_implementation(started: Callable[..., RemoteEngine]) -> None:
    engine = started("tiny.py")
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    cache = engine.new_cache(2)
    given = engine.append(cache, tokens)
    assert given.shape == (2, 3, 12)
    assert given.equal(engine.full(tokens))
    copy = engine.load(engine.dump(cache))
    assert (cache.number, copy.number, engine.length(copy)) == (0, 1, 3)
    engine.select(copy, [1, 0, 1])
    engine.crop(copy, 2)
    engine.join(copy, other := engine.fork(copy))
    engine.drop(other)
    assert engine.append(copy, torch.tensor([[3], [3], [3], [3], [3], [3]])).shape == (6, 1, 12)
    engine.drop(cache)
    assert engine.new_cache().number == 0
    with pytest.raises(engine.refusals, match="tokens are 0 to 11"):
        engine.append(copy, torch.tensor([[99]] * 6))
    assert engine.to(torch.float64).full(tokens).dtype == torch.float64
    engine.close()
    assert engine.engine.lives is False


def test_what_an_engine_says_of_itself(started: Callable[..., RemoteEngine]) -> None:
    engine = started("tiny.py", "--max-rows 1 --max-caches 2 --max-append 1 --without fork --narrow")
    assert (engine.name, engine.vocab_size, engine.max_length, engine.landmarks) == ("tiny", 12, 24, (8,))
    assert (engine.max_rows, engine.max_caches, engine.max_append, engine.lossy) == (1, 2, 1, None)
    assert engine.capabilities == {"full", "crop", "reset", "reset_rows", "select", "join", "restore", "length"}


def test_how_far_a_rollback_may_go(started: Callable[..., RemoteEngine]) -> None:
    engine = started("tiny.py")
    assert engine.crop_floor([40]) == 0
    engine.engine.about["crop_floor"] = {"beyond": 16, "reach": 5}
    assert [engine.crop_floor(lengths) for lengths in ([], [16], [17], [20, 16])] == [0, 0, 12, 15]


WAYS = (
    "exits",
    "segfaults",
    "is_killed",
    "hangs",
    "closes",
    "is_no_json",
    "is_a_list",
    "is_no_text",
    "has_no_ok",
    "breaks_the_schema",
    "has_a_negative_shape",
    "has_another_id",
    "has_other_bytes",
    "is_too_large",
    "has_a_long_line",
    "half_a_line",
    "half_a_block",
    "stops_in_a_line",
    "stops_in_the_block",
    "writes_more",
    "floods_and_exits",
)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_go_wrong_costs_one_program_and_is_told(way: str, snapshot: SnapshotAssertion) -> None:
    stops = way.startswith("stops")
    target = f"cmd:{command('broken.py', way)}"
    first, second = judged(target, limit=1.0 if way == "hangs" else 30.0, stall=0.5 if stops else 5.0)
    assert first.verdict is Verdict.ERRORED
    assert first.detail == snapshot
    assert second.verdict is Verdict.ERRORED, "the engine is started anew, and goes wrong at its third append again"


def test_a_flood_on_standard_error_stops_nothing() -> None:
    first, second = judged(f"cmd:{command('broken.py', 'floods')}")
    assert (first.verdict, second.verdict) == (Verdict.PASSED, Verdict.PASSED)


def test_an_engine_that_is_killed_from_outside_costs_one_program() -> None:
    target = f"cmd:{command('tiny.py', '--narrow')}"
    resolved = registry.resolve(target)
    engine = resolved.implementation
    assert isinstance(engine, RemoteEngine)
    killed = threading.Event()

    def kill(name: str) -> None:
        if not killed.is_set():
            killed.set()
            threading.Timer(0.1, lambda: os.kill(engine.engine.living().process.process.pid, signal.SIGKILL)).start()

    unclear = ("lifecycle.replay", "branch.select")  # some of their programs ask what no engine of this kind can tell
    families = ("lifecycle", "branch", "batch")
    asked = [clause for clause in registry.clauses() if clause.family in families and clause.id not in unclear]
    found = list(conform(target, resolved, asked, BRIEF, ("float32",), kill))
    assert killed.is_set()
    errored = [case for case in found if case.verdict is Verdict.ERRORED]
    assert len(errored) == 1
    assert errored[0].reason.startswith(f"1 of {errored[0].programs} programs: its process was killed by SIGKILL")
    assert errored[0].conclusive == errored[0].programs - 1
    assert tally(found)[Verdict.FAILED] == 0
    assert tally(found)[Verdict.PASSED] > 5


def test_an_engine_that_gives_the_last_position_only() -> None:
    found = cases(f"cmd:{command('tiny.py', '--last --narrow')}", "")
    assert {case.verdict for case in found.values()} == {Verdict.PASSED, Verdict.UNSUPPORTED}
    assert found["branch.crop"].verdict is Verdict.PASSED


def test_an_engine_without_fork_or_crop() -> None:
    found = cases(f"cmd:{command('tiny.py', '--without fork crop')}", "branch")
    assert (found["branch.fork"].verdict, found["branch.fork"].reason) == (Verdict.UNSUPPORTED, "it has no fork")
    assert (found["branch.crop"].verdict, found["branch.crop"].reason) == (Verdict.UNSUPPORTED, "it has no crop")
    assert found["branch.select"].verdict is Verdict.PASSED


def test_an_engine_without_a_full_pass_is_judged_by_single_calls() -> None:
    """In another process, so that it works with one cache too."""
    target = f"cmd:{command('tiny.py', '--without full --max-caches 1 --narrow')}"
    run = kvconform.check(target, clause="lifecycle", profile="quick", quiet=True)
    assert {case.verdict for case in run.cases} == {Verdict.PASSED}
    assert run.header.reference.startswith("its own single call on a fresh cache, which is weaker")


def test_what_there_is_no_reference_for() -> None:
    with pytest.raises(KvconformError, match="takes one token at a time and has no full: give a reference, or define full"):
        kvconform.check(f"cmd:{command('tiny.py', '--without full --max-append 1')}", quiet=True)
    with pytest.raises(KvconformError, match=r"tiny has a vocabulary of 12 tokens, the reference .* one of 1200"):
        kvconform.check(f"cmd:{command('tiny.py')}", "builtin:gpt/concat", quiet=True)


def test_an_engine_that_takes_one_token_at_a_time() -> None:
    found = cases(f"cmd:{command('tiny.py', '--max-append 1 --max-caches 1')}", "")
    assert {case.verdict for case in found.values()} == {Verdict.PASSED, Verdict.UNSUPPORTED}
    assert found["prefill.chunked"].reason == "it takes one token at a time"
    assert found["decode.incremental"].verdict is Verdict.PASSED


def test_an_engine_that_dies_on_every_third_program() -> None:
    found = cases(f"cmd:{command('tiny.py', '--die-every 3')}", "decode.incremental")["decode.incremental"]
    assert found.verdict is Verdict.ERRORED
    assert found.programs > 5
    assert found.programs * 0.5 < found.conclusive < found.programs
    lost = found.programs - found.conclusive
    assert (
        found.reason == f"{lost} of {found.programs} programs: its process was killed by SIGKILL (for want of memory?) in new"
    )


@pytest.mark.parametrize(
    ("fault", "clause"),
    [("crop_one_more", "branch.crop"), ("fork_shares", "branch.fork"), ("reset_nothing", "lifecycle.reset")],
)
def test_a_fault_in_an_engine_is_found(fault: str, clause: str) -> None:
    target = f"cmd:{command('tiny.py', f'--fault {fault}')}"
    assert cases(target, clause, ("float64",))[clause].verdict is Verdict.FAILED
    assert cases(f"cmd:{command('tiny.py')}", clause, ("float64",))[clause].verdict is Verdict.PASSED


def test_the_command_line() -> None:
    """In the shape that the README shows, with a path relative to the current folder."""
    asked = ["--profile", "quick", "--clause", "branch.crop", "--max-examples", "5", "--dtype", "float64"]

    def run(switches: str) -> subprocess.CompletedProcess[str]:
        target = f"cmd:{sys.executable} ./tiny.py {switches}"
        kvconform = Path(sys.executable).with_name("kvconform")
        return subprocess.run([kvconform, "check", target, *asked], cwd=ENGINES, capture_output=True, text=True, check=False)

    wrong, none = run("--fault crop_one_more"), run("--no-such-switch")
    assert (wrong.returncode, wrong.stderr) == (1, "")
    assert "judged by its own full pass" in wrong.stdout
    assert "kvconform replay 'cmd:" in wrong.stdout
    assert none.returncode == 2
    assert none.stderr.startswith("kvconform: cmd:")
    assert "does not start: its process ended with exit code 2 in hello; the end of its output: " in none.stderr
    assert len(none.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("cmd:", "cmd: needs the engine's command line behind it: cmd:./engine --flag"),
        ("cmd:./engine 'open", "cmd:./engine 'open cannot be split into words: No closing quotation"),
        ("cmd:./no-such-engine --flag", "cmd:./no-such-engine --flag does not start: there is no program ./no-such-engine"),
        (f"cmd:{ENGINES}", f"cmd:{ENGINES} does not start: {ENGINES} cannot be run: Permission denied"),
        ("cmd:true", "cmd:true does not start: its process ended with exit code 0 in hello"),
        (
            "cmd:echo hi?x=1",
            "cmd:echo hi?x=1 does not start: its reply to hello is no JSON: 'hi?x=1' (standard output is for replies only)",
        ),
    ],
)
def test_what_a_user_can_get_wrong(target: str, message: str) -> None:
    with pytest.raises(TargetError) as raised:
        registry.resolve(target)
    assert str(raised.value) == message


def test_a_precision_that_the_engine_has_not() -> None:
    with pytest.raises(KvconformError, match="tiny computes in float32, float64: leave --dtype bfloat16 out"):
        list(conform("tiny", registry.resolve(f"cmd:{command('tiny.py')}"), [], BRIEF, ("bfloat16",)))


def test_an_engine_is_ended_with_all_that_it_started(started: Callable[..., RemoteEngine], tmp_path: Path) -> None:
    engine = started("tiny.py")
    pid = engine.engine.living().process.process.pid
    engine.engine.end()
    with pytest.raises(ProcessLookupError):
        os.killpg(pid, 0)


def test_an_engine_that_changes_its_mind_is_told(started: Callable[..., RemoteEngine]) -> None:
    engine = started("tiny.py")
    engine.engine.end()
    engine.engine.about["max_length"] = 25
    with pytest.raises(Broken, match="started again it says another max_length than before"):
        engine.new_cache()


def test_caches_of_a_process_that_is_gone_are_gone(started: Callable[..., RemoteEngine]) -> None:
    engine = started("tiny.py")
    cache = engine.new_cache()
    engine.engine.end()
    engine.drop(cache)
    with pytest.raises(Died, match="the cache was lost with the process that held it"):
        engine.length(cache)


def test_what_the_protocol_cannot_carry(started: Callable[..., RemoteEngine]) -> None:
    engine = started("tiny.py")
    cache = engine.new_cache()
    with pytest.raises(Unsupported, match="the line protocol cannot carry this append"):
        engine.append(cache, torch.tensor([[2**60]]))


def test_the_limit_is_one_for_a_whole_program(started: Callable[..., RemoteEngine]) -> None:
    engine = started("broken.py", "hangs", limit=1.0)
    cache, tokens = engine.new_cache(), torch.tensor([[1]])
    began = time.monotonic()

    def program() -> None:
        for _ in range(3):
            engine.append(cache, tokens)

    with pytest.raises(TimeLimit, match=r"no answer to append within the time limit of 1 s; the end of its output: layer 0 ok"):
        engine.engine.run(program, engine)
    assert time.monotonic() - began < 5
    assert engine.engine.hangs == 1


def test_the_public_call() -> None:
    run = kvconform.check(f"cmd:{command('tiny.py')}", clause="branch.fork", profile="quick", quiet=True)
    assert {case.verdict for case in run.cases} == {Verdict.PASSED}

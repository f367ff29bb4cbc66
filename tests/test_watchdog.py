"""The watchdog: a program that hangs in this process costs its time limit, and the run goes on without it."""

from __future__ import annotations

import contextvars
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import accumulate

import kvconform
import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.conformance import Guarding, conform, subject
from kvconform.harness.errors import AdapterError, Died, TimeLimit, Unsupported
from kvconform.harness.implementation import Implementation
from kvconform.harness.judging import PATIENCE, Profile
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle
from kvconform.harness.precision import lifted
from kvconform.harness.program import Program
from kvconform.harness.results import exit_code, tally
from kvconform.harness.target import Resolved
from kvconform.harness.trial import Subject, Verdict, attempt
from kvconform.harness.watchdog import Guard, Watchdog, culprit
from torch import Tensor

VOCAB, STATES = 11, 97
TABLE = torch.linspace(-7, 9, STATES * VOCAB, dtype=torch.float64).sin().reshape(STATES, VOCAB) * 5
PROGRAM = Program.parse("append a 5 9 3; append a 7")


class Plain:
    """A reference whose state is one number."""

    name = "table"
    vocab_size = VOCAB

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.table = TABLE.to(dtype)

    def logits(self, tokens: Tensor) -> Tensor:
        return torch.stack([self.table[walk(0, row)] for row in tokens.tolist()])

    def to(self, dtype: torch.dtype) -> Plain:
        return Plain(dtype)


def walk(state: int, tokens: Sequence[int]) -> list[int]:
    states = accumulate(tokens, lambda before, token: (before * 31 + token + 1) % STATES, initial=state)
    return list(states)[1:]


class Engine(Implementation):
    """A right implementation that does something else on every nth program."""

    vocab_size = VOCAB
    max_rows = 1

    def __init__(self, trouble: Callable[[], object] = lambda: None, nth: int = 3) -> None:
        self.trouble, self.nth, self.begun = trouble, nth, 0
        self.lock = threading.Lock()  # no process can have it

    def new_cache(self, rows: int = 1) -> list[int]:
        self.begun += 1
        if self.begun % self.nth == 0:
            self.trouble()
        return [0]

    def append(self, cache: list[int], tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        (row,) = tokens.tolist()
        if not row or max(row) >= VOCAB:
            raise ValueError("that cannot be taken")
        states = walk(cache[0], row)
        cache[0] = states[-1]
        return TABLE.float()[states][None]


def spin() -> None:
    while True:
        pass


def stubborn() -> None:
    """Lets nothing end it, and gives up when the test is over."""
    release.wait(60)


release = threading.Event()


@pytest.fixture(autouse=True)
def nothing_left_hanging() -> None:
    release.clear()


# --- running programs ---


def test_results_and_errors_come_back() -> None:
    watchdog, owner = Watchdog(5), object()
    assert watchdog.run(lambda: 7, owner) == 7
    for error in (ValueError("wrong"), Unsupported("cannot"), AdapterError("glue"), Died("gone")):

        def work(error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error)) as caught:
            watchdog.run(work, owner)
        assert caught.value is error
    assert (watchdog.streak, watchdog.hangs) == (1, 0)


def test_what_hangs_in_python_is_ended_and_may_be_asked_again() -> None:
    watchdog, owner, threads = Watchdog(0.3), object(), threading.active_count()
    with pytest.raises(TimeLimit, match=r"^no end within the time limit of 0\.3 s in spin \(test_watchdog\.py:\d+\)$"):
        watchdog.run(spin, owner)
    assert threading.active_count() <= threads
    assert (watchdog.streak, watchdog.hangs) == (1, 1)
    assert watchdog.run(lambda: "fine", owner) == "fine"
    assert watchdog.streak == 0


def test_what_still_hangs_is_not_asked_meanwhile() -> None:
    watchdog, owner = Watchdog(0.2), object()
    with pytest.raises(TimeLimit, match=r"in stubborn \(test_watchdog"):
        watchdog.run(stubborn, owner)
    ran: list[str] = []
    before = time.monotonic()
    for guard in (watchdog, Watchdog(0.2)):  # another subject of the same implementation, too
        with pytest.raises(TimeLimit, match=r"^not asked, for an earlier program still hangs in stubborn \("):
            guard.run(lambda: ran.append("beside it"), owner)
    assert time.monotonic() - before < 0.2
    assert not ran
    assert watchdog.run(lambda: "another implementation", object()) == "another implementation"
    release.set()
    time.sleep(0.3)
    assert watchdog.run(lambda: "it came back", owner) == "it came back"


def test_who_was_given_up_does_not_go_on_behind_our_back() -> None:
    watchdog, went_on = Watchdog(0.2), list[str]()

    def late() -> None:
        stubborn()
        went_on.append("with a run that is elsewhere by now")

    with pytest.raises(TimeLimit):
        watchdog.run(late, object())
    release.set()
    time.sleep(0.3)
    assert not went_on


@pytest.mark.parametrize(
    ("end", "told"), [(lambda: sys.exit(3), r"SystemExit\(3\)"), (lambda: interrupt(), "KeyboardInterrupt")]
)
def test_what_would_end_the_process_is_a_death(end: Callable[[], None], told: str) -> None:
    with pytest.raises(Died, match=f"^it raised {told}.*, which ends a process$"):
        Watchdog(5).run(end, object())


def interrupt() -> None:
    raise KeyboardInterrupt


def test_without_a_limit_there_is_no_thread() -> None:
    here = threading.get_ident()
    for guard in (Watchdog(None), Guard()):
        assert guard.run(threading.get_ident, object()) == here
    assert Watchdog(5).run(threading.get_ident, object()) != here


def test_one_thread_serves_a_whole_run() -> None:
    assert len({Watchdog(5).run(threading.get_ident, object()) for _ in range(20)}) == 1


def test_the_program_has_the_callers_modes_and_variables() -> None:
    variable = contextvars.ContextVar("variable", default="not set")
    variable.set("set here")
    watchdog = Watchdog(5)
    assert watchdog.run(variable.get, object()) == "set here"
    with torch.no_grad():
        assert watchdog.run(torch.is_grad_enabled, object()) is False
    with torch.inference_mode():
        assert watchdog.run(torch.is_inference_mode_enabled, object()) is True
    with lifted():
        assert watchdog.run(lambda: torch.ones(2).float().dtype, object()) == torch.float64
    assert watchdog.run(torch.is_grad_enabled, object()) is True


def test_the_culprit_is_the_users_own_line() -> None:
    library, own = threading.__file__, __file__
    assert culprit([(library, 3, "wait"), (own, 9, "append")]) == " in append (test_watchdog.py:9)"
    assert culprit([(library, 3, "wait")]) == " in wait (threading.py:3)"
    assert culprit([]) == ""


# --- in a run ---


def test_every_subject_is_watched() -> None:
    resolved = registry.resolve("builtin:gpt/concat")
    for guard in (Subject(resolved.implementation, Oracle(Plain(), torch.float32)).guard, subject(resolved, "float32").guard):
        assert isinstance(guard, Watchdog)
        assert guard.limit == 60


def test_a_program_that_hangs_is_errored_and_the_others_run() -> None:
    asked = Subject(Engine(spin), Oracle(Plain(), torch.float32), Watchdog(0.3))
    trials = [attempt(logits_match, PROGRAM, asked) for _ in range(6)]
    assert [trial.verdict for trial in trials] == [Verdict.PASSED, Verdict.PASSED, Verdict.ERRORED] * 2
    assert trials[2].detail.startswith("no end within the time limit of 0.3 s in spin (test_watchdog.py:")


@pytest.mark.parametrize("trouble", [spin, lambda: time.sleep(0.4), lambda: sys.exit(1)], ids=["python", "sleep", "exit"])
def test_a_run_is_complete_whatever_one_program_does(trouble: Callable[[], object]) -> None:
    engine = Engine(trouble, nth=4)
    clauses = [clause for clause in registry.clauses() if clause.family in ("reference", "prefill", "lifecycle")]
    found = conform("x", Resolved(engine, Plain()), clauses, Profile("test", examples=3), guarding=Guarding(0.2))
    cases = list(found)
    assert [case.clause for case in cases] == [clause.id for clause in clauses]
    verdicts = {case.clause: case.verdict for case in cases}
    assert verdicts["prefill.chunked"] is Verdict.ERRORED
    assert verdicts["reference.deterministic"] is Verdict.PASSED
    assert sum(tally(cases).values()) == len(cases)
    assert not tally(cases)[Verdict.FAILED]
    assert exit_code(cases) == 2


def test_what_hangs_for_good_costs_its_limit_once() -> None:
    engine, profile = Engine(stubborn, nth=1), Profile("test", examples=30)
    clauses = [clause for clause in registry.clauses() if clause.family in ("prefill", "decode")]
    before = time.monotonic()
    cases = list(conform("x", Resolved(engine, Plain()), clauses, profile, guarding=Guarding(0.2)))
    release.set()
    assert time.monotonic() - before < 5
    asked = [case for case in cases if case.verdict is not Verdict.UNSUPPORTED]
    assert {case.verdict for case in asked} == {Verdict.ERRORED}
    assert asked[0].reason.startswith(f"given up after {PATIENCE} programs: no end within the time limit of 0.2 s in stubborn")
    assert all(case.programs == 1 and "still hangs in stubborn" in case.reason for case in asked[1:])


class Floorless(Engine):
    """What it says of itself raises, so that not even its programs can be drawn."""

    capabilities = frozenset({"crop"})

    def crop_floor(self, lengths: Sequence[int]) -> int:
        return len(lengths) // 0


def test_a_clause_whose_programs_cannot_be_made_is_errored() -> None:
    clauses = [clause for clause in registry.clauses() if clause.id in ("branch.crop", "decode.incremental")]
    cases = list(conform("x", Resolved(Floorless(), Plain()), clauses, Profile("test", examples=2)))
    assert [case.verdict for case in cases] == [Verdict.PASSED, Verdict.ERRORED]
    told = r"ZeroDivisionError: integer division or modulo by zero in crop_floor \(test_watchdog\.py:\d+\)"
    assert re.fullmatch(told, cases[1].reason)


class Unmovable(Engine):
    """Says that it can be put in another precision, and hangs or raises."""

    def to(self, dtype: torch.dtype) -> Implementation:
        self.trouble()
        raise MemoryError("not enough")


@pytest.mark.parametrize(("trouble", "reason"), [(lambda: None, "MemoryError: not enough"), (spin, "TimeLimit: no end within")])
def test_a_precision_that_cannot_be_had_is_errored_throughout(trouble: Callable[[], object], reason: str) -> None:
    clauses = [clause for clause in registry.clauses() if clause.id in ("prefill.chunked", "decode.incremental")]
    resolved = Resolved(Unmovable(trouble, nth=10**9), Plain())
    cases = list(conform("x", resolved, clauses, Profile("test", examples=2), guarding=Guarding(0.2)))
    assert [(case.dtype, case.verdict) for case in cases] == [
        *[("float64", Verdict.ERRORED)] * 2,
        *[("float32", Verdict.PASSED)] * 2,
    ]
    assert cases[0].reason.startswith(f"it cannot be put in float64: {reason}")


def test_check_watches_an_object_that_no_process_can_have() -> None:
    run = kvconform.check(Engine(spin), Plain(), clause="prefill.chunked", profile="quick", quiet=True, time_limit=0.2)
    assert run.counts["errored"] == 1
    assert run.cases[0].reason.endswith(")")
    assert "time limit of 0.2 s in spin" in run.cases[0].reason

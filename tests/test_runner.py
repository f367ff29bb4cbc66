"""The one executor: every way in which an implementation can break the contract is named for what it is, and never passed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvconform.harness import registry
from kvconform.harness.checks import keeps_inputs, keeps_logits, repeats
from kvconform.harness.errors import AdapterError, Unsupported
from kvconform.harness.generate import Mix, programs
from kvconform.harness.history import histories
from kvconform.harness.implementation import Implementation
from kvconform.harness.judging import Profile, judge_clauses
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle, Reference
from kvconform.harness.program import Append, Program, Row
from kvconform.harness.results import exit_code
from kvconform.harness.runner import Divergence, Step, apply_ops, execute
from kvconform.harness.scope import Scope
from kvconform.harness.trial import Check, Judged, Subject, Trial, Verdict, attempt, longest_rows
from kvconform.reference.shipped import reference
from torch import Tensor

GPT = reference("gpt")


class Engine(Implementation):
    """A right implementation, as plain as can be: its cache is the tokens, and each call is a pass over all of them."""

    vocab_size = GPT.vocab_size
    max_length = GPT.config.context

    def __init__(self, model: Reference = GPT) -> None:
        self.reference = model
        self.alive: list[list[list[int]]] = []

    @property
    def capabilities(self) -> frozenset[str]:
        return super().capabilities | {"reset_rows"}

    def new_cache(self, rows: int = 1) -> list[list[int]]:
        return self.keep([[] for _ in range(rows)])

    def keep(self, cache: list[list[int]]) -> list[list[int]]:
        self.alive.append(cache)
        return cache

    def admit(self, cache: list[list[int]], tokens: Tensor, lengths: Tensor | None) -> list[list[int]]:
        """The new tokens of each row, padding left out. Refuses before anything is touched."""
        assert tokens.dtype == torch.int64
        width = tokens.shape[1]
        counts = [width] * len(tokens) if lengths is None else lengths.tolist()
        if self.ragged == "left":
            new = [row[width - count :] for row, count in zip(tokens.tolist(), counts, strict=True)]
        else:
            new = [row[:count] for row, count in zip(tokens.tolist(), counts, strict=True)]
        if len(cache) != len(new) and not any(cache):
            cache[:] = [[] for _ in new]
        if len(cache) != len(new) or not all(new) or int(tokens.max()) >= self.vocab_size:
            raise ValueError("this cannot be fed")
        if max(map(len, cache)) + width > GPT.config.context:
            raise ValueError("there are no more positions")
        return new

    def append(self, cache: list[list[int]], tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        new = self.admit(cache, tokens, lengths)
        logits = torch.zeros(*tokens.shape, self.vocab_size)
        for index, (row, fed) in enumerate(zip(cache, new, strict=True)):
            row += fed
            start = tokens.shape[1] - len(fed) if self.ragged == "left" else 0
            with torch.inference_mode():
                due = self.reference.logits(torch.tensor([row]))[0, -len(fed) :]
            logits[index, start : start + len(fed)] = due
        return logits

    def fork(self, cache: list[list[int]]) -> list[list[int]]:
        return self.keep([list(row) for row in cache])

    def crop(self, cache: list[list[int]], length: int) -> None:
        cache[:] = [row[:length] for row in cache]

    def reset(self, cache: list[list[int]]) -> None:
        cache[:] = [[] for _ in cache]

    def select(self, cache: list[list[int]], rows: Sequence[int]) -> None:
        cache[:] = [list(cache[row]) for row in rows]

    def join(self, cache: list[list[int]], other: list[list[int]]) -> None:
        cache += [list(row) for row in other]

    def dump(self, cache: list[list[int]]) -> bytes:
        return json.dumps(cache).encode()

    def load(self, data: bytes) -> list[list[int]]:
        return self.keep(json.loads(data))

    def drop(self, cache: list[list[int]]) -> None:
        self.alive = [other for other in self.alive if other is not cache]


class LeftPadded(Engine):
    ragged = "left"


class RightPadded(Engine):
    ragged = "right"


class LastOnly(Engine):
    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().append(cache, tokens, lengths)[:, -1:]


ORACLE = Oracle(GPT, torch.float32)
PLAIN = Program.parse("append a 5 9 3 7; append a 8 2; append a 4")


def subject(implementation: Implementation) -> Subject:
    return Subject(implementation, ORACLE)


def judged(implementation: Implementation, program: Program | str = PLAIN, check: Check = logits_match) -> Trial:
    return attempt(check, Program.parse(program) if isinstance(program, str) else program, subject(implementation))


EVERY_KIND = Mix(
    ops=(("append", 4), *((kind, 1) for kind in ("fork", "crop", "reset", "select", "join", "restore", "drop"))),
    rows=3,
    caches=3,
    steps=(2, 7),
    reach=24,
    ragged=True,
)


@pytest.mark.parametrize("engine", [Engine, LastOnly, LeftPadded, RightPadded])
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_right_implementation_passes_whatever_is_drawn(engine: type[Engine], data: st.DataObject) -> None:
    implementation = engine()
    program = data.draw(programs(Scope.of(implementation), EVERY_KIND))
    trial = judged(implementation, program)
    assert (trial.verdict, trial.divergence, trial.step) == (Verdict.PASSED, None, None), trial.detail
    assert trial.positions > 0
    assert implementation.alive == []


class WrongShape(Engine):
    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().append(cache, tokens)[..., :-1]


class TwoOfMany(Engine):
    """Neither all of the new positions nor the last one only."""

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().append(cache, tokens)[:, -2:]


class NoLogits(Engine):
    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Any:
        super().append(cache, tokens)


class WrongDtype(Engine):
    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().append(cache, tokens).bfloat16()


class OneNaN(Engine):
    """Right for six tokens; then one number of a whole vocabulary is none."""

    bad = float("nan")

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits = super().append(cache, tokens)
        if len(cache[0]) > 6:
            logits[-1, -1, 700] = self.bad
        return logits


class OneInfinity(OneNaN):
    bad = float("-inf")


class Raises(Engine):
    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        if cache[0]:
            raise RuntimeError("shapes do not fit\nbacktrace: 0: core")
        return super().append(cache, tokens)


class RaisesSomethingOdd(Engine):
    """What it raises is none of its refusals."""

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return {4: super().append(cache, tokens)}[len(cache[0])]


class OffByALittle(Engine):
    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits = super().append(cache, tokens)
        logits[0, -1, 5] += 0.01 * (len(cache[0]) > 4)
        return logits


BROKEN: list[tuple[type[Engine], Divergence, int, str]] = [
    (WrongShape, Divergence.SHAPE, 0, "logits have shape [1, 4, 1199], not [1, 4, 1200] or [1, 1, 1200]"),
    (TwoOfMany, Divergence.SHAPE, 0, "logits have shape [1, 2, 1200], not [1, 4, 1200] or [1, 1, 1200]"),
    (NoLogits, Divergence.SHAPE, 0, "append gave None where logits are due: is a return missing?"),
    (WrongDtype, Divergence.DTYPE, 0, "logits are torch.bfloat16, the implementation says torch.float32"),
    (OneNaN, Divergence.NOT_FINITE, 2, "logits of token 6 hold NaN or infinity"),
    (OneInfinity, Divergence.NOT_FINITE, 2, "logits of token 6 hold NaN or infinity"),
    (Raises, Divergence.RAISED, 1, "RuntimeError: shapes do not fit"),
    (RaisesSomethingOdd, Divergence.RAISED, 1, "KeyError: 6"),
    (OffByALittle, Divergence.LOGITS, 1, "max |Δlogit| 0.01, allowed"),
]


@pytest.mark.parametrize(("engine", "divergence", "step", "detail"), BROKEN)
def test_what_is_wrong_is_named_where_it_first_shows(
    engine: type[Engine], divergence: Divergence, step: int, detail: str
) -> None:
    trial = judged(engine())
    assert (trial.verdict, trial.divergence, trial.step, trial.op) == (Verdict.FAILED, divergence, step, "append")
    assert trial.detail.startswith(detail)
    assert len(trial.detail.splitlines()) == 1


@pytest.mark.parametrize("engine", [engine for engine, *_ in BROKEN])
def test_what_is_wrong_fails_the_contract(engine: type[Engine]) -> None:
    asked = [clause for clause in registry.clauses() if clause.id in ("prefill.identity", "prefill.chunked")]
    cases = list(judge_clauses(asked, subject(engine()), "py:broken", Profile("few", examples=2, shrink=False)))
    assert exit_code(cases) == 1


def test_the_first_bad_token_is_counted_in_the_cache() -> None:
    trial = judged(OffByALittle())
    assert trial.token == 5
    assert trial.difference == pytest.approx(0.01, rel=1e-2)
    assert [place for place, gap in trial.differences if gap > 1e-3] == [5, 6]


class AcceptsAnything(Engine):
    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().append(cache, tokens.clamp(max=self.vocab_size - 1))


class WrongRefusal(Engine):
    def admit(self, cache: Any, tokens: Tensor, lengths: Tensor | None) -> list[list[int]]:
        if int(tokens.max()) >= self.vocab_size:
            raise KeyError("token")
        return super().admit(cache, tokens, lengths)


class OwnRefusal(WrongRefusal):
    refusals = (KeyError,)


class RefusesHalfway(Engine):
    """The tokens before the bad one stay in the cache."""

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        for row, new in zip(cache, tokens.tolist(), strict=False):
            row += [token for token in new if token < self.vocab_size]
        if int(tokens.max()) >= self.vocab_size:
            raise ValueError("token")
        with torch.inference_mode():
            return self.reference.logits(torch.tensor(cache))[:, -tokens.shape[1] :]


REFUSALS = "append a 5 9 3; append a! 7 999999; append a 4"


@pytest.mark.parametrize(
    ("engine", "verdict", "divergence", "step"),
    [
        (Engine, Verdict.PASSED, None, None),
        (OwnRefusal, Verdict.PASSED, None, None),
        (AcceptsAnything, Verdict.FAILED, Divergence.ACCEPTED, 1),
        (WrongRefusal, Verdict.FAILED, Divergence.REFUSAL, 1),
        (RefusesHalfway, Verdict.FAILED, Divergence.LOGITS, 2),
    ],
)
def test_what_must_be_refused(engine: type[Engine], verdict: Verdict, divergence: Divergence | None, step: int | None) -> None:
    trial = judged(engine(), REFUSALS)
    assert (trial.verdict, trial.divergence, trial.step) == (verdict, divergence, step)


def test_an_accepted_call_is_not_followed_by_others() -> None:
    steps = list(execute(Program.parse(REFUSALS), AcceptsAnything(), ORACLE))
    assert [step.divergence for step in steps] == [None, Divergence.ACCEPTED]


class Aliased(Engine):
    """All logits come out of one buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = torch.zeros(1, 64, self.vocab_size)

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        out = self.buffer[:, : tokens.shape[1]]
        return out.copy_(super().append(cache, tokens))


class Mutating(Engine):
    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits = super().append(cache, tokens)
        tokens[:, -1] += 1
        return logits


class Unstable(Engine):
    """Off by a little more with every call."""

    calls = 0

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        self.calls += 1
        return super().append(cache, tokens) + 0.01 * self.calls


LEFT_ALONE: list[tuple[type[Engine], Check, Divergence]] = [
    (Aliased, keeps_logits, Divergence.ALIASED),
    (Mutating, keeps_inputs, Divergence.MUTATED),
    (Unstable, repeats, Divergence.UNSTABLE),
]


@pytest.mark.parametrize(("engine", "check", "divergence"), LEFT_ALONE)
def test_what_a_call_must_leave_alone(engine: type[Engine], check: Check, divergence: Divergence) -> None:
    trial = judged(engine(), check=check)
    assert (trial.verdict, trial.divergence, trial.op, trial.step) == (Verdict.FAILED, divergence, "append", 0)


@pytest.mark.parametrize("check", [keeps_logits, keeps_inputs, repeats])
def test_a_right_implementation_leaves_it_alone(check: Check) -> None:
    assert judged(Engine(), check=check).verdict is Verdict.PASSED


@pytest.mark.parametrize("check", [keeps_logits, keeps_inputs, repeats])
@pytest.mark.parametrize(("engine", "divergence", "step"), [(engine, kind, step) for engine, kind, step, _ in BROKEN[:-1]])
def test_what_is_broken_has_not_left_it_alone(engine: type[Engine], divergence: Divergence, step: int, check: Check) -> None:
    trial = judged(engine(), check=check)
    assert (trial.verdict, trial.divergence, trial.step) == (Verdict.FAILED, divergence, step)


def test_aliased_logits_are_right_when_they_are_judged_at_once() -> None:
    assert judged(Aliased()).verdict is Verdict.PASSED


class BrokenAdapter(Engine):
    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        raise AdapterError("the process has ended")


class CannotSayWhyUntilItRuns(Engine):
    def crop(self, cache: Any, length: int) -> None:
        raise Unsupported("this engine crops before the first token only")


def test_an_error_of_the_adapter_is_no_failure_of_the_implementation() -> None:
    for program in (PLAIN, REFUSALS, "append a! 999999"):
        trial = judged(BrokenAdapter(), program)
        assert (trial.verdict, trial.divergence) == (Verdict.ERRORED, None)
        assert trial.detail == "the adapter: the process has ended"


def test_what_the_implementation_cannot_do_is_unsupported() -> None:
    trial = judged(CannotSayWhyUntilItRuns(), "append a 5 9; crop a 1")
    assert (trial.verdict, trial.detail) == (Verdict.UNSUPPORTED, "this engine crops before the first token only")
    too_long = judged(Engine(), "append a " + "7 " * 65)
    assert (too_long.verdict, too_long.detail) == (Verdict.UNSUPPORTED, "it holds at most 64 positions")


class BrokenReference:
    name, vocab_size = "broken", GPT.vocab_size

    def logits(self, tokens: Tensor) -> Tensor:
        raise ZeroDivisionError

    def to(self, dtype: torch.dtype) -> BrokenReference:
        return self


def test_an_error_of_the_reference_is_no_failure_of_the_implementation() -> None:
    trial = attempt(logits_match, PLAIN, Subject(Engine(), Oracle(BrokenReference(), torch.float32)))
    assert trial.verdict is Verdict.ERRORED
    assert re.fullmatch(r"ZeroDivisionError in logits \(test_runner\.py:\d+\)", trial.detail)


def test_where_nothing_was_compared_nothing_is_passed() -> None:
    trial = attempt(logits_match, Program.parse("append a 5 9 3; append b 7"), subject(Engine()), Judged.WARM)
    assert (trial.verdict, trial.detail, trial.positions) == (Verdict.INCONCLUSIVE, "nothing was compared", 0)


@pytest.mark.parametrize("asked", list(Judged))
def test_a_clause_judges_the_appends_that_it_is_about(asked: Judged) -> None:
    trial = attempt(logits_match, Program.parse("append a 5 9 3; append a 8 2; reset a; append a 4"), subject(Engine()), asked)
    places = {Judged.ALL: [0, 1, 2, 3, 4, 0], Judged.FRESH: [0, 1, 2, 0], Judged.WARM: [3, 4]}
    assert [place for place, _ in trial.differences] == places[asked]
    assert trial.positions == len(places[asked])


def steps_of(text: str, implementation: Implementation) -> list[Step]:
    return list(execute(Program.parse(text), implementation, ORACLE))


def test_a_step_says_what_was_there_before_it_and_where_its_positions_begin() -> None:
    text = "append a 5 9 3; fork a b; append b 7 7; crop b 4; append b! 999999; append b 8; drop a"
    found = [
        (step.index, step.op.kind, step.past, step.first, step.comparison is not None) for step in steps_of(text, Engine())
    ]
    assert found == [
        (0, "append", 0, 0, True),
        (1, "fork", 3, 0, False),
        (2, "append", 3, 3, True),
        (3, "crop", 5, 0, False),
        (4, "append", 4, 0, False),
        (5, "append", 4, 4, True),
        (6, "drop", 3, 0, False),
    ]


def test_logits_of_the_last_position_only_are_judged_there() -> None:
    found = [step.first for step in steps_of("append a 5 9 3; append a 8 2; append a 4", LastOnly())]
    assert found == [2, 4, 5]


@pytest.mark.parametrize("engine", [Engine, Raises, WrongShape, AcceptsAnything])
@pytest.mark.parametrize("text", ["append a 5 9; fork a b; append b 7", REFUSALS, "append a 5; append b 9; drop a; append b 7"])
def test_no_cache_is_left_behind(engine: type[Engine], text: str) -> None:
    implementation = engine()
    steps_of(text, implementation)
    assert implementation.alive == []


def test_exact_calls_are_held_against_the_same_call_of_the_reference() -> None:
    program = Program.parse("append a 5 9 3 | 7 7 8; append a 1 | 2")
    resolved = registry.resolve("builtin:gpt/concat")
    first, second = execute(program, resolved.implementation, ORACLE, exact=True)
    assert first.comparison
    assert second.comparison
    assert first.comparison.differences == (0.0, 0.0, 0.0)
    assert 0 <= second.comparison.largest < 1e-4


def test_logits_are_kept_where_that_is_asked_for() -> None:
    kept = [step.logits is not None for step in execute(PLAIN, Engine(), ORACLE, keep=True)]
    assert kept == [True, True, True]
    assert not any(step.logits is not None for step in execute(PLAIN, Engine(), ORACLE))


def test_ops_are_applied_one_by_one_where_tokens_are_chosen_on_the_way() -> None:
    implementation, text = Engine(), (5, 9, 3)
    with apply_ops(implementation) as apply:
        logits = apply(Append("a", (text,)))
        for _ in range(4):
            assert logits is not None
            assert logits[0, -1].argmax() == ORACLE.row(text, 1).argmax()
            text = (*text, int(logits[0, -1].argmax()))
            logits = apply(Append("a", (text[-1:],)))
        assert apply(Append("a", ((999999,),), refused=True)) is None
        assert implementation.alive == [[list(text)]]
    assert implementation.alive == []


def begins(row: Row, other: Row) -> bool:
    return other[: len(row)] == row


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(Scope(vocab_size=3, max_length=12), EVERY_KIND))
def test_the_longest_rows_are_those_that_begin_no_other(program: Program) -> None:
    held = {row for history in histories(program) for rows in history.caches.values() for row in rows if row}
    assert sorted(longest_rows(program)) == sorted(row for row in held if not any(begins(row, other) for other in held - {row}))

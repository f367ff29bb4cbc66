"""What an implementation gave on a program, op by op, and how two of them are compared: the logits themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..history import histories
from ..implementation import Implementation
from ..noise import noise_of
from ..program import Append, Op, Program, Row
from ..runner import Divergence, Step, execute
from ..tolerance import Ratio, Rounding, allowance
from ..trial import Judged, Subject, longest_rows

if TYPE_CHECKING:
    from torch import Tensor

SLACK = 4.0
"""Two sets of logits are the same within so many times what is allowed: another store sums in another order."""
NOISES = 2.0
"""Under a ratio: within so many times the noise."""


@dataclass(frozen=True)
class Outcome:
    """What one op gave: for each row the logits `[taken, vocab]` of its last `taken` real tokens, or how it broke."""

    index: int
    op: Op
    rows: tuple[Tensor, ...] = ()
    divergence: Divergence | None = None
    detail: str = ""


def outcomes(program: Program, implementation: Implementation) -> Iterator[Outcome]:
    """Run a program without judging it. Ends behind the first op that breaks by more than its figures."""
    for step in execute(program, implementation, None, keep=True):
        rows = () if step.logits is None else real_rows(step, implementation.ragged)
        yield Outcome(step.index, step.op, rows, step.divergence, step.detail)


def real_rows(step: Step, ragged: str) -> tuple[Tensor, ...]:
    """The logits of a step without those of padding, as copies."""
    assert isinstance(step.op, Append)
    assert step.logits is not None
    count = step.logits.shape[1]
    found: list[Tensor] = []
    for logits, new in zip(step.logits, step.op.rows, strict=True):
        taken = min(len(new), count)
        place = slice(count - taken, count) if ragged == "left" or count == 1 else slice(0, taken)
        found.append(logits[place].clone())
    return tuple(found)


@dataclass(frozen=True)
class Given:
    """A program's outcomes on the implementation beside the reference's, and by how much rows may differ.

    `wrong[op][row][position]` says where the implementation differs from the reference.
    """

    program: Program
    outcomes: tuple[Outcome, ...]
    expected: tuple[tuple[Tensor, ...], ...]
    allowed: tuple[tuple[Tensor | float, ...], ...]
    wrong: tuple[tuple[tuple[bool, ...], ...], ...]

    @property
    def first(self) -> int | None:
        """Index of the first op that went wrong; None where the program shows nothing."""
        for place, outcome in enumerate(self.outcomes):
            if outcome.divergence is not None or any(any(row) for row in self.wrong[place]):
                return place
        return None


def given(program: Program, subject: Subject, allowed_as: Given | None = None, noise: Implementation | None = None) -> Given:
    """Run a program on the implementation under its guard, and hold it against the reference. With `allowed_as` it goes
    where the reference cannot: all that it gives is wrong, and may differ from a simulation as in that program. `noise` is
    what the noise of noisy arithmetic is measured on, where a right implementation of the same arithmetic is at hand."""

    def run() -> tuple[Outcome, ...]:
        return tuple(outcomes(program, subject.implementation))

    found = subject.guard.run(run, subject.implementation)
    if allowed_as is not None:
        most = max((bound for op in allowed_as.allowed for bound in op if isinstance(bound, float)), default=SLACK * 1e-6)
        bounds = tuple(tuple(most for _ in outcome.rows) for outcome in found)
        all_wrong = tuple(tuple((True,) * len(row) for row in outcome.rows) for outcome in found)
        return Given(program, found, ((),) * len(found), bounds, all_wrong)
    loud = subject if noise is None else Subject(noise, subject.oracle)
    pasts = histories(program)
    single = _rounding(program, subject)
    expected: list[tuple[Tensor, ...]] = []
    allowed: list[tuple[Tensor | float, ...]] = []
    for outcome in found:
        rows = pasts[outcome.index + 1].caches.get(outcome.op.cache, ())
        due = tuple(subject.oracle.row(row, len(got)) for row, got in zip(rows, outcome.rows, strict=False))
        expected.append(due)
        allowed.append(tuple(_noise(loud, row, len(got)) if single is None else single for row, got in _pairs(rows, outcome)))
    wrong = tuple(
        tuple(tuple(differing(got, one, most)) for got, one, most in zip(outcome.rows, due, bounds, strict=True))
        for outcome, due, bounds in zip(found, expected, allowed, strict=True)
    )
    return Given(program, found, tuple(expected), tuple(allowed), wrong)


def _pairs(rows: Sequence[Row], outcome: Outcome) -> list[tuple[Row, Tensor]]:
    return list(zip(rows, outcome.rows, strict=False))


def _rounding(program: Program, subject: Subject) -> float | None:
    """max |Δlogit| between two that are the same but for rounding; None where noise is what they are judged by."""
    if isinstance(subject.tolerance(Judged.ALL), Ratio):
        return None
    rows = longest_rows(program)
    scale = max((subject.oracle.row(row, len(row)).abs().max().item() for row in rows), default=1.0)
    floor = max(map(subject.oracle.floor, rows), default=0.0)
    return SLACK * allowance(Rounding(), scale, floor, subject.oracle.epsilon).allowed


def _noise(subject: Subject, row: Row, taken: int) -> Tensor:
    """Under a ratio: how large the root of the squared error, summed over the vocabulary, may be at each position."""
    return NOISES * noise_of(subject).of(row, taken)[0].sqrt()


def differing(one: Tensor, other: Tensor, allowed: Tensor | float) -> list[bool]:
    """At which positions `[n]` do logits `[n, vocab]` differ by more than they may?"""
    one, other = one.double(), other.double()
    odd = (one.isfinite() != other.isfinite()).any(dim=-1)
    gap = (one - other).nan_to_num(0.0, 0.0, 0.0)
    size = gap.abs().amax(dim=-1) if isinstance(allowed, float) else gap.square().sum(dim=-1).sqrt()
    return (odd | (size > allowed)).tolist()


def apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """max |Δlogit| over all rows; infinite where one is finite and the other not."""
    gaps = [
        (a.double() - b.double()).abs().nan_to_num(math.inf, math.inf).max().item() for a, b in zip(one, other, strict=True)
    ]
    return max(gaps, default=0.0)

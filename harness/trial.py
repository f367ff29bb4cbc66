"""One program judged: what ran, what it showed, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pool import Pool

from .errors import AdapterError, Lost, Spent, Unsupported
from .history import histories
from .implementation import Implementation
from .oracle import Oracle
from .program import Append, Program, Row
from .runner import Divergence, Step, blamed
from .scope import Scope, unsupported
from .tolerance import Absolute, Allowance, Band, Exact, Ratio, Rounding, Tolerance, allowance
from .watchdog import Guard, Watchdog

HALF = ("bfloat16", "float16")
"""Precisions in which a position off by one hides under any maximum."""


QUIETER = "quieter"
"""What noisy arithmetic's quieter mode is called among precisions."""


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNSUPPORTED = "unsupported"
    INCONCLUSIVE = "inconclusive"
    KNOWN = "known"
    """Failed, and listed with a reason as a deviation that is known."""


class Judged(StrEnum):
    """Which appends a clause is about."""

    ALL = "all"
    FRESH = "fresh"
    WARM = "warm"

    def includes(self, step: Step) -> bool:
        return self is Judged.ALL or step.fresh == (self is Judged.FRESH)


@dataclass(frozen=True)
class Subject:
    """An implementation with the oracle that it is held against, in one dtype. `guard` runs its programs, so that one
    that hangs or kills its process costs itself only."""

    implementation: Implementation
    oracle: Oracle
    guard: Guard = field(default_factory=Watchdog, compare=False)
    given: str | None = None
    """Where the user gave the reference: its target, or nothing for an object of the user's."""
    quieter: bool = False
    """Is it noisy arithmetic's quieter mode?"""

    @property
    def dtype_name(self) -> str:
        """The name of the precision, as reports show it."""
        return QUIETER if self.quieter else str(self.implementation.dtype).removeprefix("torch.")

    @property
    def scope(self) -> Scope:
        return Scope.of(self.implementation)

    def tolerance(self, judged: Judged) -> Tolerance:
        """A ratio for noisy arithmetic, exact for a prefill with the reference's operands, a published bound in float32,
        else measured."""
        if self.implementation.noisy or self.implementation.lossy is not None or self.dtype_name in HALF:
            return Ratio(own=self.implementation.lossy is None and not self.oracle.narrow)
        if judged is Judged.FRESH and self.implementation.exact_prefill:
            return Exact()
        if self.implementation.incremental_bound is not None and self.dtype_name == "float32":
            return Absolute(self.implementation.incremental_bound)
        return Rounding()


@dataclass(frozen=True)
class Trial:
    """The outcome of one program. `step` and `token` say where it first diverged, `differences` what each position showed."""

    program: Program
    verdict: Verdict
    detail: str = ""
    divergence: Divergence | None = None
    step: int | None = None
    token: int | None = None
    op: str = ""
    difference: float = 0.0
    allowance: Allowance | None = None
    flips: int = 0
    positions: int = 0
    differences: tuple[tuple[int, float], ...] = field(default=(), repr=False)
    pool: Pool | None = None
    """Under a ratio: what this program adds to its clause's pool."""

    @property
    def identity(self) -> tuple[Divergence | None, str]:
        """What shrinking must keep: the kind of divergence and the kind of op at which it shows."""
        return self.divergence, self.op


Check = Callable[[Program, Subject, Judged], Trial]
"""Judges one program. The common one is `match.logits_match`."""


READ_NO_CACHE: set[Check] = set()
"""Checks that take a program's tokens and never append them, so that it need not fit the implementation's caches."""


def reads_no_cache(check: Check) -> Check:
    """Mark a check as one of them."""
    READ_NO_CACHE.add(check)
    return check


def attempt(check: Check, program: Program, subject: Subject, judged: Judged = Judged.ALL) -> Trial:
    """Run a check; what cannot be run is unsupported, and what breaks in the harness or adapter is errored."""
    try:
        if check not in READ_NO_CACHE and (reason := unsupported(program, subject.scope)):
            return Trial(program, Verdict.UNSUPPORTED, reason)
        return subject.guard.run(partial(check, program, subject, judged), subject.implementation)
    except Spent as reason:
        return Trial(program, Verdict.INCONCLUSIVE, str(reason))
    except Unsupported as reason:
        return Trial(program, Verdict.UNSUPPORTED, str(reason))
    except Lost as lost:
        return Trial(program, Verdict.ERRORED, str(lost))
    except AdapterError as error:
        return Trial(program, Verdict.ERRORED, f"the adapter: {error}")
    except Exception as error:
        return Trial(program, Verdict.ERRORED, blamed(error, "the harness or the reference"))


def judge(program: Program, steps: list[Step], tolerance: Tolerance, subject: Subject, judged: Judged) -> Trial:
    """The verdict on steps that have run: first bad position, its size, and what was allowed."""
    broken = steps[-1] if steps and steps[-1].divergence else None
    compared = [step for step in steps if step.comparison and judged.includes(step)]
    # A call cannot be judged bit for bit where it went through as another call than the reference's.
    allowed = _allowance(program, compared, tolerance, subject.oracle)
    curve = tuple(
        (step.first + offset, gap)
        for step in compared
        if step.comparison
        for offset, gap in enumerate(step.comparison.differences)
    )
    flips = sum(step.comparison.flips for step in compared if step.comparison)
    positions = sum(step.comparison.positions for step in compared if step.comparison)
    largest = max((gap for _, gap in curve), default=0.0)

    def verdict(kind: Verdict, detail: str = "", at: Step | None = None, token: int | None = None) -> Trial:
        divergence = None if kind is not Verdict.FAILED or at is None else at.divergence or Divergence.LOGITS
        where = None if at is None else at.index
        name = "" if at is None else at.op.kind
        return Trial(
            program, kind, detail, divergence, where, token, name, largest, allowed, flips, positions, curve
        )  # fmt: skip

    suspicious: tuple[Step, int, float] | None = None
    doubtful: tuple[Step, int, float, str] | None = None
    for step in compared:
        assert step.comparison is not None
        assert allowed is not None
        for offset, gap in enumerate(step.comparison.differences):
            band = allowed.band(gap)
            if band is not Band.ROUNDING and (reason := _doubt(program, step, offset, subject)):
                doubtful = doubtful or (step, offset, gap, reason)
                continue
            if band is Band.BUG and not allowed.too_noisy:
                detail = f"max |Δlogit| {largest:.3g}, allowed {allowed.allowed:.3g} ({allowed.tolerance})"
                return verdict(Verdict.FAILED, detail, step, step.first + offset)
            if band is not Band.ROUNDING and suspicious is None:
                suspicious = (step, offset, gap)
    if broken:
        return verdict(Verdict.FAILED, broken.detail, broken, max(broken.first, broken.past))
    if suspicious and allowed:
        step, offset, gap = suspicious
        why = "the reference's own noise is too large to tell" if allowed.too_noisy else "above rounding, below a bug"
        detail = f"max |Δlogit| {gap:.3g}, allowed {allowed.allowed:.3g}: {why}"
        return verdict(Verdict.INCONCLUSIVE, detail, step, step.first + offset)
    if doubtful:
        step, offset, gap, reason = doubtful
        return verdict(Verdict.INCONCLUSIVE, f"max |Δlogit| {gap:.3g}: {reason}", step, step.first + offset)
    if not compared and any(isinstance(op, Append) and not op.refused for op in program.ops):
        return verdict(Verdict.INCONCLUSIVE, "nothing was compared")
    return verdict(Verdict.PASSED)


def _doubt(program: Program, step: Step, offset: int, subject: Subject) -> str:
    """Why the reference itself could have given other logits at a position of a step, in one of its rows."""
    import torch

    assert step.comparison is not None
    epsilon = torch.finfo(subject.implementation.dtype).eps
    rows = histories(program)[step.index + 1].caches[step.op.cache]
    places = ((row, len(row) - len(step.comparison.differences) + offset) for row in rows)
    found = (subject.oracle.doubt(row, place, epsilon) for row, place in places if 0 <= place < len(row))
    return next(filter(None, found), "")


def _allowance(program: Program, compared: list[Step], tolerance: Tolerance, oracle: Oracle) -> Allowance | None:
    if not compared:
        return None
    scale = max(step.comparison.scale for step in compared if step.comparison)
    cheap = allowance(tolerance, scale, 0.0, oracle.epsilon)
    largest = max(step.comparison.largest for step in compared if step.comparison)
    if not isinstance(tolerance, Rounding) or largest <= cheap.allowed:
        return cheap if not isinstance(tolerance, Rounding) else Allowance(tolerance, cheap.allowed, None, scale)
    return measured(longest_rows(program), scale, largest, oracle)


def measured(rows: Sequence[Row], scale: float, largest: float, oracle: Oracle) -> Allowance:
    """What rounding allows on these rows; how they are conditioned is measured only where the floor alone does not explain
    the largest difference."""
    floor = max(map(oracle.floor, rows))
    allowed = allowance(Rounding(), scale, floor, oracle.epsilon)
    if allowed.band(largest) is Band.ROUNDING:
        return allowed
    return allowance(Rounding(), scale, max(floor, *map(oracle.conditioning, rows)), oracle.epsilon)


def longest_rows(program: Program) -> list[Row]:
    """The rows that the program's caches hold at its appends, without those that begin another."""
    rows = {row for history in histories(program)[1:] for held in history.caches.values() for row in held if row}
    ordered = sorted(rows)
    # In lexicographic order a prefix stands directly before a row that begins with it, or before another of its prefixes.
    return [row for row, after in pairwise([*ordered, ()]) if after[: len(row)] != row]

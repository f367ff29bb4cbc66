"""How a hypothesis fares on one program: it is simulated, and held against what the implementation gave."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import AdapterError, Unsupported
from ..implementation import Implementation
from ..runner import Divergence
from .outcome import Given, Outcome, apart, differing, outcomes

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Fit:
    """`explained`: positions at which the implementation differs from the reference and the simulation agrees with it;
    those aside where neither is finite, which says little. `texts`: error texts that are the same; `kinds`: errors of
    which only the kind is. `distance`: max |Δlogit| where the two part, and `parted` that op's index."""

    same: bool
    explained: int = 0
    texts: int = 0
    kinds: int = 0
    distance: float = 0.0
    parted: int | None = None

    @property
    def tells(self) -> bool:
        """Does agreement mean anything here?"""
        return bool(self.explained or self.texts or self.kinds)


def fit(found: Given, implementation: Implementation) -> Fit:
    """Run the program on a simulation until it parts from what the implementation gave."""
    explained, texts, kinds = 0, 0, 0
    simulated = outcomes(found.program, implementation)
    for place, (real, bounds, wrong) in enumerate(zip(found.outcomes, found.allowed, found.wrong, strict=True)):
        try:
            guess = next(simulated, None)
        except (Unsupported, AdapterError):
            guess = None
        if guess is None or guess.divergence is not real.divergence or len(guess.rows) != len(real.rows):
            return Fit(False, explained, texts, kinds, math.inf, place)
        rows = _aligned(guess.rows, real.rows)
        differ = [differing(got, one, most) for got, one, most in zip(real.rows, rows, bounds, strict=True)]
        if any(map(any, differ)):
            return Fit(False, explained, texts, kinds, apart(real.rows, rows), place)
        finite = [row.isfinite().all(dim=-1).tolist() for row in real.rows]
        counted = [
            bad and good for bads, goods in zip(wrong, finite, strict=True) for bad, good in zip(bads, goods, strict=True)
        ]
        explained += sum(counted)
        if real.divergence is not None and not any(counted):
            same = real.divergence is not Divergence.NOT_FINITE and _words(real) == _words(guess)
            texts, kinds = texts + same, kinds + (not same)
    return Fit(True, explained, texts, kinds)


def _aligned(rows: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
    """As many of the last positions as the other gave; none that can agree where there are fewer."""
    pairs = zip(rows, like, strict=True)
    return [row[-len(due) :] if len(due) <= len(row) else due.new_full(due.shape, math.nan) for row, due in pairs]


def _words(outcome: Outcome) -> str:
    """An error's text without what differs from run to run."""
    return re.sub(r"0x[0-9a-f]+", "0x", " ".join(outcome.detail.split()))

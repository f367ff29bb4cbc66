"""Sums over positions, from which a ratio of error to noise is told."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

EXTREME = 100.0
"""A ratio at one position counts as no more than this, and no less than its inverse."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Sums over positions: squared errors and KL divergences from the reference, of what is judged and of the noise; the
    logarithms of the two quotients' roots; squared deviations of the reference's logits from their mean, and how many logits
    that is."""

    error: float = 0.0
    noise: float = 0.0
    divergence: float = 0.0
    noise_divergence: float = 0.0
    positions: int = 0
    logarithm: float = 0.0
    divergence_logarithm: float = 0.0
    spread: float = 0.0
    logits: int = 0

    @classmethod
    def at(
        cls, error: float, noise: float, divergence: float, noise_divergence: float, spread: float = 0.0, logits: int = 0
    ) -> Pool:
        """The pool of one position."""
        logarithms = _logarithm(error, noise), _logarithm(divergence, noise_divergence)
        return cls(error, noise, divergence, noise_divergence, 1, *logarithms, spread, logits)

    def __add__(self, other: Pool) -> Pool:
        return Pool(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def ratio(self) -> float:
        """The larger of the ratios of root mean squares and of root mean KL divergences; NaN counts as infinite."""
        return max(math.sqrt(_quotient(*pair)) for pair in ((self.error, self.noise), (self.divergence, self.noise_divergence)))

    @property
    def usual(self) -> float:
        """The geometric mean over positions of either ratio, the larger of the two; a few loud positions do not sway it."""
        return math.exp(max(self.logarithm, self.divergence_logarithm) / self.positions) if self.positions else 1.0

    @property
    def noise_size(self) -> float:
        """Root mean square of the noise, in logits."""
        return math.sqrt(self.noise / self.logits) if self.logits else 0.0

    @property
    def deviation(self) -> float:
        """Standard deviation of the reference's logits."""
        return math.sqrt(self.spread / self.logits) if self.logits else 0.0


def _quotient(above: float, below: float) -> float:
    if below > 0:
        found = above / below
        return found if found == found else math.inf
    return 1.0 if above == below == 0 else math.inf


def _logarithm(above: float, below: float) -> float:
    return math.log(min(max(math.sqrt(_quotient(above, below)), 1 / EXTREME), EXTREME))

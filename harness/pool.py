"""Sums over positions, from which a ratio of error to noise is told."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pool:
    """Sums over positions: squared errors and KL divergences from the reference, of what is judged and of the noise."""

    error: float = 0.0
    noise: float = 0.0
    divergence: float = 0.0
    noise_divergence: float = 0.0
    positions: int = 0

    def __add__(self, other: Pool) -> Pool:
        return Pool(
            self.error + other.error,
            self.noise + other.noise,
            self.divergence + other.divergence,
            self.noise_divergence + other.noise_divergence,
            self.positions + other.positions,
        )

    @property
    def ratio(self) -> float:
        """The larger of the ratios of root mean squares and of root mean KL divergences; NaN counts as infinite."""
        pairs = ((self.error, self.noise), (self.divergence, self.noise_divergence))
        found = [math.sqrt(above / below) if below > 0 else (math.inf if above > 0 else 1.0) for above, below in pairs]
        return max((ratio if ratio == ratio else math.inf for ratio in found), default=math.inf)

"""What a comparison may show: nothing, an absolute bound, or a multiple of the measured noise floor.

The one place that knows tolerances. The factors of `Rounding` are calibrated by `benchmarks/calibrate.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

FLOOR_FACTOR = 8.0
"""Allowed is so many times the measured floor ..."""
SCALE_ULPS = 32.0
"""... but never less than so many units in the last place of the logits' scale."""
BUG_FACTOR = 10.0
"""Beyond so many times what is allowed, a deviation is a bug; between the two it is suspicious."""
TOO_NOISY = 1e-2
"""Where more than this part of the scale would be allowed, nothing can be told."""
ENOUGH = 100
"""Positions that a pooled ratio needs to be told by its bounds as they are."""


class Band(StrEnum):
    ROUNDING = "rounding"
    SUSPICIOUS = "suspicious"
    BUG = "bug"


@dataclass(frozen=True, slots=True)
class Exact:
    """Bit for bit. Only where attention gets operands of the reference's shape."""

    def __str__(self) -> str:
        return "exact"


@dataclass(frozen=True, slots=True)
class Absolute:
    """max |Δlogit| within a published bound, float32 only."""

    bound: float = 1e-4

    def __str__(self) -> str:
        return f"absolute {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Rounding:
    """max(8 × floor, 32 ulp of the logits' scale), the floor measured on the reference for the same tokens and dtype."""

    def __str__(self) -> str:
        return f"rounding {FLOOR_FACTOR:g} × floor"


@dataclass(frozen=True, slots=True)
class Ratio:
    """Error ÷ noise, pooled over the positions of a clause: passed under 1.5, failed over 2, inconclusive between.

    One program alone has few positions, so it fails only over `program_fails`, and over more where they are very few: at one
    position the KL divergence of a right call was 3.3 times the noise's. Where the noise is the implementation's `own`,
    of calls that read no cache, right calls are off by a draw of that very noise, now by more and now by less: the usual
    ratio of a position is 1, whatever a few loud positions do to the mean square, and is held to narrower bounds.
    The bounds of mean squares are calibrated by `benchmarks/calibrate.py`; those of the usual ratio on a real engine, by
    `benchmarks/candle_q4.py`: its right caller stays within 0.985 and 1.05.
    """

    own: bool = False
    passes: float = 1.5
    fails: float = 2.0
    program_fails: float = 3.0
    usually_passes: float = 1.25
    usually_fails: float = 1.5

    def __str__(self) -> str:
        return f"ratio {self.passes:g} × noise"

    def bounds(self, positions: int) -> tuple[float, float]:
        """Under which ratio a pool passes, and over which it fails; with few positions, between them is wider."""
        return (self.passes, self.fails) if positions >= ENOUGH else (self.fails, self.alone(positions))

    def alone(self, positions: int) -> float:
        """Over which ratio one program fails that has so many positions."""
        return self.program_fails * (1 + 3 / max(positions, 1))

    def usual(self, positions: int) -> tuple[float, float]:
        """The same for the geometric mean of a position's ratio; few positions have no usual one."""
        return (self.usually_passes, self.usually_fails) if self.own and positions >= ENOUGH else (math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """No floor was measured. 32 ulp of the logits' scale pass, as under any floor; what no floor may allow is a bug; what
    lies between cannot be told. In half precision 32 ulp hide bugs: half an ulp passes, which storing the logits rounds, and
    no maximum tells a bug."""

    half: bool = False

    @property
    def untold(self) -> float:
        """Part of the scale up to which a difference may be noise."""
        return math.inf if self.half else TOO_NOISY

    def __str__(self) -> str:
        return "no floor measured"


Tolerance = Exact | Absolute | Rounding | Ratio | Unmeasured


@dataclass(frozen=True, slots=True)
class Allowance:
    """A tolerance worked out for one program: how large a difference may be, and where a bug begins."""

    tolerance: Tolerance
    allowed: float
    floor: float | None
    scale: float

    @property
    def too_noisy(self) -> bool:
        return isinstance(self.tolerance, Rounding) and self.allowed > TOO_NOISY * self.scale

    def band(self, difference: float) -> Band:
        """Where a difference lies. Under noise that is too large to tell, nothing above what can be told is rounding."""
        most = TOO_NOISY * self.scale if self.too_noisy else self.allowed
        if difference <= most:
            return Band.ROUNDING
        if isinstance(self.tolerance, Unmeasured) and difference <= (
            math.inf if self.tolerance.half else TOO_NOISY * self.scale
        ):
            return Band.SUSPICIOUS
        if isinstance(self.tolerance, Rounding) and difference <= BUG_FACTOR * self.allowed:
            return Band.SUSPICIOUS
        return Band.BUG  # NaN lands here too: it is not <= anything


def allowance(tolerance: Tolerance, scale: float, floor: float | None, epsilon: float) -> Allowance:
    """Work out a tolerance. `epsilon` is the dtype's unit in the last place at 1; `floor` only `Rounding` needs."""
    if isinstance(tolerance, Exact):
        return Allowance(tolerance, 0.0, None, scale)
    if isinstance(tolerance, Absolute):
        return Allowance(tolerance, tolerance.bound, None, scale)
    if isinstance(tolerance, Unmeasured):
        return Allowance(tolerance, (0.5 if tolerance.half else SCALE_ULPS) * epsilon * scale, None, scale)
    if floor is None:
        raise ValueError("rounding is judged against a measured floor, and none was given")
    return Allowance(tolerance, max(FLOOR_FACTOR * floor, SCALE_ULPS * epsilon * scale), floor, scale)

"""Two sets of logits, position by position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Comparison:
    """Figures of one append, a number a new position, the worst row at each.

    `differences` are max |Δlogit| over vocabulary and rows; `row` is the row of the largest; `flips` counts positions
    (of all rows) whose most likely token differs; `scale` is the largest |logit| expected; `positions` the positions
    compared over all rows.
    """

    differences: tuple[float, ...]
    flips: int
    scale: float
    row: int
    positions: int

    @property
    def largest(self) -> float:
        return max(self.differences)


def compare(got: Tensor, expected: Tensor) -> Comparison:
    """Compare logits `[rows, n, vocab]`. Both have the same shape and at least one position."""
    if got.shape != expected.shape or not got.numel():
        raise ValueError(f"logits {list(got.shape)} against {list(expected.shape)} cannot be compared")
    if got.equal(expected):
        scale = expected.abs().max().item()
        return Comparison((0.0,) * got.shape[1], flips=0, scale=scale, row=0, positions=got[..., 0].numel())
    wide = got.dtype if got.dtype == expected.dtype else expected.double().dtype
    gaps = (got.to(wide) - expected.to(wide)).abs().amax(dim=-1)
    worst, rows = gaps.max(dim=0)
    return Comparison(
        differences=tuple(worst.tolist()),
        flips=int((got.argmax(-1) != expected.argmax(-1)).sum()),
        scale=expected.abs().max().item(),
        row=int(rows[worst.argmax()]),
        positions=gaps.numel(),
    )

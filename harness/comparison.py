"""Two sets of logits, position by position."""

from __future__ import annotations

from collections.abc import Iterator
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


SLICE = 2**20
"""Logits that are compared at once, so that those of a large vocabulary are never copied as a whole."""


def in_slices(*logits: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Logits `[..., n, vocab]` of one shape, some positions at a time."""
    size = max(1, SLICE * logits[0].shape[-2] // max(1, logits[0].numel()))
    return zip(*(one.split(size, dim=-2) for one in logits), strict=True)


def largest(logits: Tensor) -> float:
    """The largest |logit|; NaN where one is."""
    low, high = logits.aminmax()
    return max(-low.item(), high.item()) if not (low.isnan() or high.isnan()) else float("nan")


def _gaps(got: Tensor, expected: Tensor) -> Tensor:
    """max |Δlogit| over the vocabulary, `[rows, n]`."""
    wide = got.dtype if got.dtype == expected.dtype else expected.double().dtype
    return (got.to(wide) - expected.to(wide)).abs().amax(dim=-1)


def compare(got: Tensor, expected: Tensor) -> Comparison:
    """Compare logits `[rows, n, vocab]`. Both have the same shape and at least one position."""
    import torch

    if got.shape != expected.shape or not got.numel():
        raise ValueError(f"logits {list(got.shape)} against {list(expected.shape)} cannot be compared")
    if got.equal(expected):
        scale = largest(expected)
        return Comparison((0.0,) * got.shape[1], flips=0, scale=scale, row=0, positions=got[..., 0].numel())
    gaps = torch.cat([_gaps(*parts) for parts in in_slices(got, expected)], dim=1)
    worst, rows = gaps.max(dim=0)
    return Comparison(
        differences=tuple(worst.tolist()),
        flips=int((got.argmax(-1) != expected.argmax(-1)).sum()),
        scale=largest(expected),
        row=int(rows[worst.argmax()]),
        positions=gaps.numel(),
    )

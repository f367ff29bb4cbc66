"""The error of a finding, position by position: the geometry of a small plot with a logarithmic scale.

Exact zeros have no logarithm and get a line of their own at the foot; NaN and infinity get one at the head.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .table import figure

LEFT, TOP, BOTTOM, ZERO, HEAD = 44, 28, 150, 168, 12
"""Where the scale begins, its two ends, and the lines of zero and of what is not finite, in units of the drawing."""
MOST_POINTS = 120
"""A longer curve is drawn by the largest of each few neighbours, so that no peak is lost."""


@dataclass(frozen=True)
class Plot:
    """A drawing: `segments` are lines, one for each stretch in which a cache grew, `bad` the dots above what was allowed,
    `bounds` the name, place, place of the label, and figure of what was allowed and of the floor, `landmarks` the place and
    length of those that the curve passes."""

    right: int
    grid: tuple[tuple[int, str], ...]
    bounds: tuple[tuple[str, int, int, str], ...]
    landmarks: tuple[tuple[int, int], ...]
    segments: tuple[str, ...]
    bad: str
    ticks: tuple[tuple[int, int], ...]
    peak: tuple[int, int, str]
    has_zero: bool
    has_unbounded: bool


def plot(
    curve: Sequence[tuple[int, float]], allowed: float | None, floor: float | None, landmarks: Sequence[int] = ()
) -> Plot | None:
    """Draw max |Δlogit| over the judged positions, in the order in which they were fed. None where there are none."""
    if not curve:
        return None
    few = math.ceil(len(curve) / MOST_POINTS)
    points = [max(curve[at : at + few], key=lambda point: _size(point[1])) for at in range(0, len(curve), few)]
    limits = [(name, value) for name, value in (("allowed", allowed), ("floor", floor)) if value is not None]
    sizes = [value for value in (*(value for _, value in limits), *(gap for _, gap in points)) if 0 < value < math.inf]
    low = math.floor(math.log10(min(sizes))) if sizes else 0
    high = max(low + 1, math.ceil(math.log10(max(sizes)))) if sizes else 1

    def height(value: float) -> int:
        if value == 0:
            return ZERO
        return round(TOP + (BOTTOM - TOP) * (high - math.log10(value)) / (high - low)) if value < math.inf else HEAD

    step = min(36.0, max(2.0, 400 / len(points)))
    places = [(round(LEFT + 12 + index * step), height(gap)) for index, (_, gap) in enumerate(points)]
    # A token index that does not grow means a rollback or another cache: no line may join the two.
    ends = [index for index, (one, two) in enumerate(pairwise(points), 1) if two[0] <= one[0]]
    pieces = [places[start:end] for start, end in pairwise((0, *ends, len(places)))]
    passed = {
        (round((places[at - 1][0] + places[at][0]) / 2), landmark)
        for at, ((one, _), (two, _)) in enumerate(pairwise(points), 1)
        for landmark in landmarks
        if one < landmark <= two
    }
    beyond = [allowed is not None and not gap <= allowed for _, gap in points]
    worst = max(range(len(points)), key=lambda index: _size(points[index][1]))
    every = math.ceil(30 / step)
    decades = range(low, high + 1, math.ceil((high - low) / 5)) if sizes else ()
    return Plot(
        right=max(places[-1][0] + 12, LEFT + 180),
        grid=tuple((height(10.0**power), f"1e{power:d}") for power in decades),
        bounds=tuple(_apart((name, height(value), figure(value)) for name, value in limits)),
        landmarks=tuple(sorted(passed)),
        segments=tuple(" ".join(f"{x},{y}" for x, y in (*piece, piece[-1])) for piece in pieces),
        bad="".join(f"M{x} {y}h0" for (x, y), bad in zip(places, beyond, strict=True) if bad),
        ticks=tuple((places[index][0], points[index][0]) for index in range(0, len(points), every)),
        peak=(*places[worst], figure(points[worst][1])),
        has_zero=any(value == 0 for _, value in (*limits, *points)),
        has_unbounded=any(y == HEAD for _, y in places),
    )


def _size(gap: float) -> float:
    """NaN is the worst of all; compared as it is, it would hide behind any number."""
    return math.inf if math.isnan(gap) else gap


def _apart(limits: Iterable[tuple[str, int, str]]) -> Iterator[tuple[str, int, int, str]]:
    """Room for each label: the lines of what is allowed and of the floor may lie closer than a line of text is high."""
    least = 0
    for name, y, text in sorted(limits, key=lambda limit: limit[1]):
        least = max(y, least + 12)
        yield name, y, least, text

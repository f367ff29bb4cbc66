"""The figures that symptoms are read from, and the small programs that tell where a fault begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..history import histories
from ..program import Append, Program
from ..runner import Divergence
from .outcome import Given

PROBES: Mapping[str, Program] = {
    "one": Program.parse("append a 5"),
    "several": Program.parse("append a 5 9 3 7"),
    "steps": Program.parse("append a 5; append a 9; append a 3"),
    "prompt and step": Program.parse("append a 5 9 3; append a 7"),
    "chunks": Program.parse("append a 5 9; append a 3 7 4"),
}
"""Small programs that tell where a fault begins. Each is run on the implementation."""


@dataclass(frozen=True)
class Figure:
    """One append: index of the op, tokens cached before it, and max |Δlogit| by row and new position. `broken` is how it
    ended, where it ended the program."""

    op: int
    past: int
    gaps: tuple[tuple[float, ...], ...]
    wrong: tuple[tuple[bool, ...], ...]
    broken: Divergence | None = None

    @property
    def bad(self) -> bool:
        return self.broken is not None or any(map(any, self.wrong))

    @property
    def first(self) -> int:
        """The first bad position of any row, counted in the cache."""
        places = [row.index(True) for row in self.wrong if any(row)]
        return self.past + min(places, default=0)


def figures(found: Given) -> list[Figure]:
    """The appends of a program that ran."""
    pasts = histories(found.program)
    made: list[Figure] = []
    for outcome, due, wrong in zip(found.outcomes, found.expected, found.wrong, strict=True):
        if not isinstance(outcome.op, Append) and outcome.divergence is None:
            continue
        pairs = zip(outcome.rows, due, strict=True)
        gaps = tuple(tuple((got.double() - one.double()).abs().amax(dim=-1).tolist()) for got, one in pairs)
        past = pasts[outcome.index].length(outcome.op.cache)
        made.append(Figure(outcome.index, past, gaps, wrong, outcome.divergence))
    return made

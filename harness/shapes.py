"""Reads the two shapes of a mask that does not fit: they tell the position that was passed and what was cached."""

from __future__ import annotations

import re
from dataclasses import dataclass

BROADCAST = re.compile(r"cannot broadcast \[(\d+), (\d+)\] to \[\d+, \d+, (\d+), (\d+)\]")


@dataclass(frozen=True)
class Broadcast:
    """A mask [queries, keys] against scores [rows, heads, tokens, present]."""

    position: int
    """The position that the call was given: keys less queries."""
    cached: int
    """The positions that were really cached: scores' keys less the call's tokens."""
    tokens: int

    def __str__(self) -> str:
        return f"position passed {self.position}, cached {self.cached}"


def read_broadcast(text: str) -> Broadcast | None:
    """The numbers behind an error text such as `cannot broadcast [13, 45] to [1, 9, 13, 13]`, or None."""
    found = BROADCAST.search(text)
    if not found:
        return None
    queries, keys, tokens, present = map(int, found.groups())
    return Broadcast(position=keys - queries, cached=present - tokens, tokens=tokens)

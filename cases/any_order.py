"""Any legal sequence of operations."""

from __future__ import annotations

from ..harness.clause import Clause
from ..harness.generate import Mix

EVERYTHING = (
    ("append", 8),
    ("fork", 2),
    ("crop", 2),
    ("reset", 1),
    ("select", 2),
    ("join", 1),
    ("restore", 1),
    ("drop", 1),
)

CLAUSES = (
    Clause(
        id="any.program",
        sentence="Any legal sequence of operations gives the reference's logits.",
        why="Some bugs need one particular order: a fork of a fork, a crop after a join, a restore after a reset.",
        mix=Mix(ops=EVERYTHING, rows=3, caches=4, steps=(3, 9), ragged=True),
    ),
)

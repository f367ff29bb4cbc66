"""Is it the reference's model at all? What is asked here reads no cache."""

from __future__ import annotations

from ..harness.clause import Clause
from ..harness.smoke import same_model, stands_in_place
from .reference import one_row

CLAUSES = (
    Clause(
        id="forward.positions",
        sentence="The logits of a call stand at the positions of their tokens, and are logits.",
        why="Shifted or turned round, or after a softmax, they are the adapter's mistake and not the cache's.",
        fixed=one_row,
        check=stands_in_place,
    ),
    Clause(
        id="forward.plain",
        sentence="A pass that reads no cache gives the reference's logits.",
        why="Where it does not, weights or their conversion differ, and the cache is not to blame.",
        fixed=one_row,
        check=same_model,
    ),
)

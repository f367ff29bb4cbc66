"""What precision is kept."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.clause import Clause
from ..harness.generate import Mix, feed, some_tokens
from ..harness.program import Program
from ..harness.scope import Scope


def long_pasts(scope: Scope) -> Iterable[Program]:
    for seed in (90, 91):
        length = min(scope.max_length or 60, 60)
        yield Program(feed("a", some_tokens(scope, length, seed=seed), max(length - 8, 1), 1, scope=scope))


CLAUSES = (
    Clause(
        id="numerics.dtype",
        sentence="The cache keeps what it is given, in the precision of the model.",
        why="A store in half precision is small, grows with length, and looks like rounding until it is measured.",
        fixed=long_pasts,
        mix=Mix(ops=(("append", 1),), rows=2, caches=1, steps=(2, 5), reach=60),
    ),
)

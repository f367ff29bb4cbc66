"""Several rows in one cache, several caches alive at once."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.clause import Clause
from ..harness.generate import Mix, feed, some_tokens
from ..harness.program import Append, Program
from ..harness.scope import Scope


def batches(scope: Scope) -> Iterable[Program]:
    for rows, sizes in ((2, (5, 1, 1)), (3, (1, 1, 4)), (3, (7, 2, 1, 1))):
        count = min(rows, scope.max_rows or rows)
        yield Program(tuple(Append("a", _rows(scope, (size,) * count, seed=at)) for at, size in enumerate(sizes)))


def ragged_batches(scope: Scope) -> Iterable[Program]:
    for first, *rest in (((5, 2), (1, 1), (1, 1)), ((1, 4, 6), (2, 1, 3), (1, 1, 1)), ((3, 3), (1, 4), (4, 1), (1, 1))):
        count = min(len(first), scope.max_rows or len(first))
        calls = [sizes[:count] for sizes in (first, *rest)]
        yield Program(tuple(Append("a", _rows(scope, sizes, seed=at)) for at, sizes in enumerate(calls)))


def _rows(scope: Scope, sizes: tuple[int, ...], seed: int) -> tuple[tuple[int, ...], ...]:
    return tuple(some_tokens(scope, size, seed=97 * seed + row) for row, size in enumerate(sizes))


def taking_turns(scope: Scope) -> Iterable[Program]:
    one, other = some_tokens(scope, 9, seed=11), some_tokens(scope, 8, seed=12)
    ops = [
        op for pair in zip(feed("a", one, 5, 1, scope=scope), feed("b", other, 4, 1, scope=scope), strict=False) for op in pair
    ]
    yield Program(tuple(ops))
    yield Program(
        (*feed("a", one, 5, scope=scope)[:1], *feed("b", other, 3, 1, scope=scope), *feed("a", one[5:], 2, scope=scope))
    )


CLAUSES = (
    Clause(
        id="batch.rows",
        sentence="Every row of a batch gives the logits that it gives alone.",
        why="What is right for row 0 may read another row's past; rows beyond the first are where it shows.",
        needs=("batch",),
        fixed=batches,
        mix=Mix(ops=(("append", 1),), rows=4, caches=2, steps=(1, 4)),
    ),
    Clause(
        id="batch.padding",
        sentence="Rows of unequal length give the logits that they give alone.",
        why="Padding that is seen, counted as a position or taken into a state spoils the shorter rows only.",
        needs=("batch", "ragged"),
        fixed=ragged_batches,
        mix=Mix(ops=(("append", 1),), rows=4, caches=2, steps=(1, 4), ragged=True),
    ),
    Clause(
        id="batch.interleaved",
        sentence="Caches that are alive at once do not see each other.",
        why="State that hangs on the model is right for one conversation and mixes up two.",
        needs=("several caches",),
        fixed=taking_turns,
        mix=Mix(ops=(("append", 6), ("drop", 1)), rows=1, caches=4, steps=(3, 8)),
    ),
)

"""Going on from one past in two ways, and going back."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.clause import Clause
from ..harness.generate import Mix, feed, some_tokens
from ..harness.program import Crop, Fork, Program
from ..harness.scope import Scope


def two_branches(scope: Scope) -> Iterable[Program]:
    past, one, other = (some_tokens(scope, size, seed=size) for size in (5, 4, 6))
    start = (*feed("a", past, scope=scope), Fork("a", "b"))
    yield Program((*start, *feed("b", other, 3, 1, scope=scope), *feed("a", one, 2, 1, scope=scope)))
    taken = [op for pair in zip(feed("a", one, 1, scope=scope), feed("b", other, 1, scope=scope), strict=False) for op in pair]
    yield Program((*start, *taken))
    again = (Fork("b", "c"), *feed("c", one, 2, scope=scope), *feed("b", past, 2, scope=scope))
    yield Program((*start, *feed("b", other, 3, scope=scope), *again, *feed("a", one, scope=scope)))


def rollbacks(scope: Scope) -> Iterable[Program]:
    past, new = some_tokens(scope, 8, seed=3), some_tokens(scope, 5, seed=4)
    floor = scope.crop_floor([8])
    for length in sorted({max(5, floor), max(7, floor), max(1, floor), floor}):
        if length <= 8:
            yield Program((*feed("a", past, scope=scope), Crop("a", length), *feed("a", new, 3, 1, scope=scope)))
            yield Program((*feed("a", past, scope=scope), Crop("a", length), *feed("a", new, 1, scope=scope)))


CLAUSES = (
    Clause(
        id="branch.fork",
        sentence="After a fork both caches go on as if the other were not there.",
        why="Branches that share a buffer or a counter overwrite each other, and only where both go on.",
        needs=("fork", "several caches"),
        fixed=two_branches,
        mix=Mix(ops=(("append", 3), ("fork", 2)), caches=4, steps=(2, 6)),
    ),
    Clause(
        id="branch.crop",
        sentence="After a rollback to n tokens a cache goes on as if the others had never been fed.",
        why="Speculative decoding and edited prompts roll back; one layer, a counter or a mask left behind goes unseen.",
        needs=("crop",),
        fixed=rollbacks,
        mix=Mix(ops=(("append", 2), ("crop", 2)), caches=1, steps=(1, 5)),
    ),
)

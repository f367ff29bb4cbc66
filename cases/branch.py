"""Going on from one past in two ways, and going back."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.clause import Clause
from ..harness.generate import Mix, feed, some_tokens
from ..harness.program import Append, Crop, Fork, Join, Op, Program, Restore, Select
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


def reordered(scope: Scope) -> Iterable[Program]:
    start = Append("a", tuple(some_tokens(scope, 5, seed=20 + row) for row in range(3)))
    for picks in ((2, 0, 1), (1, 1), (2,), (0, 2, 2, 1)):
        rows = tuple(some_tokens(scope, 2, seed=30 + row) for row in range(len(picks)))
        rest = (Append("a", rows), *(Append("a", tuple((row[0] + step,) for row in rows)) for step in range(2)))
        yield Program((start, Select("a", picks), *rest))


def joined(scope: Scope) -> Iterable[Program]:
    for length in (5, 5 if scope.ragged == "no" else 3):
        ops = (
            *feed("a", some_tokens(scope, 5, seed=41), scope=scope),
            *feed("b", some_tokens(scope, length, seed=42), scope=scope),
        )
        both = tuple(some_tokens(scope, 4, seed=43 + row) for row in range(2))
        rest = (Append("a", tuple(row[:2] for row in both)), *(Append("a", tuple((row[at],) for row in both)) for at in (2, 3)))
        yield Program((*ops, Join("a", "b"), *rest))


def restored(scope: Scope) -> Iterable[Program]:
    tokens = some_tokens(scope, 12, seed=50)
    for first, sizes in ((5, (1,)), (7, (3, 1)), (1, (2, 1))):
        start, rest = feed("a", tokens[:first], scope=scope), feed("a", tokens[first:], *sizes, scope=scope)
        yield Program((*start, Restore("a"), *rest))
    if scope.ragged != "no" and scope.max_rows != 1:
        rows = tuple(some_tokens(scope, size, seed=55 + size) for size in (2, 5))
        both = tuple(some_tokens(scope, 1, seed=58 + row) for row in range(2))
        yield Program((Append("a", rows), Restore("a"), Append("a", both), Append("a", both)))


def verified_drafts(scope: Scope) -> Iterable[Program]:
    """Speculative decoding: k drafts in one call, a rollback to what was accepted, the next drafts."""
    tokens = some_tokens(scope, 30, seed=60)
    for drafts, accepted in ((4, 2), (5, 0), (3, 3)):
        ops: list[Op] = list(feed("a", tokens[:6], scope=scope))
        length, at = 6, 6
        for _ in range(3):
            ops += feed("a", tokens[at : at + drafts], scope=scope)
            keep = max(length + accepted, scope.crop_floor([length + drafts]))
            ops.append(Crop("a", min(keep, length + drafts)))
            length, at = min(keep, length + drafts), at + drafts
            ops += feed("a", tokens[at : at + 1], scope=scope)
            length, at = length + 1, at + 1
        yield Program(tuple(ops))


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
    Clause(
        id="branch.speculative",
        sentence="Drafts that were rolled back leave no trace.",
        why="Speculative decoding appends k drafts, keeps what was accepted and goes on, hundreds of times.",
        needs=("crop", "several tokens"),
        fixed=verified_drafts,
        mix=Mix(ops=(("append", 1), ("crop", 1)), rows=1, caches=1, steps=(4, 9)),
    ),
    Clause(
        id="branch.select",
        sentence="After rows are reordered, repeated or dropped, each goes on from its own past.",
        why="Beam search reorders rows at every step; keys without values, or one layer, go with the wrong beam.",
        needs=("select", "batch"),
        fixed=reordered,
        mix=Mix(ops=(("append", 2), ("select", 2)), rows=4, caches=1, steps=(1, 4)),
    ),
    Clause(
        id="branch.join",
        sentence="Rows that join a cache go on from their own past, and so do those that were there.",
        why="Continuous batching joins a new request to running ones of other lengths.",
        needs=("join", "batch", "several caches"),
        fixed=joined,
        mix=Mix(ops=(("append", 3), ("join", 2)), rows=2, caches=3, steps=(2, 6), ragged=True),
    ),
    Clause(
        id="branch.restore",
        sentence="A cache that was dumped and loaded goes on as if nothing had been.",
        why="A prompt cache on disk that keeps its capacity, or forgets its length, is wrong from the next token on.",
        needs=("restore",),
        fixed=restored,
        mix=Mix(ops=(("append", 2), ("restore", 2)), rows=2, caches=2, steps=(1, 4), ragged=True),
    ),
)

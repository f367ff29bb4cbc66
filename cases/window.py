"""Lengths at which an implementation says that its behaviour changes: window, block, buffer."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.clause import Clause
from ..harness.generate import Mix, feed, some_tokens
from ..harness.program import Crop, Program
from ..harness.scope import Scope


def around_landmarks(scope: Scope) -> Iterable[Program]:
    for mark in within(scope):
        for length in (mark - 1, mark, mark + 1, 2 * mark + 1):
            room = (scope.max_length or length + 7) - length
            tokens = some_tokens(scope, length + min(room, 7), seed=length)
            yield Program(feed("a", tokens, max(length, 1), 1, 1, 2, 3, scope=scope))
        tokens = some_tokens(scope, min(2 * mark + 5, scope.max_length or 2 * mark + 5), seed=mark)
        yield Program(feed("a", tokens, 3, 4, 5, scope=scope))
        yield Program(feed("a", tokens, 1, scope=scope))


def rollbacks_past_landmarks(scope: Scope) -> Iterable[Program]:
    for mark in within(scope):
        length = min(2 * mark + 3, (scope.max_length or 10**9) - 6)
        tokens = some_tokens(scope, length + 6, seed=mark)
        floor = scope.crop_floor([length])
        for kept in sorted({max(floor, length - back) for back in (1, 2, mark, length - 1)}):
            rest = feed("a", tokens[length:], 3, 1, scope=scope)
            yield Program((*feed("a", tokens[:length], scope=scope), Crop("a", kept), *rest))


def within(scope: Scope) -> list[int]:
    """Landmarks that programs reach."""
    most = (scope.max_length or 1024) // 2 - 8
    return [mark for mark in scope.landmarks if 1 <= mark <= most]


CLAUSES = (
    Clause(
        id="window.eviction",
        sentence="Around each landmark, and past twice its length, logits are those of the reference.",
        why="One key too many or too few at a window's edge, or a ring read in the wrong order, shows nowhere else.",
        needs=("landmark",),
        fixed=around_landmarks,
        mix=Mix(ops=(("append", 1),), rows=2, caches=1, steps=(1, 5)),
    ),
    Clause(
        id="window.crop_after_wrap",
        sentence="A rollback behind a landmark goes as far back as the implementation says, and is right.",
        why="A ring that has wrapped and is cut by its logical length keeps slots of tokens that are gone.",
        needs=("landmark", "crop"),
        fixed=rollbacks_past_landmarks,
        mix=Mix(ops=(("append", 2), ("crop", 2)), rows=1, caches=1, steps=(2, 6)),
    ),
)

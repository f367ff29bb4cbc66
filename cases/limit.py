"""The last position, the first beyond it, and calls that must be refused."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.clause import Clause
from ..harness.generate import feed, some_tokens
from ..harness.program import Append, Program
from ..harness.scope import Scope


def at_the_limit(scope: Scope) -> Iterable[Program]:
    limit = scope.max_length or 0
    tokens = some_tokens(scope, limit + 3, seed=5)
    one = Append("a", (tokens[-1:],), refused=True)
    yield Program((*feed("a", tokens[:limit], limit - 2, 1, scope=scope), one))
    if scope.max_append is None or scope.max_append >= 3:
        several = Append("a", (tokens[limit - 2 : limit + 1],), refused=True)
        yield Program((*feed("a", tokens[: limit - 2], limit - 2, scope=scope), several))
    if scope.max_append is None or scope.max_append > limit:
        yield Program((Append("a", (tokens[: limit + 1],), refused=True),))


def on_after_the_limit(scope: Scope) -> Iterable[Program]:
    limit = scope.max_length or 0
    tokens = some_tokens(scope, limit + 3, seed=6)
    past = feed("a", tokens[: limit - 3], limit - 3, scope=scope)
    rest = feed("a", tokens[limit - 3 : limit], 2, 1, scope=scope)
    if scope.max_append is None or scope.max_append >= 4:
        yield Program((*past, Append("a", (tokens[-4:],), refused=True), *rest))
    yield Program((*past, *rest, Append("a", (tokens[-1:],), refused=True), Append("a", (tokens[-1:],), refused=True)))


def unusable_tokens(scope: Scope) -> Iterable[Program]:
    tokens = some_tokens(scope, 10, seed=7)
    past, rest = feed("a", tokens[:5], scope=scope), feed("a", tokens[5:], 2, 1, scope=scope)
    for bad in ((scope.vocab_size,), (scope.vocab_size + 17,), ()):
        yield Program((*past, Append("a", (bad,), refused=True), *rest))


CLAUSES = (
    Clause(
        id="limit.refuses",
        sentence="The last position is served; one more is refused.",
        why="Past its limit a model that wraps or clamps positions goes on talking, and nobody is told.",
        needs=("limit",),
        fixed=at_the_limit,
    ),
    Clause(
        id="limit.intact",
        sentence="A call that is refused for its length leaves the cache as it was.",
        why="Bookkeeping that runs before the step that fails shifts everything after the error.",
        needs=("limit",),
        fixed=on_after_the_limit,
    ),
    Clause(
        id="limit.tokens",
        sentence="A token outside the vocabulary, or no token at all, is refused and leaves the cache as it was.",
        why="A caller catches the error and goes on; a cache that kept half a call goes on wrongly.",
        fixed=unusable_tokens,
    ),
)

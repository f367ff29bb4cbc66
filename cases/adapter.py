"""Before anything else: is the adapter between kvconform and the implementation right?"""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.clause import Clause
from ..harness.generate import feed, some_tokens
from ..harness.program import Append, Crop, Drop, Fork, Op, Program, Reset, Select
from ..harness.scope import Scope, unsupported
from ..harness.smoke import answers, tells_its_length


def two_tokens(scope: Scope) -> Iterable[Program]:
    """Two tokens on a fresh cache, one more, and the same again after the cache was dropped."""
    tokens = some_tokens(scope, min(3, scope.max_length or 3), seed=3)
    first, again = (feed(name, tokens, 2, 1, scope=scope) for name in "ab")
    yield Program((*first, Drop("a"), *again))


def growing(scope: Scope) -> Iterable[Program]:
    """A cache that grows, then whatever else changes or keeps a length."""
    tokens = some_tokens(scope, min(6, scope.max_length or 6), seed=4)
    ops: list[Op] = list(feed("a", tokens, 2, 1, 2, scope=scope))
    able = scope.capabilities
    if "crop" in able:
        ops.append(Crop("a", 2))
    if "fork" in able and scope.max_caches != 1:
        ops += [Fork("a", "b"), Append("b", (some_tokens(scope, 1, seed=5),))]
    if "select" in able:
        ops.append(Select("a", (0,)))
    if "reset" in able:
        ops += [Reset("a"), Append("a", (some_tokens(scope, 1, seed=6),))]
    program = Program(tuple(ops))
    yield program if unsupported(program, scope) is None else Program(feed("a", tokens, 2, 1, 2, scope=scope))


CLAUSES = (
    Clause(
        id="adapter.answers",
        sentence="The implementation answers: new tokens give logits of the right shape, dtype and device.",
        why="Where it does not, nothing can be said of its cache.",
        fixed=two_tokens,
        check=answers,
    ),
    Clause(
        id="adapter.length",
        sentence="The length that it tells is the number of tokens that a cache holds.",
        why="Who builds on a wrong length crops and pads in the wrong place.",
        needs=("length",),
        fixed=growing,
        check=tells_its_length,
    ),
)

"""Before anything else: is the adapter between kvconform and the implementation right?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..harness.clause import Clause
from ..harness.generate import some_tokens
from ..harness.program import Append, Drop, Program
from ..harness.scope import Scope
from ..harness.smoke import answers, tells_its_length


def two_tokens(scope: Scope) -> Iterable[Program]:
    """Two tokens in one call on a fresh cache, where it takes two, and again after the cache was dropped; one more."""
    first = first_call(scope)
    yield Program((first, Drop("a"), replace(first, cache="b"), Append("b", (some_tokens(scope, 1, seed=4),))))


def one_call(scope: Scope) -> Iterable[Program]:
    """A prompt that no program before has: what comes of one that comes again is the cache's own."""
    yield Program((first_call(scope, seed=5),))


def first_call(scope: Scope, seed: int = 3) -> Append:
    return Append("a", (some_tokens(scope, min(2, scope.max_append or 2), seed),))


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
        sentence="After a first call the length that it tells is the number of its tokens.",
        why="Who builds on a wrong length crops and pads in the wrong place.",
        needs=("length",),
        fixed=one_call,
        check=tells_its_length,
    ),
)

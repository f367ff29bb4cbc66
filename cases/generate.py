"""An implementation's own loop of generating text: each token that it chooses is the best behind those before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..harness.clause import Clause
from ..harness.decoding import NEW, chooses, searches
from ..harness.generate import some_tokens
from ..harness.program import Append, Program, Row
from ..harness.scope import Scope


def prompts(scope: Scope, *sizes: int) -> Program:
    """Prompts of so many tokens, or of as many as leave room behind them."""
    most = max(1, (scope.max_length or max(sizes) + NEW) - NEW)
    return Program((Append("a", tuple(some_tokens(scope, min(size, most), seed=70 + size) for size in sizes)),))


def one_prompt(scope: Scope) -> Iterable[Program]:
    for size in (1, 3, 6, 11, *past_landmark(scope)):
        yield prompts(scope, size)


def past_landmark(scope: Scope) -> Sequence[int]:
    """A prompt behind which the next token passes the first landmark."""
    return [mark for mark in scope.landmarks[:1] if 1 < mark <= (scope.max_length or 64) - NEW]


def unequal_prompts(scope: Scope) -> Iterable[Program]:
    yield prompts(scope, 6, 3)
    yield prompts(scope, 2, 9, 5)


def prompts_in_chunks(scope: Scope) -> Iterable[Program]:
    """Whole chunks of three and four tokens, and a rest."""
    for size in (5, 10, 12, 14):
        yield prompts(scope, size)


def repeating_prompts(scope: Scope) -> Iterable[Program]:
    """Drafts are found, and some of them are wrong: what followed before does not follow now."""
    for size, times in ((4, 3), (2, 5), (8, 2)):
        words = some_tokens(scope, size, seed=80 + size)
        most = max(1, (scope.max_length or 64) - NEW)
        yield _one((*words * times, *words[:1])[-most:])


def _one(row: Row) -> Program:
    return Program((Append("a", (row,)),))


def searched(scope: Scope) -> Iterable[Program]:
    yield prompts(scope, 5)
    yield prompts(scope, 9)


CLAUSES = (
    Clause(
        id="generate.greedy",
        sentence="Greedy text is what full passes choose, token by token.",
        why="A loop that feeds a token twice, or drops one, does so for every cache: runs with and without one agree.",
        needs=("generate.greedy",),
        fixed=one_prompt,
        check=chooses("greedy"),
    ),
    Clause(
        id="generate.padded",
        sentence="Prompts of unequal length in one batch give each the text that it gives alone.",
        why="Positions and masks of padded rows are the loop's to make, and go on from the prompt at every step.",
        needs=("generate.padded",),
        fixed=unequal_prompts,
        check=chooses("padded"),
    ),
    Clause(
        id="generate.static",
        sentence="A cache of fixed size gives the text that full passes choose.",
        why="Slots that are not filled yet are hidden by a mask that the loop makes anew at every step.",
        needs=("generate.static",),
        fixed=one_prompt,
        check=chooses("static"),
    ),
    Clause(
        id="generate.chunked",
        sentence="A prompt that is fed in chunks gives the text that it gives at once.",
        why="Each chunk needs the positions and the cache of those before it, and the last is often a short one.",
        needs=("generate.chunked",),
        fixed=prompts_in_chunks,
        check=chooses("chunked"),
    ),
    Clause(
        id="generate.lookup",
        sentence="Drafts from the prompt change how many calls are made, and no token.",
        why="A rejected draft that stays in the cache is seen by all that follows.",
        needs=("generate.lookup",),
        fixed=repeating_prompts,
        check=chooses("lookup"),
    ),
    Clause(
        id="generate.beams",
        sentence="Beams are those of a search over full passes.",
        why="Each step gives the rows of the cache to other beams; one that keeps another's past still writes good text.",
        needs=("generate.beams",),
        fixed=searched,
        check=searches("beams"),
    ),
)

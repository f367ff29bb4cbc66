"""One token after the other behind a prompt."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.checks import does_not_drift, ready_to_count, reuses_work
from ..harness.clause import Clause
from ..harness.generate import Mix, feed, some_tokens
from ..harness.program import Program
from ..harness.scope import Scope
from ..harness.trial import Judged


def prompts_and_steps(scope: Scope) -> Iterable[Program]:
    for prompt, steps in ((5, 6), (1, 8), (13, 20)):
        tokens = some_tokens(scope, min(prompt + steps, scope.max_length or 64), seed=prompt)
        yield Program(feed("a", tokens, prompt, 1, scope=scope))


def long_runs(scope: Scope) -> Iterable[Program]:
    length = min(scope.max_length or 96, 96)
    yield Program(feed("a", some_tokens(scope, length, seed=70), 4, 1, scope=scope))


def short_and_long(scope: Scope) -> Iterable[Program]:
    length = min(scope.max_length or 64, 64)
    yield Program(feed("a", some_tokens(scope, length, seed=71), 1, 1, length - 4, 1, 1, scope=scope))


CLAUSES = (
    Clause(
        id="decode.incremental",
        sentence="Every step behind a prompt gives the logits of a whole pass over all tokens so far.",
        why="This is what a cache is for. A wrong position, order or past shows here first.",
        fixed=prompts_and_steps,
        mix=Mix(ops=(("append", 1),), rows=2, caches=2, steps=(2, 6), single=True),
        judged=Judged.WARM,
    ),
    Clause(
        id="decode.no_drift",
        sentence="The error does not grow with the number of steps.",
        why="An error that feeds on itself is far below any bound at first, and above it when nobody looks.",
        fixed=long_runs,
        check=does_not_drift,
    ),
    Clause(
        id="decode.reuses_work",
        sentence="One more token on a long cache costs what it costs on a short one, attention aside.",
        why="A cache that computes everything again gives right logits and is no cache.",
        fixed=short_and_long,
        check=reuses_work,
        ready=ready_to_count,
    ),
)

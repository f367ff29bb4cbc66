"""One token after the other behind a prompt."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.clause import Clause
from ..harness.generate import Mix, feed, some_tokens
from ..harness.program import Program
from ..harness.scope import Scope
from ..harness.trial import Judged


def prompts_and_steps(scope: Scope) -> Iterable[Program]:
    for prompt, steps in ((5, 6), (1, 8), (13, 20)):
        tokens = some_tokens(scope, min(prompt + steps, scope.max_length or 64), seed=prompt)
        yield Program(feed("a", tokens, prompt, 1, scope=scope))


CLAUSES = (
    Clause(
        id="decode.incremental",
        sentence="Every step behind a prompt gives the logits of a whole pass over all tokens so far.",
        why="This is what a cache is for. A wrong position, order or past shows here first.",
        fixed=prompts_and_steps,
        mix=Mix(ops=(("append", 1),), rows=2, caches=2, steps=(2, 6), single=True),
        judged=Judged.WARM,
    ),
)

"""The first call on an empty cache, and prompts that arrive in parts."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.clause import Clause
from ..harness.generate import Mix, feed, some_tokens
from ..harness.program import Append, Program
from ..harness.scope import Scope
from ..harness.trial import Judged


def whole_prompts(scope: Scope) -> Iterable[Program]:
    most = min(scope.max_length or 64, scope.max_append or 64)
    for length in (1, 2, 5, 13, 32):
        if length <= most:
            yield Program((Append("a", (some_tokens(scope, length, seed=length),)),))


def prompts_in_parts(scope: Scope) -> Iterable[Program]:
    for sizes in ((3, 2), (8, 5), (4, 4, 4, 1), (1, 4, 2)):
        yield Program(feed("a", some_tokens(scope, sum(sizes), seed=len(sizes)), *sizes, scope=scope))


CLAUSES = (
    Clause(
        id="prefill.identity",
        sentence="The first call on an empty cache gives the reference's logits.",
        why="A prefill reads nothing back, so it may not differ; with the same operands, not by one bit.",
        fixed=whole_prompts,
        mix=Mix(ops=(("append", 1),), rows=3, caches=3, steps=(0, 2), reach=32),
        judged=Judged.FRESH,
    ),
    Clause(
        id="prefill.chunked",
        sentence="A prompt that is fed in chunks gives the logits of the whole prompt.",
        why="A call of several tokens on a warm cache needs a mask that is neither square nor absent.",
        needs=("several tokens",),
        fixed=prompts_in_parts,
        mix=Mix(ops=(("append", 1),), rows=2, caches=2, steps=(1, 4)),
    ),
)

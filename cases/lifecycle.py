"""From one prompt to the next: reset, reuse, and what a call must leave alone."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.checks import keeps_inputs, keeps_logits, repeats, replays
from ..harness.clause import Clause
from ..harness.generate import Mix, feed, some_tokens
from ..harness.program import Append, Crop, Drop, Fork, Op, Program, Reset, Restore, Select
from ..harness.scope import Scope, unsupported
from ..harness.smoke import tells_its_length
from .prefill import prompts_in_parts

APPENDS = Mix(ops=(("append", 1),), rows=2, caches=2, steps=(1, 4))


def second_prompts(scope: Scope) -> Iterable[Program]:
    old, new = some_tokens(scope, 8, seed=1), some_tokens(scope, 9, seed=2)
    yield Program((*feed("a", old, scope=scope), Reset("a"), *feed("a", new, 5, 1, scope=scope)))
    yield Program((*feed("a", old, 6, 1, scope=scope), Reset("a"), *feed("a", new[:4], 1, scope=scope)))
    yield Program((*feed("a", old, scope=scope), Reset("a"), Reset("a"), *feed("a", old, 6, 1, scope=scope)))


def same_prompts(scope: Scope) -> Iterable[Program]:
    prompt, other = some_tokens(scope, 9, seed=80), some_tokens(scope, 6, seed=81)
    first = feed("a", prompt, scope=scope)
    yield Program((*first, Drop("a"), *feed("b", (*prompt, *other[:3]), 9, 1, scope=scope)))
    yield Program((*first, Drop("a"), *feed("b", (*prompt[:5], *other), 9, 1, scope=scope)))
    yield Program((*first, Drop("a"), *feed("b", (*prompt[:4], *other[:2]), 4, 1, scope=scope)))
    yield Program((*first, Drop("a"), *feed("b", (*prompt, *other), 13, 1, scope=scope)))


def ops_to_repeat(scope: Scope) -> Iterable[Program]:
    tokens = some_tokens(scope, 14, seed=85)
    start, rest = feed("a", tokens[:5], scope=scope), feed("a", tokens[5:10], 3, 1, scope=scope)
    yield Program((*start, Fork("a", "b"), *feed("b", tokens[10:], 2, 1, scope=scope), *rest))
    yield Program((*start, Reset("a"), *rest))
    yield Program((*start, Restore("a"), *rest))


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
        id="lifecycle.reset",
        sentence="A cache that was reset is as good as new.",
        why="A counter that is not cleared, or a past that stays, poisons the second conversation and not the first.",
        needs=("reset",),
        fixed=second_prompts,
        mix=Mix(ops=(("append", 2), ("reset", 2)), rows=2, caches=2, steps=(1, 4)),
    ),
    Clause(
        id="lifecycle.prefix_reuse",
        sentence="A prompt that begins like an earlier one, or is the same, gives its own logits.",
        why="Prefix caches reuse what fits; an exact hit has nothing left to feed, and goes wrong by one token.",
        fixed=same_prompts,
        mix=Mix(ops=(("append", 2), ("drop", 2)), rows=1, caches=3, steps=(2, 6)),
    ),
    Clause(
        id="lifecycle.replay",
        sentence="After a fork, a reset or a restore a cache gives what a fresh one gives that repeats its calls.",
        why="The calls are the same, so that not even rounding may differ: this holds on any engine, however noisy.",
        fixed=ops_to_repeat,
        mix=Mix(ops=(("append", 1), ("fork", 2), ("reset", 2), ("restore", 2)), rows=2, caches=3, steps=(2, 5)),
        check=replays,
    ),
    Clause(
        id="lifecycle.length",
        sentence="After every operation the length that it tells is the number of tokens that the cache holds.",
        why="Who builds on a wrong length crops, pads and masks in the wrong place.",
        needs=("length",),
        fixed=growing,
        check=tells_its_length,
    ),
    Clause(
        id="lifecycle.deterministic",
        sentence="The same program gives the same logits again.",
        why="What differs from run to run can be judged by no tolerance; on the CPU the same bits are due.",
        fixed=prompts_in_parts,
        mix=APPENDS,
        check=repeats,
    ),
    Clause(
        id="lifecycle.no_aliasing",
        sentence="Logits that were returned are not changed by later calls.",
        why="A view of a buffer that is written again turns logits that a sampler kept into those of another step.",
        fixed=prompts_in_parts,
        mix=APPENDS,
        check=keeps_logits,
    ),
    Clause(
        id="lifecycle.inputs_untouched",
        sentence="Tokens that are handed in are not changed.",
        why="A caller feeds the same tensor again, or keeps it as the record of the conversation.",
        fixed=prompts_in_parts,
        mix=APPENDS,
        check=keeps_inputs,
    ),
)

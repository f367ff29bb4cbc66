"""Ways in which a cache is used, as the failure table shows them: an opening, then steps that follow a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

from .generate import feed
from .implementation import Implementation
from .oracle import Oracle
from .program import Append, Crop, Drop, Fork, Join, Op, Program, Reset, Restore, Row, Select
from .runner import apply_ops
from .scope import Scope
from .target import Sample

GENERATED = 48
"""Tokens of a free greedy run."""
CHUNK = 4


@dataclass(frozen=True)
class Scenario:
    """`opening` ends where the cache that is watched holds the prompt; `start` is its first op that counts. While that
    cache goes on, `beside` is fed other tokens."""

    name: str
    opening: tuple[Op, ...]
    watched: str = "a"
    start: int = 0
    beside: str | None = None
    rows: int = 1
    """Rows of the watched cache; the first holds the prompt, and all are fed the same."""

    def steps(self, tokens: Sequence[int]) -> tuple[Op, ...]:
        """One op a token, with one for the cache beside it."""
        ops: list[Op] = []
        for token in tokens:
            ops.append(Append(self.watched, ((token,),) * self.rows))
            if self.beside:
                ops.append(Append(self.beside, ((token + 1,),)))
        return tuple(ops)

    def program(self, continuation: Sequence[int]) -> Program:
        """The opening and teacher-forced steps behind it."""
        return Program((*self.opening, *self.steps(continuation)))

    def counts(self, index: int, op: Op) -> bool:
        """Is the op at this index one whose logits the table shows?"""
        return index >= self.start and op.cache == self.watched


def scenario(name: str, sample: Sample, scope: Scope) -> Scenario:
    """The scenario of this name for an implementation. `limit` has no prompt of its own."""
    prompt = feed("a", sample.prompt, scope=scope)
    if name == "chunks":
        return Scenario(name, feed("a", sample.prompt, CHUNK, scope=scope))
    if name == "reset":
        room = (scope.max_length or 1024) - len(sample.prompt) - GENERATED
        old = feed("a", sample.earlier[: max(room, 1)], scope=scope)
        return Scenario(name, (*old, Reset("a"), *prompt), start=len(old))
    if name == "branch":
        return Scenario(name, (*prompt, Fork("a", "b")), watched="b", beside="a")
    if name == "crop":
        draft = feed("a", sample.earlier[:CHUNK], scope=scope)
        return Scenario(name, (*prompt, *draft, Crop("a", len(sample.prompt))), start=len(prompt) + len(draft))
    if name == "refused":
        return Scenario(name, (*prompt, Append("a", ((scope.vocab_size,),), refused=True)))
    if name == "again":
        return Scenario(name, (*prompt, Drop("a"), *feed("b", sample.prompt, scope=scope)), watched="b")
    if name == "turns":
        other = feed("b", sample.earlier[: len(sample.prompt)], scope=scope)
        return Scenario(name, (*prompt, *other), beside="b")
    if name == "restore":
        return Scenario(name, (*prompt, Restore("a")))
    if name == "restored_reset":
        old = feed("a", sample.earlier[:3], scope=scope)
        return Scenario(name, (*old, Restore("a"), Reset("a"), *prompt), start=len(old))
    if name in ("ragged", "reorder", "join", "second_row", "restored_ragged"):
        return _rows(name, sample, scope)
    if name == "limit":
        limit = scope.max_length or 0
        text = (sample.prompt * limit)[: limit - 1]
        last = Append("a", (sample.continuation[:1],))
        return Scenario(name, (*feed("a", text, scope=scope), last, Append("a", (sample.prompt[:1],), refused=True)))
    if name != "decode":
        raise ValueError(f"no scenario {name!r}")
    return Scenario(name, prompt)


def _rows(name: str, sample: Sample, scope: Scope) -> Scenario:
    """Two rows, of which the one that is watched comes to hold the prompt."""
    prompt, other = sample.prompt, sample.earlier[: len(sample.prompt)]
    if name == "ragged":
        rows = (Append("a", (prompt[:3], other)), Append("a", (prompt[3:], other[:2])))
        return Scenario(name, rows, rows=2)
    if name == "restored_ragged":
        rows = (Append("a", (prompt[:3], other)), Append("a", (prompt[3:], other[:2])), Restore("a"))
        return Scenario(name, rows, rows=2)
    if name == "second_row":
        return Scenario(name, (Append("a", (other, prompt)),), rows=2)
    if name == "reorder":
        return Scenario(name, (Append("a", (other, prompt)), Select("a", (1, 0))), rows=2)
    joining = feed("b", prompt if scope.ragged == "no" else other[:5], scope=scope)
    return Scenario(name, (*feed("a", prompt, scope=scope), *joining, Join("a", "b")), rows=2)


def free_run(implementation: Implementation, chosen: Scenario, count: int = GENERATED) -> Row:
    """Greedy tokens of the implementation behind a scenario's opening: each step is fed what the last one chose.

    Ends early where the implementation raises.
    """
    tokens: list[int] = []
    ops: Iterable[Op] = chosen.opening
    with apply_ops(implementation) as apply:
        try:
            last: int | None = None
            for op in ops:
                logits = apply(op)
                last = _greedy(logits) if logits is not None and op.cache in ("a", chosen.watched) else last
            while last is not None and len(tokens) < count:
                tokens.append(last)
                for op in chosen.steps([last]) if len(tokens) < count else ():
                    logits = apply(op)
                    if logits is not None and op.cache == chosen.watched:
                        last = _greedy(logits)
        except implementation.refusals:
            return tuple(tokens)
    return tuple(tokens)


def _greedy(logits: Tensor) -> int:
    """The most likely next token of the first row. After a fork the original's last logits are the branch's too."""
    return int(logits[0, -1].argmax())


def free_reference(oracle: Oracle, prompt: Row, count: int = GENERATED) -> Row:
    """Greedy tokens of the reference: a whole pass for every one."""
    tokens = prompt
    for _ in range(count):
        tokens = (*tokens, int(oracle.call((tokens,))[0, -1].argmax()))
    return tokens[len(prompt) :]

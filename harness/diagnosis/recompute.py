"""An engine without a cache: every append passes its whole history through the reference."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..implementation import Implementation
from ..oracle import Oracle
from ..program import Row

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..trial import Subject


@dataclass
class Rows:
    """A cache that is nothing but tokens, row by row. `calls` counts appends since it was empty; `note` is for faults."""

    held: list[Row] = field(default_factory=list[Row])
    calls: int = 0
    note: dict[str, Any] = field(default_factory=dict[str, Any])


class Recompute(Implementation):
    """Every append passes its whole history through the reference. Each bug below is a short override."""

    sentence: ClassVar[str] = ""
    scenario: ClassVar[str] = "decode"

    def __init__(self, subject: Subject) -> None:
        self.oracle: Oracle = subject.oracle
        self.vocab_size = subject.implementation.vocab_size
        self.max_length = subject.implementation.max_length
        self.ragged = subject.implementation.ragged
        self.refusals = subject.implementation.refusals
        self._dtype = subject.implementation.dtype

    @property
    def dtype(self) -> torch.dtype:
        return self._dtype

    def new_cache(self, rows: int = 1) -> Rows:
        return Rows([()] * rows)

    def append(self, cache: Rows, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        import torch

        count = tokens.shape[1]
        sizes = [count] * len(tokens) if lengths is None else [int(length) for length in lengths]
        real = [row[-size:] if self.ragged == "left" else row[:size] for row, size in zip(tokens.tolist(), sizes, strict=True)]
        new = [tuple(row) for row in real]
        if not count or any(token >= self.vocab_size for row in new for token in row):
            raise ValueError("an append needs tokens of the vocabulary")
        if len(new) != len(cache.held):
            cache.held = [()] * len(new)
        if (
            self.max_length is not None
            and max(len(old) + len(row) for old, row in zip(cache.held, new, strict=True)) > self.max_length
        ):
            raise ValueError("past the limit")
        found: list[Tensor] = []
        for index, row in enumerate(new):
            logits = self.logits(cache, index, row).to(self._dtype)
            missing = logits.new_zeros(count - len(row), logits.shape[1])
            found.append(torch.cat([missing, logits] if self.ragged == "left" else [logits, missing]))
        self.keep(cache, new)
        cache.calls += 1
        return torch.stack(found)

    def logits(self, cache: Rows, index: int, new: Row) -> Tensor:
        """Logits `[n, vocab]` of a row's new tokens."""
        return self.oracle.row(self.past(cache, index, new) + new, len(new))

    def past(self, cache: Rows, index: int, new: Row) -> Row:
        """The tokens that a row's new ones see before them."""
        return cache.held[index]

    def keep(self, cache: Rows, new: list[Row]) -> None:
        cache.held = [old + row for old, row in zip(cache.held, new, strict=True)]

    def fork(self, cache: Rows) -> Rows:
        return Rows(list(cache.held), cache.calls, dict(cache.note))

    def crop(self, cache: Rows, length: int) -> None:
        cache.held = [row[:length] for row in cache.held]

    def reset(self, cache: Rows) -> None:
        cache.held, cache.calls = [()] * len(cache.held), 0

    def length(self, cache: Rows) -> list[int]:
        return [len(row) for row in cache.held]

    def select(self, cache: Rows, rows: Sequence[int]) -> None:
        cache.held = [cache.held[row] for row in rows]

    def join(self, cache: Rows, other: Rows) -> None:
        cache.held = cache.held + other.held

    def dump(self, cache: Rows) -> bytes:
        return json.dumps([cache.held, cache.calls]).encode()

    def load(self, data: bytes) -> Rows:
        held, calls = json.loads(data)
        return Rows([tuple(row) for row in held], calls)

"""The correct implementations and the controls, which look wrong and are right."""

from __future__ import annotations

import torch
from torch import Tensor

from .builtin import BuiltIn
from .catalogue import control, correct
from .policy import Concat
from .stores import Paged, Preallocated, Static

correct()(Concat)
correct()(Preallocated)
correct()(Static)
correct()(Paged)


@correct(scenario="chunks")
class Chunked(BuiltIn):
    """A long call is fed in chunks of four tokens."""

    splits = True
    chunk = 4

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        cache.admit(tokens)
        return torch.cat([super(Chunked, self).append(cache, part) for part in tokens.split(self.chunk, dim=1)], dim=1)


@correct(scenario="branch")
class Forked(BuiltIn):
    """Every call goes to a clone of the cache, which then takes the cache's place."""

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        clone = cache.fork()
        logits = super().append(clone, tokens)
        cache.__dict__ = clone.__dict__
        return logits


@control()
class CatOrder(Concat):
    """A new block is put before the old one, for keys and values; visibility goes by the stored positions."""

    def begin(self, rows: int) -> None:
        super().begin(rows)
        self.held = self.positions(0)

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer] = torch.cat([key, self.keys[layer]], dim=2)
        self.values[layer] = torch.cat([value, self.values[layer]], dim=2)
        return self.keys[layer], self.values[layer]

    def visible(self, count: int) -> Tensor:
        return torch.cat([self.positions(count), self.held]) <= self.positions(count)[:, None]

    def advance(self, count: int) -> None:
        self.held = torch.cat([self.positions(count), self.held])
        super().advance(count)

    def crop(self, length: int) -> None:
        kept = self.held < length
        self.keys, self.values = [key[:, :, kept] for key in self.keys], [value[:, :, kept] for value in self.values]
        self.held, self.length = self.held[kept], length

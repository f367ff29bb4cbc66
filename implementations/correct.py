"""The correct implementations and the controls, which look wrong and are right."""

from __future__ import annotations

import torch
from torch import Tensor

from .builtin import BuiltIn
from .catalogue import control, correct
from .policy import Concat, Contents
from .stores import EightBit, Paged, Preallocated, Static, StaticNegative
from .windows import Ring, RingBlocks

correct()(Concat)
correct()(Preallocated)
correct()(Static)
control()(StaticNegative)
correct()(Paged)
correct()(EightBit)
correct(models=("window",))(Ring)
correct(models=("window",))(RingBlocks)


@correct(scenario="chunks")
class Chunked(BuiltIn):
    """A long call is fed in chunks of four tokens."""

    splits = True
    chunk = 4

    def feed(self, cache: Concat, tokens: Tensor, padding: Tensor | None) -> Tensor:
        cache.admit(tokens, padding)
        parts = tokens.split(self.chunk, dim=1)
        masks = [None] * len(parts) if padding is None else padding.split(self.chunk, dim=1)
        feed = super().feed
        return torch.cat([feed(cache, part, mask) for part, mask in zip(parts, masks, strict=True)], dim=1)


@correct(scenario="branch")
class Forked(BuiltIn):
    """Every call goes to a clone of the cache, which then takes the cache's place."""

    def feed(self, cache: Concat, tokens: Tensor, padding: Tensor | None) -> Tensor:
        clone = cache.fork()
        logits = super().feed(clone, tokens, padding)
        cache.release()
        cache.__dict__ = clone.__dict__
        return logits


@control()
class CatOrder(Concat):
    """A new block is put before the old one, for keys and values; visibility goes by the stored positions."""

    ragged = False

    def allocate(self) -> None:
        super().allocate()
        self.held = self.span(0, 0)

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer] = torch.cat([key, self.keys[layer]], dim=2)
        self.values[layer] = torch.cat([value, self.values[layer]], dim=2)
        return self.keys[layer], self.values[layer]

    def visible(self, count: int) -> Tensor:
        keys, queries = torch.cat([self.slots(count), self.held]), self.slots(count)[:, None]
        window = self.shape.window or self.length + count
        return (keys <= queries) & (keys > queries - window)

    def advance(self, count: int) -> None:
        self.held = torch.cat([self.slots(count), self.held])
        super().advance(count)

    def crop(self, length: int) -> None:
        kept = self.held < length
        self.keys, self.values = [key[:, :, kept] for key in self.keys], [value[:, :, kept] for value in self.values]
        self.held, self.length = self.held[kept], length

    def contents(self) -> Contents:
        order = self.held.argsort()
        return [(k[:, :, order], v[:, :, order]) for k, v in super().contents()]

    def fill(self, contents: Contents) -> None:
        super().fill(contents)
        self.held = self.span(0, self.length)


@correct()
class RightPadded(BuiltIn):
    """Rows of unequal length are padded on the right."""

    padding_side = "right"

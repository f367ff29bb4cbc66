"""Correct caches for sliding windows that keep no more than they must."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from .policy import CacheShape, Concat, Contents


class Ring(Concat):
    """A ring of as many slots as the window: position p lies in slot p modulo the ring's size."""

    ragged = False

    @classmethod
    def size(cls, shape: CacheShape) -> int:
        """Slots of the ring."""
        return shape.window or 1

    @classmethod
    def landmarks(cls, shape: CacheShape) -> tuple[int, ...]:
        return tuple(dict.fromkeys((*super().landmarks(shape), cls.size(shape))))

    @classmethod
    def crop_floor(cls, shape: CacheShape, lengths: Sequence[int]) -> int:
        """What has been overwritten cannot come back: a query at the new end still needs its whole window."""
        reached = max(lengths, default=0)
        size = cls.size(shape)
        return reached - size + (shape.window or 1) - 1 if reached > size else 0

    def allocate(self) -> None:
        self.reached = 0
        size = (self.rows, self.shape.kv_heads, self.size(self.shape), self.shape.head_dim)
        ring = torch.full(size, math.nan, dtype=self.shape.dtype, device=self.shape.device)
        self.keys = [ring.clone() for _ in range(self.shape.layers)]
        self.values = [ring.clone() for _ in range(self.shape.layers)]

    def held(self) -> Tensor:
        """Positions that the next token may still look back to."""
        return self.span(max(0, self.length - (self.shape.window or 1) + 1), self.length)

    def slot_of(self, positions: Tensor) -> Tensor:
        return positions % self.size(self.shape)

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        past, last = self.slot_of(self.held()), min(key.shape[2], self.size(self.shape))
        new = self.slot_of(self.slots(key.shape[2]))[-last:]
        found: list[Tensor] = []
        for kept, part in ((self.keys[layer], key), (self.values[layer], value)):
            found.append(torch.cat([kept[:, :, past], part], dim=2))
            kept[:, :, new] = part[:, :, -last:]
        return found[0], found[1]

    def visible(self, count: int) -> Tensor | None:
        if count == 1:
            return None
        keys, queries = torch.cat([self.held(), self.slots(count)]), self.slots(count)[:, None]
        return (keys <= queries) & (keys > queries - (self.shape.window or 1))

    def advance(self, count: int) -> None:
        super().advance(count)
        self.reached = max(self.reached, self.length)

    def fork(self) -> Self:
        twin = super().fork()
        twin.keys, twin.values = [key.clone() for key in self.keys], [value.clone() for value in self.values]
        return twin

    def crop(self, length: int) -> None:
        floor = self.crop_floor(self.shape, [self.reached])
        if length < floor:
            raise ValueError(f"the ring reaches back to {floor}, not to {length}")
        self.length = length

    def join(self, other: Concat) -> None:
        # What one of them has lost is lost to all rows.
        if isinstance(other, Ring):
            self.reached = other.reached = max(self.reached, other.reached)
        super().join(other)

    def contents(self) -> Contents:
        """All that is still there: more than the window needs, for a rollback."""
        slots = self.slot_of(self.span(max(0, self.reached - self.size(self.shape)), self.length))
        return [(k[:, :, slots], v[:, :, slots]) for k, v in zip(self.keys, self.values, strict=True)]

    def aligned(self, length: int) -> Contents:
        return self.contents()

    def fill(self, contents: Contents) -> None:
        self.allocate()
        start = self.length - contents[0][0].shape[2]
        self.reached = max(self.length, start + self.size(self.shape)) if start else self.length
        slots = self.slot_of(self.span(start, self.length))
        for layer, (keys, values) in enumerate(contents):
            self.keys[layer][:, :, slots], self.values[layer][:, :, slots] = keys, values


class RingBlocks(Ring):
    """A ring of whole blocks of five, larger than the window, so that a rollback can go back a little."""

    @classmethod
    def size(cls, shape: CacheShape) -> int:
        return 5 * (math.ceil((shape.window or 1) / 5) + 1)

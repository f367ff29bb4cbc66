"""Correct ways to store what `Concat` concatenates: one buffer, one masked buffer, pages, eight bits. Unused slots are
poisoned: with NaN where the store slices, with large numbers where it masks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from .policy import POISON, CacheShape, Concat, Contents

DEFAULT_CAPACITY = 256
"""Slots of a buffer where the model sets no limit."""


class Preallocated(Concat):
    """Keys and values are written into one buffer, and attention reads the part that is filled."""

    poison: ClassVar[float] = math.nan

    def allocate(self) -> None:
        self.capacity = self.shape.limit or DEFAULT_CAPACITY
        self.keys = [self.buffer() for _ in range(self.shape.layers)]
        self.values = [self.buffer() for _ in range(self.shape.layers)]

    def buffer(self) -> Tensor:
        size = (self.rows, self.shape.kv_heads, self.capacity, self.shape.head_dim)
        return torch.full(size, self.poison, dtype=self.shape.dtype, device=self.shape.device)

    def reserve(self, slots: int) -> None:
        """Padding takes slots too, so that there may be more of them than the model has positions."""
        if slots > self.capacity:
            contents, self.capacity = self.contents(), 2 * slots
            self.fill(contents)

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        slots, filled = self.slots(key.shape[2]), self.length + key.shape[2]
        self.keys[layer][:, :, slots], self.values[layer][:, :, slots] = key, value
        return self.keys[layer][:, :, :filled], self.values[layer][:, :, :filled]

    def fork(self) -> Self:
        twin = super().fork()
        twin.keys, twin.values = [key.clone() for key in self.keys], [value.clone() for value in self.values]
        return twin

    def crop_layer(self, layer: int, slots: int) -> None:
        self.keys[layer][:, :, slots:] = self.poison
        self.values[layer][:, :, slots:] = self.poison

    def contents(self) -> Contents:
        return [(k[:, :, : self.length], v[:, :, : self.length]) for k, v in zip(self.keys, self.values, strict=True)]

    def fill(self, contents: Contents) -> None:
        self.capacity = max(self.capacity, self.length)
        self.keys, self.values = [], []
        for keys, values in contents:
            for kept, new in ((self.keys, keys), (self.values, values)):
                buffer = self.buffer()
                buffer[:, :, : new.shape[2]] = new
                kept.append(buffer)


class Static(Preallocated):
    """One buffer, read whole: a mask hides the slots that are not filled yet."""

    exact_prefill = False
    poison = POISON

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        super().store(layer, key, value)
        return self.keys[layer], self.values[layer]

    def visible(self, count: int) -> Tensor:
        seen = super().visible(count)
        filled = self.length + count
        if seen is None:
            seen = torch.ones(count, filled, dtype=torch.bool, device=self.shape.device)
        return pad(seen, (0, self.capacity - filled), value=False)


class StaticNegative(Static):
    """One masked buffer, its unused slots poisoned with large negative numbers."""

    poison = -POISON


class Pool:
    """Blocks of keys and values that all caches of one model share, with a count of who holds each."""

    def __init__(self, shape: CacheShape, block: int) -> None:
        self.shape, self.block = shape, block
        self.keys, self.values = [self._blocks(0)] * shape.layers, [self._blocks(0)] * shape.layers
        self.holders: Counter[int] = Counter()
        self.free: list[int] = []

    def _blocks(self, count: int) -> Tensor:
        size = (count, self.shape.kv_heads, self.block, self.shape.head_dim)
        return torch.full(size, math.nan, dtype=self.shape.dtype, device=self.shape.device)

    def take(self) -> int:
        """A block of one's own, in shuffled order."""
        if not self.free:
            have, more = len(self.keys[0]), 64
            self.keys = [torch.cat([blocks, self._blocks(more)]) for blocks in self.keys]
            self.values = [torch.cat([blocks, self._blocks(more)]) for blocks in self.values]
            order = torch.randperm(more, generator=torch.Generator().manual_seed(have))
            self.free = [have + index for index in order.tolist()]
        block = self.free.pop()
        self.holders[block] = 1
        return block

    def give_back(self, block: int) -> None:
        self.holders[block] -= 1
        if not self.holders[block]:
            self.free.append(block)
            for blocks in (*self.keys, *self.values):
                blocks[block] = math.nan

    def own(self, block: int) -> int:
        """The block itself where nobody else holds it, else a copy: copy on write."""
        if self.holders[block] == 1:
            return block
        copy = self.take()
        for blocks in (*self.keys, *self.values):
            blocks[copy] = blocks[block]
        self.give_back(block)
        return copy


class Paged(Concat):
    """Keys and values lie in shared blocks of five slots in shuffled order; forks share them and copy on write."""

    block: ClassVar[int] = 5

    @classmethod
    def landmarks(cls, shape: CacheShape) -> tuple[int, ...]:
        return (*super().landmarks(shape), cls.block)

    def allocate(self) -> None:
        self.release()
        if "pool" not in self.shape.shared:
            self.shape.shared["pool"] = Pool(self.shape, self.block)
        self.pool: Pool = self.shape.shared["pool"]
        self.table: list[list[int]] = [[] for _ in range(self.rows)]
        self.keys, self.values = [], []

    def reserve(self, slots: int) -> None:
        """Own every block that the call writes to; take those that are missing."""
        for blocks in self.table:
            for index in range(self.length // self.block, math.ceil(slots / self.block)):
                if index < len(blocks):
                    blocks[index] = self.pool.own(blocks[index])
                else:
                    blocks.append(self.pool.take())

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        slots = self.slots(key.shape[2])
        blocks, inside = self.tables()[:, slots // self.block], slots % self.block
        self.pool.keys[layer][blocks, :, inside] = key.transpose(1, 2)
        self.pool.values[layer][blocks, :, inside] = value.transpose(1, 2)
        return self.gather(layer, self.length + key.shape[2])

    def tables(self) -> Tensor:
        """The rows' blocks, `[rows, blocks]`."""
        return torch.tensor(self.table, dtype=torch.int64).reshape(self.rows, -1)

    def gather(self, layer: int, length: int) -> tuple[Tensor, Tensor]:
        """A layer's keys and values in the order of the slots."""
        found = (blocks[layer][self.tables()] for blocks in (self.pool.keys, self.pool.values))
        keys, values = (blocks.transpose(1, 2).flatten(2, 3)[:, :, :length].contiguous() for blocks in found)
        return keys, values

    def fork(self) -> Self:
        twin = super().fork()
        twin.table = [list(blocks) for blocks in self.table]
        twin.hold()
        return twin

    def hold(self) -> None:
        """Count this cache among the holders of its blocks."""
        self.pool.holders.update(block for blocks in self.table for block in blocks)

    def crop(self, length: int) -> None:
        super().crop(length)
        for blocks in self.table:
            while len(blocks) > math.ceil(self.length / self.block):
                self.pool.give_back(blocks.pop())

    def crop_layer(self, layer: int, slots: int) -> None:
        """Blocks are given back row by row, not layer by layer."""

    def select(self, rows: Sequence[int]) -> None:
        old, self.table = self.table, [list(self.table[row]) for row in rows]
        self.hold()
        super().select(rows)
        for blocks in old:
            for block in blocks:
                self.pool.give_back(block)

    def select_layer(self, layer: int, picks: list[int]) -> None:
        """Rows are picked in the table."""

    def contents(self) -> Contents:
        return [self.gather(layer, self.length) for layer in range(self.shape.layers)]

    def fill(self, contents: Contents) -> None:
        length = self.length
        self.allocate()
        self.length = 0
        self.reserve(length)
        for layer, (keys, values) in enumerate(contents):
            self.store(layer, keys, values)
        self.length = length

    def release(self) -> None:
        for blocks in self.__dict__.get("table", ()):
            for block in blocks:
                self.pool.give_back(block)
        self.table = []


class EightBit(Concat):
    """Keys and values are kept in eight bits, with one scale for each token and head."""

    exact_prefill = False
    lossy = 8

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return super().store(layer, rounded(key, self.lossy or 8), rounded(value, self.lossy or 8))


def rounded(x: Tensor, bits: int) -> Tensor:
    """`x` as it comes back from a store of so many bits: symmetric, one scale for each vector of the last axis."""
    steps = 2 ** (bits - 1) - 1
    scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny) / steps
    return (x / scale).round() * scale

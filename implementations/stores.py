"""Correct ways to store what `Concat` concatenates: one buffer, one masked buffer, pages. Unused slots are poisoned."""

from __future__ import annotations

import math
from typing import ClassVar, Self

import torch
from torch import Tensor

from .policy import Concat

DEFAULT_CAPACITY = 256
"""Slots of a buffer where the model sets no limit."""


class Preallocated(Concat):
    """Keys and values are written into one buffer, and attention reads the part that is filled."""

    poison: ClassVar[float] = math.nan

    def begin(self, rows: int) -> None:
        super().begin(rows)
        self.capacity = self.shape.limit or DEFAULT_CAPACITY
        size = (rows, self.shape.kv_heads, self.capacity, self.shape.head_dim)
        buffer = torch.full(size, self.poison, dtype=self.shape.dtype, device=self.shape.device)
        self.keys = [buffer.clone() for _ in range(self.shape.layers)]
        self.values = [buffer.clone() for _ in range(self.shape.layers)]

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        slots, filled = self.slots(key.shape[2]), self.length + key.shape[2]
        self.keys[layer][:, :, slots] = key
        self.values[layer][:, :, slots] = value
        return self.keys[layer][:, :, :filled], self.values[layer][:, :, :filled]

    def fork(self) -> Self:
        twin = super().fork()
        twin.keys, twin.values = [key.clone() for key in self.keys], [value.clone() for value in self.values]
        return twin

    def crop_layer(self, layer: int, length: int) -> None:
        self.keys[layer][:, :, length:] = self.poison
        self.values[layer][:, :, length:] = self.poison


class Static(Preallocated):
    """One buffer, read whole: a mask hides the slots that are not filled yet."""

    exact_prefill = False
    # 0 x NaN is NaN, so a masked buffer may hold large numbers but no NaN.
    poison = 0.1 * torch.finfo(torch.float32).max

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        super().store(layer, key, value)
        return self.keys[layer], self.values[layer]

    def visible(self, count: int) -> Tensor:
        return torch.arange(self.capacity, device=self.shape.device) <= self.slots(count)[:, None]


class Paged(Concat):
    """Keys and values lie in blocks of five slots, handed out in shuffled order; attention gathers them."""

    block: ClassVar[int] = 5

    def begin(self, rows: int) -> None:
        super().begin(rows)
        blocks = math.ceil((self.shape.limit or DEFAULT_CAPACITY) / self.block)
        order = torch.Generator().manual_seed(blocks)
        self.table = torch.randperm(blocks, generator=order).to(self.shape.device)
        size = (rows, self.shape.kv_heads, blocks * self.block, self.shape.head_dim)
        pool = torch.full(size, math.nan, dtype=self.shape.dtype, device=self.shape.device)
        self.keys = [pool.clone() for _ in range(self.shape.layers)]
        self.values = [pool.clone() for _ in range(self.shape.layers)]

    def places(self, slots: Tensor) -> Tensor:
        """Where the slots lie in the pool."""
        return self.table[slots // self.block] * self.block + slots % self.block

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        count = key.shape[2]
        new = self.places(self.slots(count))
        self.keys[layer][:, :, new], self.values[layer][:, :, new] = key, value
        filled = self.places(torch.arange(self.length + count, device=self.shape.device))
        return self.keys[layer][:, :, filled], self.values[layer][:, :, filled]

    def fork(self) -> Self:
        twin = super().fork()
        twin.keys, twin.values = [key.clone() for key in self.keys], [value.clone() for value in self.values]
        return twin

    def crop_layer(self, layer: int, length: int) -> None:
        gone = self.places(torch.arange(length, self.length, device=self.shape.device))
        self.keys[layer][:, :, gone] = math.nan
        self.values[layer][:, :, gone] = math.nan

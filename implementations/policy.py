"""How a cache is kept. A policy is a class of caches that answers three questions for each forward pass: which positions
do the new tokens have, what is stored for a layer, and which keys may a query see.

`Concat` is the plain correct one. Every other correct policy and every fault is `Concat`, or one of its kin, with a
short override.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor


class CacheLimitError(ValueError):
    """More positions than the model has. Raised before any state is touched."""


@dataclass(frozen=True)
class CacheShape:
    """Sizes of what a cache stores, layer by layer, and the number of positions it may hold (None: any)."""

    layers: int
    kv_heads: int
    head_dim: int
    limit: int | None
    vocab_size: int
    dtype: torch.dtype
    device: torch.device


class Concat:
    """New keys and values are concatenated behind the old ones; a slot's index is its position."""

    exact_prefill: ClassVar[bool] = True
    """Attention gets operands of the shape that a pass without a cache has."""

    def __init__(self, shape: CacheShape, rows: int) -> None:
        self.shape = shape
        self.begin(rows)

    def begin(self, rows: int) -> None:
        """Start empty, with so many rows."""
        self.rows = rows
        self.length = 0
        empty = torch.empty(rows, self.shape.kv_heads, 0, self.shape.head_dim, dtype=self.shape.dtype, device=self.shape.device)
        self.keys = [empty] * self.shape.layers
        self.values = [empty] * self.shape.layers

    # The three questions

    def positions(self, count: int) -> Tensor:
        """Positions of the next `count` tokens, `[count]`."""
        return torch.arange(self.length, self.length + count, device=self.shape.device)

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep a layer's new keys and values `[rows, kv_heads, n, head_dim]`; give all that attention is to read."""
        self.keys[layer] = torch.cat([self.keys[layer], key], dim=2)
        self.values[layer] = torch.cat([self.values[layer], value], dim=2)
        return self.keys[layer], self.values[layer]

    def visible(self, count: int) -> Tensor | None:
        """Which keys each of the `count` new tokens sees, `[count, keys]`; None: all of them."""
        if count == 1:
            return None
        return torch.arange(self.length + count, device=self.shape.device) <= self.slots(count)[:, None]

    # Bookkeeping

    def slots(self, count: int) -> Tensor:
        """Slots that the next `count` tokens go to, in order."""
        return torch.arange(self.length, self.length + count, device=self.shape.device)

    def admit(self, tokens: Tensor) -> None:
        """Refuse what cannot be fed, before anything is touched."""
        rows, count = tokens.shape
        if count == 0:
            raise ValueError("an append needs at least one token")
        if rows != self.rows:
            if self.length:
                raise ValueError(f"the cache has {self.rows} rows, the call {rows}")
            self.begin(rows)
        if int(tokens.max()) >= self.shape.vocab_size:
            raise IndexError(f"token {int(tokens.max())} is outside the vocabulary of {self.shape.vocab_size}")
        self.admit_length(count)

    def admit_length(self, count: int) -> None:
        """Refuse more positions than the model has."""
        if self.shape.limit is not None and self.length + count > self.shape.limit:
            raise CacheLimitError(f"position {self.length + count - 1} lies past the limit of {self.shape.limit}")

    def advance(self, count: int) -> None:
        """Called once a forward pass, after it."""
        self.length += count

    # Operations

    def fork(self) -> Self:
        """An independent copy. `store` makes new tensors, so the old ones may be shared."""
        twin = type(self)(self.shape, self.rows)
        twin.__dict__.update(self.__dict__)
        twin.keys, twin.values = list(self.keys), list(self.values)
        return twin

    def crop(self, length: int) -> None:
        """Roll back to the first `length` tokens."""
        for layer in range(self.shape.layers):
            self.crop_layer(layer, length)
        self.length = length

    def crop_layer(self, layer: int, length: int) -> None:
        self.keys[layer] = self.keys[layer][:, :, :length]
        self.values[layer] = self.values[layer][:, :, :length]

    def reset(self) -> None:
        """Empty the cache; it is then as good as new."""
        self.begin(self.rows)

    def select(self, rows: Sequence[int]) -> None:
        """New row i is old row `rows[i]`."""
        for layer in range(self.shape.layers):
            self.keys[layer], self.values[layer] = self.keys[layer][list(rows)], self.values[layer][list(rows)]
        self.rows = len(rows)

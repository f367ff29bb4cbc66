"""How a cache is kept. A policy is a class of caches that answers three questions for each forward pass: which positions
do the new tokens have, what is stored for a layer, and which keys may a query see.

`Concat` is the plain correct one. Every other correct policy and every fault is `Concat`, or one of its kin, with a
short override.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
from safetensors.torch import load, save
from torch import Tensor
from torch.nn.functional import pad

from .attention import attend

POISON = 0.1 * torch.finfo(torch.float32).max
"""What lies in slots that a mask hides. Not NaN: zero times NaN is NaN."""

Contents = list[tuple[Tensor, Tensor]]
"""Keys and values of every layer, `[rows, kv_heads, length, head_dim]`."""


class CacheLimitError(ValueError):
    """More positions than the model has. Raised before any state is touched."""


@dataclass(frozen=True)
class CacheShape:
    """Sizes of what a cache stores, layer by layer, and the number of positions it may hold (None: any).

    `window`: a token sees itself and the `window` - 1 before it. `stateful`: layers keep a state beside keys and
    values, which cannot be rolled back. `shared` is what all caches of one model have in common, a pool of blocks say.
    """

    layers: int
    kv_heads: int
    head_dim: int
    limit: int | None
    vocab_size: int
    dtype: torch.dtype
    device: torch.device
    window: int | None = None
    stateful: bool = False
    shared: dict[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)


class Concat:
    """New keys and values are concatenated behind the old ones; a slot's index is its position."""

    exact_prefill: ClassVar[bool] = True
    """Attention gets operands of the shape that a pass without a cache has."""
    ragged: ClassVar[bool] = True
    """Rows may be of unequal length, padding between."""
    lossy: ClassVar[int | None] = None
    lacks: ClassVar[frozenset[str]] = frozenset()
    """Capabilities that caches kept this way do not have."""
    rotates_when_read: ClassVar[bool] = False
    """Keys are stored as they come and turned by `key_positions` at every read, where positions are rotary."""

    def __init__(self, shape: CacheShape, rows: int) -> None:
        self.shape = shape
        self.begin(rows)

    @classmethod
    def landmarks(cls, shape: CacheShape) -> tuple[int, ...]:
        """Lengths at which the behaviour changes."""
        return () if shape.window is None else (shape.window,)

    @classmethod
    def crop_floor(cls, shape: CacheShape, lengths: Sequence[int]) -> int:
        """How far back a rollback may go, given the lengths since the cache was empty."""
        return 0

    def begin(self, rows: int) -> None:
        """Start empty, with so many rows."""
        self.rows = rows
        self.length = 0
        self.padding: Tensor | None = None  # [rows, length]: slots that hold no token; None where there are none
        self.arriving: Tensor | None = None  # [rows, n]: the same of the call at hand
        self.states: dict[int, Tensor] = {}
        self.allocate()

    def allocate(self) -> None:
        """Make the empty store."""
        size = (self.rows, self.shape.kv_heads, 0, self.shape.head_dim)
        empty = torch.empty(size, dtype=self.shape.dtype, device=self.shape.device)
        self.keys, self.values = [empty] * self.shape.layers, [empty] * self.shape.layers

    # The three questions

    def positions(self, count: int) -> Tensor:
        """Positions of the next `count` tokens, `[count]`, or `[rows, count]` where there is padding."""
        if self.padding is None and self.arriving is None:
            return self.slots(count)
        return (self.real(count).cumsum(dim=1) - 1).clamp(min=0)[:, -count:]

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keep a layer's new keys and values `[rows, kv_heads, n, head_dim]`; give all that attention is to read."""
        self.keys[layer] = torch.cat([self.keys[layer], key], dim=2)
        self.values[layer] = torch.cat([self.values[layer], value], dim=2)
        return self.keys[layer], self.values[layer]

    def visible(self, count: int) -> Tensor | None:
        """Which keys each of the `count` new tokens sees: `[count, keys]`, or `[rows, 1, count, keys]` where there is
        padding; None: all of them."""
        keys, queries = self.span(0, self.length + count), self.slots(count)[:, None]
        window = self.shape.window
        if self.padding is None and self.arriving is None:
            if count == 1 and (window is None or self.length < window):
                return None
            return keys <= queries if window is None else (keys <= queries) & (keys > queries - window)
        real = self.real(count)
        seen = (keys <= queries) & real[:, None]
        if window is not None:
            places = real.cumsum(dim=1)
            seen = seen & (places[:, None] > places[:, -count:, None] - window)
        # Padding sees itself: a query that sees nothing would be NaN, and spread.
        return (seen | (keys == queries))[:, None]

    def key_positions(self, count: int) -> Tensor:
        """Positions of all keys that attention reads, the new ones included, for `rotates_when_read`."""
        if self.padding is None and self.arriving is None:
            return self.span(0, self.length + count)
        return (self.real(count).cumsum(dim=1) - 1).clamp(min=0)

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
        """Attention over what `store` gave: `[rows, n, heads * head_dim]`."""
        return attend(query, keys, values, visible)

    # What layers with a state ask

    def recall(self, layer: int, count: int) -> Tensor | None:
        """The state of a layer before the call at hand; None where there is none yet."""
        return self.states.get(layer)

    def remember(self, layer: int, state: Tensor) -> None:
        self.states[layer] = state

    def moves_state(self, count: int) -> Tensor:
        """Which of the new tokens `[rows, count]` a state takes in: those that are no padding."""
        return self.real(count)[:, -count:]

    # Bookkeeping

    def span(self, start: int, end: int) -> Tensor:
        return torch.arange(start, end, device=self.shape.device)

    def slots(self, count: int) -> Tensor:
        """Slots that the next `count` tokens go to, in order."""
        return self.span(self.length, self.length + count)

    def real(self, count: int) -> Tensor:
        """Which slots `[rows, length + count]` hold a token, those of the call at hand included."""
        parts = ((self.padding, self.length), (self.arriving, count))
        return torch.cat([self._none(size) if mask is None else mask for mask, size in parts], dim=1).logical_not()

    def _none(self, size: int) -> Tensor:
        return torch.zeros(self.rows, size, dtype=torch.bool, device=self.shape.device)

    def lengths(self) -> Tensor:
        """Tokens that each row holds, `[rows]`."""
        if self.padding is None:
            return torch.full((self.rows,), self.length)
        return self.padding.logical_not().sum(dim=1)

    def admit(self, tokens: Tensor, padding: Tensor | None = None) -> None:
        """Take note of a call of tokens `[rows, n]`, or refuse it before anything is touched."""
        rows, count = tokens.shape
        if count == 0:
            raise ValueError("an append needs at least one token")
        if rows != self.rows:
            if int(self.lengths().max()):
                raise ValueError(f"the cache has {self.rows} rows, the call {rows}")
            self.begin(rows)
        if int(tokens.max()) >= self.shape.vocab_size:
            raise IndexError(f"token {int(tokens.max())} is outside the vocabulary of {self.shape.vocab_size}")
        new = count if padding is None else padding.logical_not().sum(dim=1)
        self.admit_length(int((self.lengths() + new).max()))
        self.arriving = padding
        self.reserve(self.length + count)

    def admit_length(self, length: int) -> None:
        """Refuse a row longer than the model has positions."""
        if self.shape.limit is not None and length > self.shape.limit:
            raise CacheLimitError(f"position {length - 1} lies past the limit of {self.shape.limit}")

    def reserve(self, slots: int) -> None:
        """Make room for so many slots."""

    def advance(self, count: int) -> None:
        """Called once a forward pass, after it."""
        if self.padding is not None or self.arriving is not None:
            self.padding = self.real(count).logical_not()
        self.arriving = None
        self.length += count

    # Operations

    def fork(self) -> Self:
        """An independent copy. `store` makes new tensors, so the old ones may be shared."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.keys, twin.values, twin.states = list(self.keys), list(self.values), dict(self.states)
        return twin

    def crop(self, length: int) -> None:
        """Roll back to the first `length` tokens of every row."""
        slots = length
        if self.padding is not None:
            beyond = self.padding.logical_not().cumsum(dim=1) > length
            self.padding = self.padding | beyond
            slots = self.length - int(self.padding.all(dim=0).flip(0).cumprod(0).sum())
            self.padding = self.padding[:, :slots]
        for layer in range(self.shape.layers):
            self.crop_layer(layer, slots)
        self.length = slots

    def crop_layer(self, layer: int, slots: int) -> None:
        self.keys[layer] = self.keys[layer][:, :, :slots]
        self.values[layer] = self.values[layer][:, :, :slots]

    def reset(self) -> None:
        """Empty the cache; it is then as good as new."""
        self.begin(self.rows)

    def select(self, rows: Sequence[int]) -> None:
        """New row i is old row `rows[i]`."""
        picks = list(rows)
        for layer in range(self.shape.layers):
            self.select_layer(layer, picks)
        self.select_states(picks)
        self.padding = None if self.padding is None else self.padding[picks]
        self.rows = len(picks)

    def select_layer(self, layer: int, picks: list[int]) -> None:
        self.keys[layer], self.values[layer] = self.keys[layer][picks], self.values[layer][picks]

    def select_states(self, picks: list[int]) -> None:
        self.states = {layer: state[picks] for layer, state in self.states.items()}

    def join(self, other: Concat) -> None:
        """The rows of `other` become further rows; the shorter ones get padding before them."""
        longest = max(self.length, other.length)
        mine, theirs = self.aligned(longest), other.aligned(longest)
        padding = torch.cat([cache.padding_of(longest) for cache in (self, other)])
        layers = {**self.states, **other.states}
        states = {
            layer: torch.cat([self.state_like(layer, form), other.state_like(layer, form)]) for layer, form in layers.items()
        }
        self.rows += other.rows
        self.length = longest
        self.padding = padding if bool(padding.any()) else None
        self.states = states
        self.fill([(torch.cat([k, j]), torch.cat([v, w])) for (k, v), (j, w) in zip(mine, theirs, strict=True)])

    def state_like(self, layer: int, state: Tensor) -> Tensor:
        """A layer's state, or the empty one, of the form of `state`, where nothing has been fed yet."""
        return self.states.get(layer, state.new_zeros(self.rows, *state.shape[1:]))

    def aligned(self, length: int) -> Contents:
        """The contents behind so much padding that they are `length` slots long."""

        def behind_padding(stored: Tensor) -> Tensor:
            return pad(stored, (0, 0, length - stored.shape[2], 0), value=POISON)

        return [(behind_padding(keys), behind_padding(values)) for keys, values in self.contents()]

    def padding_of(self, length: int) -> Tensor:
        own = self._none(self.length) if self.padding is None else self.padding
        return pad(own, (length - self.length, 0), value=True)

    def contents(self) -> Contents:
        """What is stored, in the order of the slots."""
        return list(zip(self.keys, self.values, strict=True))

    def fill(self, contents: Contents) -> None:
        """Store `contents`, which are as long as `length` says."""
        self.keys, self.values = [keys for keys, _ in contents], [values for _, values in contents]

    def dump(self) -> bytes:
        """The cache as bytes, safetensors with the counters beside them."""
        tensors = {f"state.{layer}": state.contiguous() for layer, state in self.states.items()}
        for layer, (keys, values) in enumerate(self.contents()):
            tensors |= {f"key.{layer}": keys.contiguous(), f"value.{layer}": values.contiguous()}
        if self.padding is not None:
            tensors["padding"] = self.padding.contiguous()
        return save(tensors, metadata={"length": str(self.length), "rows": str(self.rows)})

    @classmethod
    def load(cls, shape: CacheShape, data: bytes) -> Self:
        """The cache that `dump` wrote."""
        size = int.from_bytes(data[:8], "little")
        about = json.loads(data[8 : 8 + size])["__metadata__"]
        cache, tensors = cls(shape, int(about["rows"])), load(data)
        cache.length = int(about["length"])
        cache.padding = tensors.get("padding")
        cache.states = {int(name[6:]): state for name, state in tensors.items() if name.startswith("state.")}
        cache.fill([(tensors[f"key.{layer}"], tensors[f"value.{layer}"]) for layer in range(shape.layers)])
        return cache

    def release(self) -> None:
        """Give back what the cache holds of `shape.shared`."""

"""Forms of faults of storage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...harness.program import Program
from ..attention import attend
from ..builtin import BuiltIn
from ..catalogue import form
from ..policy import Concat
from ..stores import rounded
from .fitting import MaskForEach


def layers(target: BuiltIn, program: Program) -> Iterable[int]:
    """Distances between layers other than that of the catalogue's fault."""
    return range(2, target.model.shape.layers)


def capacities(target: BuiltIn, program: Program) -> Iterable[int]:
    return sorted({16, 32, 64, 128, 256, 512, target.model.shape.limit or 256, *target.landmarks})


def kept(target: BuiltIn, program: Program) -> Iterable[int]:
    return range(1, 17)


@form("no_cat")
class ReplacedMaskForEach(MaskForEach):
    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer], self.values[layer] = key, value
        return key, value


@form("no_cat")
class ReplacedMaskOfCall(Concat):
    """The mask is that of the call alone."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer], self.values[layer] = key, value
        return key, value

    def visible(self, count: int) -> Tensor | None:
        seen = super().visible(count)
        return None if seen is None else seen[..., -count:]


@form("kv_mismatch")
class ValuesInFront(Concat):
    """The same with keys and values exchanged."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer] = torch.cat([self.keys[layer], key], dim=2)
        self.values[layer] = torch.cat([value, self.values[layer]], dim=2)
        return self.keys[layer], self.values[layer]


@form("kv_mismatch", "a new block goes before the old one, and the mask does not know", name="cat_order_unknown_to_mask")
class BothInFront(Concat):
    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer] = torch.cat([key, self.keys[layer]], dim=2)
        self.values[layer] = torch.cat([value, self.values[layer]], dim=2)
        return self.keys[layer], self.values[layer]


@form("kv_mismatch", "a call's own keys go before the past, its values behind it", name="kv_mismatch_read")
class ReadInOppositeOrder(Concat):
    """What is kept is right; what attention reads in the call is not."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        past = self.keys[layer]
        _, values = super().store(layer, key, value)
        return torch.cat([key, past], dim=2), values


@form("first_call_not_stored")
class FirstCallLeavesZeros(Concat):
    """Its slots hold zeros, and are seen."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.length:
            return super().store(layer, key, value)
        super().store(layer, torch.zeros_like(key), torch.zeros_like(value))
        return key, value


@form("layers_swapped", values=layers)
class FurtherLayer(Concat):
    value: ClassVar[int] = 2

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        super().store(layer, key, value)
        other = (layer + self.value) % self.shape.layers
        past = self.keys[other][:, :, : self.length], self.values[other][:, :, : self.length]
        return torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)


@form("layers_swapped", "all layers read the first layer's past", name="layers_read_first")
class LayersReadFirst(Concat):
    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        super().store(layer, key, value)
        past = self.keys[0][:, :, : self.length], self.values[0][:, :, : self.length]
        return torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)


class Narrow(Concat):
    """Kept in fewer bits."""

    keys_in: ClassVar[torch.dtype | None] = None
    values_in: ClassVar[torch.dtype | None] = None

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        key = key if self.keys_in is None else key.to(self.keys_in).to(key.dtype)
        value = value if self.values_in is None else value.to(self.values_in).to(value.dtype)
        return super().store(layer, key, value)


class NarrowPast(Narrow):
    """The call at hand reads its own keys and values as they were; only the past has lost bits."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        past = self.keys[layer], self.values[layer]
        super().store(layer, key, value)
        return torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)


def _narrow() -> None:
    """Every dtype, for keys, values and both, throughout and for the past only."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        short = str(dtype).removeprefix("torch.")
        for what, keys, values in (("keys and values", dtype, dtype), ("keys", dtype, None), ("values", None, dtype)):
            for base in (Narrow, NarrowPast):
                made = type(f"{base.__name__}{short}", (base,), {"keys_in": keys, "values_in": values})
                way = cast("type[Narrow]", made)
                form("stored_in_half", f"{what} are kept in {short}", name=f"{what.split()[0]}_in_{short}")(way)


_narrow()


@form("stored_in_half", "keys and values are kept in eight bits", name="stored_in_eight_bits")
class EightBits(Concat):
    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return super().store(layer, rounded(key, 8), rounded(value, 8))


@form(
    "heads_reversed", "query heads read the wrong key heads: they are tiled where each should be repeated", name="heads_tiled"
)
class HeadsTiled(Concat):
    def attend(self, query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
        times = query.shape[1] // keys.shape[1]
        return attend(query, keys.repeat(1, times, 1, 1), values.repeat(1, times, 1, 1), visible)


@form("rope_on_read_by_length", "keys are turned twice: when they are stored and when they are read", name="rope_twice")
class TurnedTwice(Concat):
    rotates_when_read = True

    def key_positions(self, count: int) -> Tensor:
        found = super().key_positions(count)
        return found + found * (found < self.length)


@form("rope_on_read_by_length", "cached keys are never turned", name="rope_never")
class NeverTurned(Concat):
    rotates_when_read = True

    def key_positions(self, count: int) -> Tensor:
        found = super().key_positions(count)
        return found * (found >= self.length)


@form("tail_attended", values=capacities)
class TailOfZeros(Concat):
    """A buffer of `value` slots, the unused ones zero, is seen whole."""

    value: ClassVar[int] = 128

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().store(layer, key, value)
        rest = (0, 0, 0, max(self.value - keys.shape[2], 0))
        return pad(keys, rest), pad(values, rest)

    def visible(self, count: int) -> Tensor:
        filled = self.length + count
        seen = super().visible(count)
        there = torch.ones(count, filled, dtype=torch.bool) if seen is None else seen
        return pad(there, (0, max(self.value - filled, 0)), value=True)


@form(
    "tail_attended",
    "a token on a warm cache sees the unused slots of a buffer",
    name="tail_attended_in_decode",
    values=capacities,
)
class TailOfZerosInDecode(TailOfZeros):
    """Only calls of one token, which have no mask, see them."""

    def visible(self, count: int) -> Tensor:
        if count == 1:
            return super().visible(count)
        filled = self.length + count
        return pad(super().visible(count)[..., :filled], (0, max(self.value - filled, 0)), value=False)


def behind(target: BuiltIn, program: Program) -> Iterable[int]:
    return range(1, 9)


@form("tail_attended", values=behind)
class SlotsBehindSeen(Concat):
    """A warm call sees all that it wrote and `value` slots more, which hold zeros."""

    value: ClassVar[int] = 1

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().store(layer, key, value)
        rest = (0, 0, 0, self.value if self.length else 0)
        return pad(keys, rest), pad(values, rest)

    def visible(self, count: int) -> Tensor | None:
        if not self.length:
            return super().visible(count)
        return torch.ones(count, self.length + count + self.value, dtype=torch.bool)


@form("kv_mismatch", "values are stored one slot too late on a warm cache", name="values_late")
class ValuesLate(Concat):
    """The slot that is left out holds zeros; a call reads the value before its own."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        past = self.values[layer]
        if self.length and past.shape[2] == self.length:
            past = pad(past, (0, 0, 0, 1))
        self.keys[layer] = torch.cat([self.keys[layer], key], dim=2)
        self.values[layer] = torch.cat([past, value], dim=2)
        return self.keys[layer], self.values[layer][:, :, : self.keys[layer].shape[2]]

    def crop_layer(self, layer: int, slots: int) -> None:
        self.keys[layer], self.values[layer] = self.keys[layer][:, :, :slots], self.values[layer][:, :, : slots + 1]


@form("last_of_call_lost")
class LastOfCallDropped(Concat):
    """It leaves no slot behind; the counter knows of it."""

    dropped = 0

    def positions(self, count: int) -> Tensor:
        return super().positions(count) + self.dropped

    def advance(self, count: int) -> None:
        super().advance(count)
        if count > 1 and self.padding is None:
            self.keys, self.values = [k[:, :, :-1] for k in self.keys], [v[:, :, :-1] for v in self.values]
            self.length, self.dropped = self.length - 1, self.dropped + 1

    def reset(self) -> None:
        super().reset()
        self.dropped = 0


@form(
    "last_of_call_lost",
    "old tokens are dropped to keep {value}, and positions are counted from what is kept",
    name="trimmed",
    values=kept,
)
class Trimmed(Concat):
    value: ClassVar[int] = 8

    def advance(self, count: int) -> None:
        super().advance(count)
        if self.length > self.value and self.padding is None:
            self.keys = [keys[:, :, -self.value :] for keys in self.keys]
            self.values = [values[:, :, -self.value :] for values in self.values]
            self.length = self.value


@form("rows_read_first", "rows beyond the first are not stored", name="rows_not_stored")
class OnlyFirstRowStored(Concat):
    """Their slots hold zeros."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        past = self.keys[layer], self.values[layer]
        first = torch.zeros_like(key[:, :1, :1, :1])
        first[0] = 1
        super().store(layer, key * first, value * first)
        return torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)

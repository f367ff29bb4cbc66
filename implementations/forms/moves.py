"""Forms of faults of what is done to a cache between calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Self

from torch import Tensor

from ...harness.program import Program
from ..builtin import BuiltIn
from ..catalogue import form
from ..policy import Concat
from .fitting import MaskForEach


def layers(target: BuiltIn, program: Program) -> Iterable[int]:
    return range(target.model.shape.layers)


def inner(target: BuiltIn, program: Program) -> Iterable[int]:
    """Layers of which the catalogue's own fault speaks not already."""
    return range(1, target.model.shape.layers)


def uncut(target: BuiltIn, program: Program) -> Iterable[int]:
    """With two layers, the second alone is the catalogue's own fault."""
    return range(target.model.shape.layers if target.model.shape.layers != 2 else 1)


@form("crop_one_layer")
class CropOneLayerMaskForEach(MaskForEach):
    def crop_layer(self, layer: int, slots: int) -> None:
        if layer == 0:
            super().crop_layer(layer, slots)


@form("crop_one_layer", "layer {value} is not cropped", values=uncut)
class LayerNotCroppedMaskForEach(MaskForEach):
    value: ClassVar[int] = 0

    def crop_layer(self, layer: int, slots: int) -> None:
        if layer != self.value:
            super().crop_layer(layer, slots)


@form("crop_ignored", "a crop rolls the counter back and leaves keys and values", name="crop_counter_only")
class CropCounterOnlyMaskForEach(MaskForEach):
    def crop_layer(self, layer: int, slots: int) -> None:
        pass


@form("crop_one_layer", "layer {value} is not cropped", values=uncut)
class LayerNotCropped(Concat):
    value: ClassVar[int] = 0

    def crop_layer(self, layer: int, slots: int) -> None:
        if layer != self.value:
            super().crop_layer(layer, slots)


@form("crop_ignored", "a crop rolls the counter back and leaves keys and values", name="crop_counter_only")
class CropCounterOnly(Concat):
    def crop_layer(self, layer: int, slots: int) -> None:
        pass


@form("crop_one_layer", "a crop cuts keys and leaves values", name="crop_keys_only")
class CropKeysOnly(Concat):
    def crop_layer(self, layer: int, slots: int) -> None:
        self.keys[layer] = self.keys[layer][:, :, :slots]


@form("crop_one_layer", "a crop cuts keys and leaves values", name="crop_keys_only")
class CropKeysOnlyReadCut(CropKeysOnly):
    """Attention takes as many values as there are keys, the old ones first."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().store(layer, key, value)
        return keys, values[:, :, : keys.shape[2]]


@form(
    "reuse_without_reset",
    "a new prompt starts at position 0 on a cache that still holds the old one",
    name="reset_counter_only",
)
class ResetCounterOnly(Concat):
    def reset(self) -> None:
        self.length = 0


@form("reset_keeps_length", "layer {value} is not emptied by a reset", name="reset_misses_layer", values=layers)
class ResetMissesLayer(Concat):
    value: ClassVar[int] = 0

    def reset(self) -> None:
        kept = self.keys[self.value], self.values[self.value]
        super().reset()
        self.keys[self.value], self.values[self.value] = kept


@form("reset_keeps_length", "layer {value} is not emptied by a reset", name="reset_misses_layer", values=layers)
class ResetMissesLayerMaskForEach(MaskForEach):
    value: ClassVar[int] = 0

    def reset(self) -> None:
        kept = self.keys[self.value], self.values[self.value]
        super().reset()
        self.keys[self.value], self.values[self.value] = kept


@form("select_one_layer", "rows are not reordered at all", name="select_ignored")
class NotSelected(Concat):
    """The first ones stay, as many as are asked for."""

    def select_layer(self, layer: int, picks: list[int]) -> None:
        self.keys[layer], self.values[layer] = self.keys[layer][: len(picks)], self.values[layer][: len(picks)]


@form("select_keys_only", "rows are reordered for values, not for keys", name="select_values_only")
class SelectValuesOnly(Concat):
    def select_layer(self, layer: int, picks: list[int]) -> None:
        self.values[layer] = self.values[layer][picks]


@form("select_keys_only")
class SelectKeysOnlyInPlace(Concat):
    """Values stay in the rows that they are in, as many as there are rows."""

    def select_layer(self, layer: int, picks: list[int]) -> None:
        stay = [place if place < self.rows else row for place, row in enumerate(picks)]
        self.keys[layer], self.values[layer] = self.keys[layer][picks], self.values[layer][stay]


@form("select_keys_only", "rows are reordered for values, not for keys", name="select_values_only")
class SelectValuesOnlyInPlace(Concat):
    def select_layer(self, layer: int, picks: list[int]) -> None:
        stay = [place if place < self.rows else row for place, row in enumerate(picks)]
        self.keys[layer], self.values[layer] = self.keys[layer][stay], self.values[layer][picks]


@form("select_one_layer", "layer {value}'s rows are not reordered", values=inner)
class LayerNotSelected(Concat):
    value: ClassVar[int] = 0

    def select_layer(self, layer: int, picks: list[int]) -> None:
        if layer != self.value:
            super().select_layer(layer, picks)


@form("select_one_layer", "only layer {value}'s rows are reordered", name="select_only_layer", values=layers)
class OnlyLayerSelected(Concat):
    value: ClassVar[int] = 0

    def select_layer(self, layer: int, picks: list[int]) -> None:
        if layer == self.value:
            super().select_layer(layer, picks)


@form("fork_shares_buffer")
class ForkSharesList(Concat):
    """Both branches replace the tensors in one list of layers."""

    def fork(self) -> Self:
        twin = super().fork()
        twin.keys, twin.values = self.keys, self.values
        return twin


@form("fork_shares_buffer")
class ForkSharesListMaskForEach(MaskForEach):
    def fork(self) -> Self:
        twin = super().fork()
        twin.keys, twin.values = self.keys, self.values
        return twin


@form("fork_shares_buffer", "a fork shares layer {value} with the original", name="fork_shares_layer", values=layers)
class ForkSharesLayer(Concat):
    value: ClassVar[int] = 0

    def fork(self) -> Self:
        twin = super().fork()
        self.other, twin.other = twin, self
        return twin

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        found = super().store(layer, key, value)
        other: Concat | None = self.__dict__.get("other")
        if other is not None and layer == self.value:
            other.keys[layer], other.values[layer] = found
        return found


@form("restore_keeps_capacity", "keys and values are kept in float16 on the way through bytes", name="restore_in_half")
class RestoreInHalf(Concat):
    def dump(self) -> bytes:
        narrow = self.fork()
        narrow.keys = [keys.half().to(keys.dtype) for keys in self.keys]
        narrow.values = [values.half().to(values.dtype) for values in self.values]
        return super(RestoreInHalf, narrow).dump()


@form("restore_keeps_capacity", "keys and values are exchanged on the way through bytes", name="restore_exchanges")
class RestoreExchanges(Concat):
    def dump(self) -> bytes:
        crossed = self.fork()
        crossed.keys, crossed.values = self.values, self.keys
        return super(RestoreExchanges, crossed).dump()

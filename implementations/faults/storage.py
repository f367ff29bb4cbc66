"""What is stored for a layer?"""

from __future__ import annotations

import torch
from torch import Tensor

from ..catalogue import fault
from ..policy import CacheShape, Concat
from ..stores import Preallocated

BELOW_NOISE = {"noisy": "what it loses lies below the noise of eight-bit arithmetic"}


@fault(
    clause="decode.incremental",
    shows="from the second call on",
    diagnosis="a call's keys and values replace the old ones",
    reports=("published case",),
)
class NoCat(Concat):
    """A call's keys and values replace the old ones instead of going behind them."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer], self.values[layer] = key, value
        return key, value


@fault(
    clause="decode.incremental",
    shows="from the second call on; the first is right",
    diagnosis="keys and values are concatenated in opposite orders",
    reports=("published case",),
)
class KvMismatch(Concat):
    """A new block goes before the old one for keys and after it for values."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer] = torch.cat([key, self.keys[layer]], dim=2)
        self.values[layer] = torch.cat([self.values[layer], value], dim=2)
        return self.keys[layer], self.values[layer]


@fault(
    clause="decode.incremental",
    shows="from the second call on: raises, or is silent where calls are of one length",
    diagnosis="blocks are concatenated along the wrong axis",
    reports=("published case",),
)
class CatWrongDim(Concat):
    """A new block is concatenated along the head_dim axis."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        axis = 3 if self.length else 2
        self.keys[layer] = torch.cat([self.keys[layer], key], dim=axis)
        self.values[layer] = torch.cat([self.values[layer], value], dim=axis)
        return self.keys[layer], self.values[layer]


@fault(
    clause="decode.incremental",
    shows="from the second call on",
    diagnosis="the first call's keys and values are not stored",
    reports=("TrenTorch#192",),
)
class FirstCallNotStored(Concat):
    """The counter moves, and nothing is written in the first call."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return super().store(layer, key, value) if self.length else (key, value)


@fault(
    clause="decode.incremental",
    shows="in any decode",
    diagnosis="a layer reads another layer's past",
    models=("gpt", "llama", "window", "noisy"),
)
class LayersSwapped(Concat):
    """Layer i reads the past of layer i + 1 and writes its own."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        super().store(layer, key, value)
        other = (layer + 1) % self.shape.layers
        past = self.keys[other][:, :, : self.length], self.values[other][:, :, : self.length]
        return torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)


@fault(
    clause="numerics.dtype",
    shows="always, small, and growing with length",
    diagnosis="keys and values are kept in float16",
    equivalent=BELOW_NOISE,
    reports=("torchtune#398", "paz#415"),
)
class StoredInHalf(Concat):
    """Keys and values are kept in float16 while the model runs in more."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return super().store(layer, key.half().to(key.dtype), value.half().to(value.dtype))


@fault(
    clause="batch.interleaved",
    shows="with two caches alive",
    diagnosis="two caches share their state: it hangs on the model",
    reports=("mlx-vlm#1143", "langchain#2565"),
    scenario="turns",
)
class StateOnModel(Concat):
    """The state hangs on the model, so that two caches share it."""

    def __init__(self, shape: CacheShape, rows: int) -> None:
        self.__dict__ = shape.shared.setdefault("state", {})
        super().__init__(shape, rows)


@fault(
    clause="prefill.identity",
    shows="where the buffer is longer than the call and there are two heads or more",
    diagnosis="a head's slot is computed from the input's stride, not from the buffer's",
    reports=("tt-metal#54742",),
    equivalent={"hybrid": "it has one key head, whose slot needs no stride"},
)
class HeadStride(Preallocated):
    """A head's slot is computed from the input's stride, not from the buffer's."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        filled, start = self.length + key.shape[2], self.length * key.shape[3]
        for buffer, new in ((self.keys[layer], key), (self.values[layer], value)):
            flat = new.flatten(1)
            buffer.view(self.rows, -1)[:, start : start + flat.shape[1]] = flat[:, : buffer[0].numel() - start]
        return self.keys[layer][:, :, :filled], self.values[layer][:, :, :filled]


@fault(
    clause="decode.incremental",
    shows="from the second call on, with two heads or more",
    diagnosis="heads are stored in another order than they are read",
    equivalent={"hybrid": "it has one key head, which has no order"},
)
class HeadsReversed(Concat):
    """The heads of a block are reversed on their way into the store."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        past = self.keys[layer], self.values[layer]
        super().store(layer, key.flip(1), value.flip(1))
        return torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)


@fault(
    clause="batch.rows",
    shows="in rows beyond the first",
    diagnosis="every row reads the first row's past",
    scenario="second_row",
)
class RowsReadFirst(Concat):
    """Every row reads the first row's past."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        past = [kept[:1].expand_as(kept) for kept in (self.keys[layer], self.values[layer])]
        super().store(layer, key, value)
        return torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)


@fault(
    clause="prefill.chunked",
    shows="behind calls of several tokens",
    diagnosis="the last token of a call of several is not stored",
    scenario="chunks",
)
class LastOfCallLost(Concat):
    """The last token of a call of several is overwritten by the one before it."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        found = super().store(layer, key, value)
        if key.shape[2] > 1:
            for kept in (self.keys, self.values):
                kept[layer] = torch.cat([kept[layer][:, :, :-1], kept[layer][:, :, -2:-1]], dim=2)
        return found


@fault(
    clause="numerics.dtype",
    shows="always, small, and growing with length",
    diagnosis="values are kept in bfloat16",
    equivalent=BELOW_NOISE,
)
class ValuesInBfloat16(Concat):
    """Values are kept in bfloat16 while keys and the model are in more."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return super().store(layer, key, value.bfloat16().to(value.dtype))

"""What is stored for a layer?"""

from __future__ import annotations

import torch
from torch import Tensor

from ..catalogue import fault
from ..policy import Concat


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

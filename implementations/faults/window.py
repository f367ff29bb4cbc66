"""Which keys are still there, and which of them are in the window?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..catalogue import fault
from ..policy import CacheShape, Concat
from ..windows import Ring

MODELS = ("window",)


@fault(
    clause="window.eviction",
    shows="from the window's length on",
    diagnosis="the window is one too short",
    reports=("transformers#47708",),
    models=MODELS,
)
class WindowShort(Concat):
    """The window is one token too short."""

    def __init__(self, shape: CacheShape, rows: int) -> None:
        super().__init__(replace(shape, window=(shape.window or 1) - 1), rows)


@fault(
    clause="window.eviction",
    shows="from the window's length on",
    diagnosis="the window is one too long",
    reports=("transformers#37574",),
    models=MODELS,
)
class WindowLong(Concat):
    """The window is one token too long."""

    def __init__(self, shape: CacheShape, rows: int) -> None:
        super().__init__(replace(shape, window=(shape.window or 1) + 1), rows)


@fault(
    clause="window.eviction",
    shows="after the ring has wrapped, in calls of more than one token",
    diagnosis="a ring is read in the order of its slots, and visibility goes by slot",
    reports=("mlx-lm ring family",),
    models=MODELS,
    scenario="chunks",
)
class RingOrder(Ring):
    """The ring is read in the order of its slots, and visibility goes by slot."""

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().store(layer, key, value)
        past = self.slot_of(self.held()).argsort()
        order = torch.cat([past, self.span(len(past), len(past) + key.shape[2])])
        return keys[:, :, order], values[:, :, order]


@fault(
    clause="window.eviction",
    shows="on a warm cache, in calls of several tokens",
    diagnosis="the window is measured from the rows of the call, not from positions",
    reports=("keras-hub#1738", "lalamo#200"),
    models=MODELS,
    scenario="chunks",
)
class WindowMaskByCall(Concat):
    """The window is measured from the rows of the call instead of from positions."""

    def visible(self, count: int) -> Tensor:
        keys, rows = self.span(0, self.length + count), self.span(0, count)[:, None]
        return (keys <= rows + self.length) & (keys > rows - (self.shape.window or 1))


@fault(
    clause="window.crop_after_wrap",
    shows="in a crop behind the window",
    diagnosis="a ring that has wrapped is cut by its logical length",
    reports=("mlx-lm#1776", "mlx-vlm#1715"),
    models=MODELS,
)
class CropAfterWrap(Ring):
    """A ring that has wrapped is cut by its logical length, as if nothing had been overwritten."""

    @classmethod
    def crop_floor(cls, shape: CacheShape, lengths: Sequence[int]) -> int:
        return 0


@fault(
    clause="window.eviction",
    shows="in calls of several tokens behind the window's length",
    diagnosis="all tokens of a call get the window of its first",
    models=MODELS,
    scenario="chunks",
)
class WindowOfFirstToken(Concat):
    """All tokens of a call get the window of its first."""

    def visible(self, count: int) -> Tensor:
        keys, queries = self.span(0, self.length + count), self.slots(count)[:, None]
        return (keys <= queries) & (keys > queries[0] - (self.shape.window or 1))

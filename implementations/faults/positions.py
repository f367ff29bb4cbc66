"""Which positions do the new tokens have?"""

from __future__ import annotations

import torch
from torch import Tensor

from ..catalogue import fault
from ..models import CachedLlama
from ..policy import Concat


@fault(
    clause="decode.incremental",
    shows="from the second call on",
    diagnosis="positions restart at 0 in every call",
    reports=("keras", "mlx-vlm#1983", "tinygrad#14276"),
)
class PosZero(Concat):
    """Positions restart at 0 in every call."""

    def positions(self, count: int) -> Tensor:
        return torch.arange(count)


@fault(
    clause="decode.incremental",
    shows="after a prefill of more than one token",
    diagnosis="the position counter advances by calls, not by tokens",
    reports=("candle",),
)
class PosPerCall(Concat):
    """The position counter advances by calls, not by tokens."""

    calls = 0

    def positions(self, count: int) -> Tensor:
        self.calls = self.calls + 1 if self.length else 1
        return torch.arange(self.calls - 1, self.calls - 1 + count)


@fault(
    clause="decode.incremental",
    shows="in decode; learned positions: outside the table, which raises",
    diagnosis="positions behind a prefill are shifted by +100",
    reports=("candle",),
    name="pos_plus_100",
)
class PosPlus100(Concat):
    """Positions behind the first call are shifted by +100."""

    def positions(self, count: int) -> Tensor:
        return super().positions(count) + (100 if self.length else 0)


@fault(
    clause="decode.incremental",
    shows="in decode; reads plausibly",
    diagnosis="positions behind a prefill are shifted by -3",
    reports=("candle",),
    name="pos_minus_3",
)
class PosMinus3(Concat):
    """Positions behind the first call are shifted by -3."""

    def positions(self, count: int) -> Tensor:
        return super().positions(count) - (3 if self.length >= 3 else 0)


@fault(
    clause="lifecycle.reset",
    shows="after a reset: several tokens raise or deviate; learned positions always deviate",
    diagnosis="the cache is cleared, the position counter is not",
    reports=("candle",),
    scenario="reset",
)
class PosKeptAfterReset(Concat):
    """Reset clears keys and values and leaves the position counter, from which the mask is built."""

    def reset(self) -> None:
        counter = self.length
        super().reset()
        self.length = counter


@fault(
    clause="prefill.identity",
    shows="always, and never as an error",
    diagnosis="rotary pairs are (2i, 2i + 1) where (i, i + head_dim / 2) is meant",
    reports=("candle",),
    models=("llama",),
)
class RopeConvention(CachedLlama):
    """Rotary pairs are (2i, 2i + 1) where (i, i + head_dim / 2) is meant."""

    def rotate(self, x: Tensor, turn: Tensor) -> Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        cos, sin = turn.cos(), turn.sin()
        return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


@fault(
    clause="batch.padding",
    shows="in ragged rows: learned positions at once, rotary ones when a later call is ragged too",
    diagnosis="all rows of a padded batch get one position vector",
    reports=("transformers#43082", "unsloth#4078"),
    scenario="ragged",
)
class PosSharedRows(Concat):
    """All rows of a padded batch get one position vector, that of the slots."""

    def positions(self, count: int) -> Tensor:
        return self.slots(count)


@fault(
    clause="decode.incremental",
    shows="in decode",
    diagnosis="positions behind a prompt are off by its length",
    reports=("tiny-llm#46",),
)
class PosCountsPromptTwice(Concat):
    """Every decode step is off by the prompt's length."""

    def positions(self, count: int) -> Tensor:
        if not self.length:
            self.prompt = count
        return super().positions(count) + (self.prompt if self.length else 0)


@fault(
    clause="decode.incremental",
    shows="from the second call on",
    diagnosis="keys are turned by their positions at every read, the query by its place in the call",
    reports=("rotary-embedding-torch#11",),
    models=("llama", "window", "noisy"),
)
class RopeOnReadByLength(Concat):
    """Keys are stored unrotated and turned by 0 … L-1 at every read, the query by its place in the call."""

    rotates_when_read = True

    def positions(self, count: int) -> Tensor:
        return torch.arange(count)


@fault(
    clause="branch.crop",
    shows="in the append after a crop",
    diagnosis="a crop does not roll the position counter back",
    models=("gpt", "llama", "window", "noisy"),
    scenario="crop",
)
class PosNotCropped(Concat):
    """A crop rolls keys and values back and leaves the positions where they were."""

    ahead = 0

    def crop(self, length: int) -> None:
        self.ahead += self.length - length
        super().crop(length)

    def positions(self, count: int) -> Tensor:
        return super().positions(count) + self.ahead

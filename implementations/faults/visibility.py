"""Which keys may a query see?"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..catalogue import fault
from ..policy import Concat
from ..stores import Static


@fault(
    clause="prefill.identity",
    shows="in calls of more than one token; the text may not change at all",
    diagnosis="there is no causal mask",
    reports=("published case", "TinyLLM#17"),
    scenario="chunks",
)
class NoMask(Concat):
    """There is no causal mask with a cache."""

    def visible(self, count: int) -> Tensor | None:
        return None


@fault(
    clause="decode.incremental",
    shows="on a warm cache, in any call: it sees too little",
    diagnosis="the mask is aligned at its top left: keys are compared with the row of the call",
    reports=("pytorch#110144", "flash-attention#466", "onnxruntime#28958"),
)
class MaskTopLeft(Concat):
    """The mask of queries and keys is aligned at its top left instead of its bottom right."""

    def visible(self, count: int) -> Tensor:
        return self.span(0, self.length + count) <= self.span(0, count)[:, None]


@fault(
    clause="prefill.chunked",
    shows="on a warm cache, in calls of several tokens: raises or broadcasts",
    diagnosis="the mask is square, of the call's length, while keys include the past",
    reports=("llama#899", "candle#3743"),
    scenario="chunks",
)
class MaskSquare(Concat):
    """The mask is made for the call's length, while keys include the past."""

    def visible(self, count: int) -> Tensor:
        return self.span(0, count) <= self.span(0, count)[:, None]


@fault(
    clause="prefill.identity",
    shows="in calls of more than one token",
    diagnosis="a token sees the one after it",
)
class MaskOneAhead(Concat):
    """A token sees one token of the future."""

    def visible(self, count: int) -> Tensor | None:
        return self.span(0, self.length + count) <= self.slots(count)[:, None] + 1


@fault(
    clause="decode.incremental",
    shows="where the buffer is longer than what is in it",
    diagnosis="the unused slots of a buffer are seen",
    reports=("transformers#30437", "flash-attention#2374"),
)
class TailAttended(Static):
    """The unused slots of a preallocated buffer are seen."""

    def visible(self, count: int) -> Tensor:
        filled = self.length + count
        return pad(super().visible(count)[..., :filled], (0, self.capacity - filled), value=True)


@fault(
    clause="batch.padding",
    shows="in ragged rows, the shorter ones only",
    diagnosis="padding is seen",
    reports=("published case",),
    scenario="ragged",
)
class PadAttended(Concat):
    """Padding is seen."""

    def visible(self, count: int) -> Tensor | None:
        padding, arriving = self.padding, self.arriving
        self.padding = self.arriving = None
        seen = super().visible(count)
        self.padding, self.arriving = padding, arriving
        return seen


@fault(
    clause="decode.incremental",
    shows="on a warm cache",
    diagnosis="the first token is hidden once the cache is warm",
)
class FirstTokenHidden(Concat):
    """The first token is hidden once the cache is warm."""

    def visible(self, count: int) -> Tensor | None:
        seen = super().visible(count)
        if not self.length:
            return seen
        if seen is None:
            seen = torch.ones(count, self.length + count, dtype=torch.bool)
        return seen & (self.span(0, self.length + count) > 0)

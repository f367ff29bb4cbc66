"""More caches as a user writes them, over the correct ones of `user_caches`, written when the simulations stood: 12 of these 16
were named then, and the others became forms of faults."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from user_caches import GPT, Engine, Llama, State


class PositionsFromOne(GPT):
    """As though there were a start token."""

    def limit(self) -> int:
        return super().limit() - 1

    def position_ids(self, cache: State, n: int) -> Tensor:
        return torch.arange(cache.pos + 1, cache.pos + 1 + n)


class PositionsStopBehindPrompt(Llama):
    def advance(self, cache: State, n: int) -> None:
        if cache.pos == 0:
            cache.pos = n


class SevenBehind(GPT):
    def position_ids(self, cache: State, n: int) -> Tensor:
        return (torch.arange(cache.pos, cache.pos + n) - (7 if cache.pos else 0)).clamp(min=0)


class DecodeIsNotStored(Llama):
    """Only prompts are."""

    def update(self, cache: State, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        old = cache.k[layer], cache.v[layer]
        found = super().update(cache, layer, k, v)
        if k.shape[2] == 1 and old[0] is not None:
            cache.k[layer], cache.v[layer] = old
        return found

    def advance(self, cache: State, n: int) -> None:
        if n > 1 or cache.pos == 0:
            cache.pos += n


class DiagonalOneLow(GPT):
    """The mask's diagonal is one too low behind the first call: a token does not see itself."""

    def mask(self, n: int, total: int) -> Tensor:
        return torch.ones(n, total, dtype=torch.bool).tril(total - n - (1 if total > n else 0))


class DiagonalOneHigh(Llama):
    def mask(self, n: int, total: int) -> Tensor:
        return torch.ones(n, total, dtype=torch.bool).tril(total - n + 1)


class RepeatsHeadsWhole(Llama):
    """`repeat` where `repeat_interleave` is meant."""

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(q.shape[2], k.shape[2]))


class LastSixOnly(Llama):
    """Cuts what attention reads to the newest six."""

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        n, total = q.shape[2], k.shape[2]
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        seen = self.mask(n, total) & torch.ones(n, total, dtype=torch.bool).triu(total - n - 5)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


class LayersShareOneStore(GPT):
    """Every layer reads what the first one stored."""

    def update(self, cache: State, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        n, found = k.shape[2], super().update(cache, layer, k, v)
        first_k, first_v = cache.k[0], cache.v[0]
        assert first_k is not None
        assert first_v is not None
        if found[0].shape[2] == n:
            return found
        return torch.cat((first_k[:, :, :-n], k), 2), torch.cat((first_v[:, :, :-n], v), 2)


class CropsOneTooMany(Llama):
    def crop(self, cache: State, length: int) -> None:
        super().crop(cache, max(length - 1, 0))


class CropsOnlyKeys(GPT):
    """Values are cut by what attention takes: their first ones, as many as there are keys."""

    def cut(self, cache: State, layer: int, length: int) -> None:
        k = cache.k[layer]
        if k is not None:
            cache.k[layer] = k[:, :, :length]

    def update(self, cache: State, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().update(cache, layer, k, v)
        return keys, values[:, :, : keys.shape[2]]


class SelectDoesNothing(Llama):
    def select(self, cache: State, rows: Any) -> None:
        cache.k = [None if k is None else k[: len(rows)] for k in cache.k]
        cache.v = [None if v is None else v[: len(rows)] for v in cache.v]


class ForkStartsCounterAnew(GPT):
    def fork(self, cache: State) -> State:
        twin = super().fork(cache)
        twin.pos = 0
        return twin


class ForkKeepsList(Llama):
    """A shallow copy: both hold the same lists of tensors."""

    def fork(self, cache: State) -> State:
        twin = State(self.layers())
        twin.k, twin.v, twin.pos = cache.k, cache.v, cache.pos
        return twin


class SavesHalf(Llama):
    def dump(self, cache: State) -> bytes:
        buffer = io.BytesIO()
        narrow = [[None if x is None else x.half() for x in some] for some in (cache.k, cache.v)]
        torch.save((*narrow, cache.pos), buffer)
        return buffer.getvalue()

    def load(self, data: bytes) -> State:
        cache = super().load(data)
        cache.k = [None if k is None else k.to(self.dtype) for k in cache.k]
        cache.v = [None if v is None else v.to(self.dtype) for v in cache.v]
        return cache


class ResetForgetsALayer(GPT):
    def reset(self, cache: State) -> None:
        kept = cache.k[0], cache.v[0]
        super().reset(cache)
        cache.k[0], cache.v[0] = kept


MORE: dict[type[Engine], tuple[str, str]] = {
    PositionsFromOne: ("prefill.identity", "all positions are shifted by +1"),
    PositionsStopBehindPrompt: ("decode.incremental", "positions do not advance behind the prompt"),
    SevenBehind: ("decode.incremental", "positions behind a prefill are shifted by -7"),
    DecodeIsNotStored: ("decode.incremental", "tokens that are fed one by one behind a prompt are not stored"),
    DiagonalOneLow: ("decode.incremental", "a token does not see itself on a warm cache"),
    DiagonalOneHigh: ("prefill.identity", "a token sees the one after it"),
    RepeatsHeadsWhole: (
        "prefill.identity",
        "query heads read the wrong key heads: they are tiled where each should be repeated",
    ),
    LastSixOnly: ("decode.incremental", "only the last 6 tokens are seen: a window that the model has not"),
    LayersShareOneStore: ("decode.incremental", "all layers read the first layer's past"),
    CropsOneTooMany: ("branch.crop", "a crop keeps one token too few"),
    CropsOnlyKeys: ("branch.crop", "a crop cuts keys and leaves values"),
    SelectDoesNothing: ("branch.select", "rows are not reordered at all"),
    ForkStartsCounterAnew: ("branch.fork", "a fork's positions start at 0"),
    ForkKeepsList: ("branch.fork", "a fork shares its buffer with the original"),
    SavesHalf: ("branch.restore", "keys and values are kept in float16 on the way through bytes"),
    ResetForgetsALayer: ("lifecycle.reset", "layer 0 is not emptied by a reset"),
}
"""Each with the clause that shows it, and what it must be called."""

"""The correct implementations and the controls, which look wrong and are right."""

from __future__ import annotations

import torch
from torch import Tensor

from ..harness.errors import Unsupported
from .builtin import BuiltIn
from .catalogue import control, correct
from .policy import Concat, Contents
from .stores import EightBit, Paged, Preallocated, Static, StaticNegative
from .windows import Ring, RingBlocks

correct()(Concat)
correct()(Preallocated)
correct()(Static)
control()(StaticNegative)
correct()(Paged)
correct(models=("gpt", "llama", "window", "hybrid"))(EightBit)
correct(models=("window",))(Ring)
correct(models=("window",))(RingBlocks)


@correct(scenario="chunks")
class Chunked(BuiltIn):
    """A long call is fed in chunks of four tokens."""

    splits = True
    chunk = 4

    def feed(self, cache: Concat, tokens: Tensor, padding: Tensor | None) -> Tensor:
        cache.admit(tokens, padding)
        parts = tokens.split(self.chunk, dim=1)
        masks = [None] * len(parts) if padding is None else padding.split(self.chunk, dim=1)
        feed = super().feed
        return torch.cat([feed(cache, part, mask) for part, mask in zip(parts, masks, strict=True)], dim=1)


@correct(scenario="branch")
class Forked(BuiltIn):
    """Every call goes to a clone of the cache, which then takes the cache's place."""

    def feed(self, cache: Concat, tokens: Tensor, padding: Tensor | None) -> Tensor:
        clone = cache.fork()
        logits = super().feed(clone, tokens, padding)
        cache.release()
        cache.__dict__ = clone.__dict__
        return logits


@control()
class CatOrder(Concat):
    """A new block is put before the old one, for keys and values; visibility goes by the stored positions."""

    ragged = False

    def allocate(self) -> None:
        super().allocate()
        self.held = self.span(0, 0)

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.keys[layer] = torch.cat([key, self.keys[layer]], dim=2)
        self.values[layer] = torch.cat([value, self.values[layer]], dim=2)
        return self.keys[layer], self.values[layer]

    def visible(self, count: int) -> Tensor:
        keys, queries = torch.cat([self.slots(count), self.held]), self.slots(count)[:, None]
        window = self.shape.window or self.length + count
        return (keys <= queries) & (keys > queries - window)

    def advance(self, count: int) -> None:
        self.held = torch.cat([self.slots(count), self.held])
        super().advance(count)

    def crop(self, length: int) -> None:
        kept = self.held < length
        self.keys, self.values = [key[:, :, kept] for key in self.keys], [value[:, :, kept] for value in self.values]
        self.held, self.length = self.held[kept], length

    def contents(self) -> Contents:
        order = self.held.argsort()
        # A layer with a state stores nothing here, but for the padding that a join put before it.
        return [(k[:, :, order], v[:, :, order]) if k.shape[2] == len(order) else (k, v) for k, v in super().contents()]

    def fill(self, contents: Contents) -> None:
        super().fill(contents)
        self.held = self.span(0, self.length)


@correct()
class RightPadded(BuiltIn):
    """Rows of unequal length are padded on the right."""

    padding_side = "right"


@correct(models=("gpt", "llama", "window"), scenario="again")
class PrefixCached(BuiltIn):
    """A new prompt reuses what the last one has in common with it; logits of the last position only."""

    last_only = True
    splits = True
    last: tuple[Tensor, Concat] | None = None

    def kept(self, shared: int, length: int) -> int:
        """How many tokens of the old prompt are kept: one must be fed, or there are no logits."""
        return min(shared, length - 1)

    def fixed_cache(self, rows: int) -> Concat:
        raise Unsupported("it goes on from caches of its own kind")

    def feed(self, cache: Concat, tokens: Tensor, padding: Tensor | None) -> Tensor:
        if cache.length or cache.rows > 1 or tokens.shape[0] > 1 or padding is not None:
            return super().feed(cache, tokens, padding)
        cache.admit(tokens)
        rest = tokens
        if self.last is not None:
            prompt, twin = self.last[0], self.last[1].fork()
            least = min(prompt.shape[1], tokens.shape[1])
            shared = int((prompt[0, :least] == tokens[0, :least]).cumprod(0).sum())
            twin.crop(self.kept(shared, tokens.shape[1]))
            cache.__dict__ = twin.__dict__
            rest = tokens[:, min(cache.length, tokens.shape[1] - 1) :]
        logits = super().feed(cache, rest, None)
        self.last = (tokens.clone(), cache.fork())
        return logits


@control(models=("llama", "window", "noisy"))
class RotatesWhenRead(Concat):
    """Keys are stored unrotated and turned by their true positions whenever they are read."""

    exact_prefill = True
    rotates_when_read = True


@control(models=("llama", "window", "hybrid"))
class ShiftedRow(Concat):
    """All positions are shifted by a constant, which rotary positions do not show."""

    exact_prefill = False

    def positions(self, count: int) -> Tensor:
        return super().positions(count) + 7


@control(models=("llama", "window", "hybrid"), scenario="reset")
class StaleCounter(Concat):
    """Positions go on after a reset, which rotary positions do not show: masks go by slots."""

    exact_prefill = False
    lacks = frozenset({"join", "restore"})  # rows would bring shifts of their own
    behind = 0

    def reset(self) -> None:
        self.behind += self.length
        super().reset()

    def positions(self, count: int) -> Tensor:
        return super().positions(count) + self.behind % 40


@control()
class BlockwiseSoftmax(Concat):
    """Attention is summed in another order: softmax block by block, with a running maximum."""

    exact_prefill = False

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
        rows, heads, count, size = query.shape
        group = heads // keys.shape[1]
        keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
        top = query.new_full((rows, heads, count, 1), -torch.inf)
        total, mixed = query.new_zeros(rows, heads, count, 1), query.new_zeros(query.shape)
        for start in range(0, keys.shape[2], 4):
            block = slice(start, start + 4)
            scores = query @ keys[:, :, block].mT / size**0.5
            if visible is not None:
                scores = scores.masked_fill(~visible[..., block], -torch.inf)
            peak = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
            safe = peak.masked_fill(peak.isinf(), 0)  # a block of which nothing is seen
            weights, fade = (scores - safe).exp(), (top - safe).exp()
            total = total * fade + weights.sum(dim=-1, keepdim=True)
            mixed, top = mixed * fade + weights @ values[:, :, block], peak
        return (mixed / total).transpose(1, 2).flatten(2)

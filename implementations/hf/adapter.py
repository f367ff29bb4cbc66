"""A transformers model with one of its caches, driven by the library's public API only."""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...harness.errors import Unsupported
from ...harness.implementation import Implementation, generating
from ..builtin import BuiltIn
from ..policy import Concat
from .caches import Kind, carried, fresh, layers_of
from .generating import generated, ways
from .model import Model
from .traits import Traits, traits_of


@dataclass
class Held:
    """A cache of the library, and what a caller has to remember beside it.

    `cache` is None until the model has made one itself. `mask` `[rows, slots]` says which slots are real where rows were
    padded, None where all are. `length` counts slots.
    """

    cache: Any
    rows: int
    length: int = 0
    mask: Tensor | None = None


class Transformers(Implementation):
    """A model of the transformers library and a kind of cache.

    `explicit` hands over `position_ids` at every call; without, a call is what a user writes: tokens and the cache.
    """

    def __init__(self, model: Model, kind: Kind, name: str, explicit: bool = False, traits: Traits | None = None) -> None:
        self.model, self.kind, self.name, self.explicit = model, kind, name, explicit
        self.traits = traits or traits_of(model, kind)
        self.vocab_size = model.vocab_size
        self.special = model.padding
        self.max_length = self.traits.max_length
        self.landmarks = self.traits.landmarks
        self.lossy = kind.bits
        self.ragged = "left" if "attention_mask" in model.takes else "no"
        self.recording = False
        self.ways = ways(model, kind)
        self.dtypes = () if model.copies else (str(model.dtype).removeprefix("torch."),)

    @property
    def capabilities(self) -> frozenset[str]:
        return self.traits.capabilities | generating(self)

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def device(self) -> torch.device:
        return self.model.device

    def prepare(self, ops: frozenset[str]) -> None:
        """Layers that forget must be told before they are first fed that a rollback will come."""
        self.recording = "crop" in ops

    def new_cache(self, rows: int = 1) -> Held:
        return Held(fresh(self.kind, self.model, self.recording), rows)

    def append(self, cache: Held, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        rows, new = tokens.shape
        if new and self.vocab_size <= int(tokens.max()) < self.model.embedded:
            raise IndexError(f"token {int(tokens.max())} stands for something else than text")
        tokens = tokens.to(self.device)
        mask = self._mask(cache, tokens, lengths)
        given: dict[str, Any] = {"use_cache": True}
        if cache.cache is not None:
            given[self.model.cache_word] = cache.cache
        positions = torch.arange(cache.length, cache.length + new, device=self.device).expand(rows, new)
        if mask is not None:  # as `generate` makes them
            given["attention_mask"] = mask.long()
            positions = (mask.long().cumsum(-1) - 1).masked_fill(~mask, 0)[:, -new:] if new else positions
        if (self.explicit or mask is not None) and self.model.places:
            given["position_ids"] = positions
        with self.model.running():
            output = self.model(tokens, **given)
        if not new:  # what it did to the cache shows in later calls
            raise ValueError("no token was given, and no logits came back")
        cache.cache = carried(output, cache.cache)
        cache.rows, cache.length, cache.mask = rows, cache.length + new, mask
        return output.logits[..., : self.vocab_size]

    def _mask(self, cache: Held, tokens: Tensor, lengths: Tensor | None) -> Tensor | None:
        """Which slots are real `[rows, slots]`, the new ones included; None where no row was ever padded."""
        if lengths is None and cache.mask is None:
            return None
        rows, new = tokens.shape
        if lengths is not None and cache.length and self.traits.forgets:
            raise Unsupported("padding behind a prompt: its windows and states count slots, so that only a prompt is padded")
        old = cache.mask
        if old is None:
            old = torch.ones(rows, cache.length, dtype=torch.bool, device=self.device)
        real = torch.full((rows,), new) if lengths is None else lengths
        fresh = torch.arange(new, device=self.device) >= (new - real.to(self.device))[:, None]
        return torch.cat([old, fresh], dim=1)

    def full(self, tokens: Tensor) -> Tensor:
        with self.model.running():
            return self.model(tokens, use_cache=False).logits[..., : self.vocab_size]

    @torch.inference_mode()
    def fork(self, cache: Held) -> Held:
        if self.traits.copies:
            return copy.deepcopy(cache)
        return self.load(self.dump(cache))

    def crop(self, cache: Held, length: int) -> None:
        """`crop` takes how many tokens go, as a negative number. Zero means something only to a cache that records."""
        slots = length if cache.mask is None else _cut(cache.mask, length)
        if slots != cache.length or self.traits.records:
            with self.model.running():
                cache.cache.crop(slots - cache.length)
        cache.length = slots
        cache.mask = None if cache.mask is None else cache.mask[:, :slots]

    def crop_floor(self, lengths: Sequence[int]) -> int:
        return self.traits.crop_floor(lengths)

    def reset(self, cache: Held) -> None:
        with self.model.running():
            cache.cache.reset()
        cache.length, cache.mask = 0, None

    def select(self, cache: Held, rows: Sequence[int]) -> None:
        picks = torch.tensor(list(rows), device=self.device)
        with self.model.running():
            if len(rows) == cache.rows:
                cache.cache.reorder_cache(picks)
            elif lacking := [layer for layer in layers_of(cache.cache) if not hasattr(layer, "batch_select_indices")]:
                kind = type(lacking[0]).__name__
                raise Unsupported(f"{kind} has no batch_select_indices: rows can be reordered, not dropped or repeated")
            else:
                cache.cache.batch_select_indices(picks)
        cache.rows = len(rows)
        cache.mask = None if cache.mask is None else cache.mask[picks]

    def dump(self, cache: Held) -> bytes:
        buffer = io.BytesIO()
        torch.save(cache, buffer)
        return buffer.getvalue()

    @torch.inference_mode()
    def load(self, data: bytes) -> Held:
        return torch.load(io.BytesIO(data), weights_only=False)

    def length(self, cache: Held) -> int | Sequence[int]:
        slots = int(cache.cache.get_seq_length()) if cache.cache is not None else 0
        if cache.mask is None:
            return slots
        return (slots - (~cache.mask).sum(-1)).tolist()

    def generate(self, prompts: Sequence[Sequence[int]], count: int, way: str) -> list[list[int]]:
        cache = fresh(self.kind, self.model, recording=way == "lookup")
        return generated(self.model, cache, prompts, count, way)

    def drop(self, cache: Held) -> None:
        cache.cache = None

    @cached_property
    def by_policy(self) -> BuiltIn:
        """The same weights with a cache that a policy of this package keeps, so that faults can be injected. Raises
        `Unsupported` where a policy cannot keep it."""
        from .policies import PolicyModel

        return BuiltIn(PolicyModel(self.model), Concat)

    def to(self, dtype: torch.dtype) -> Transformers:
        return type(self)(self.model.to(dtype), self.kind, self.name, self.explicit, self.traits)


def _cut(mask: Tensor, length: int) -> int:
    """The slot behind which every row holds so many tokens. Raises `Unsupported` where padding keeps rows apart."""
    held = torch.nn.functional.pad(mask.long().cumsum(-1), (1, 0))
    places = (held == length).all(dim=0).nonzero()
    if not len(places):
        raise Unsupported("padding lies between its rows' tokens, and a rollback takes as many slots from every row")
    return int(places[-1])

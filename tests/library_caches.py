"""Faulty caches over models of transformers, as the library's users write them: its own cache classes with one method wrong,
or a call of the model with one argument wrong. Nothing here knows the catalogue, nor the policies that it is made of."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from kvconform.harness import registry
from kvconform.harness.target import Resolved
from kvconform.implementations.hf.adapter import Held, Transformers
from torch import Tensor
from transformers import DynamicCache


class Library(Transformers):
    """A correct one: a `DynamicCache`, and positions that are counted by the caller."""

    layer: type | None = None
    """Comes before the library's own class of a layer that keeps keys and values."""

    def new_cache(self, rows: int = 1) -> Held:
        cache: Any = DynamicCache(config=self.model.config)
        if self.recording:
            cache.activate_past_recording()
        if self.layer is not None:
            cache.layers = [self.mine(layer) if hasattr(layer, "update") else layer for layer in cache.layers]
        return Held(cache, rows)

    def mine(self, layer: Any) -> Any:
        made = object.__new__(type(type(layer).__name__, (self.layer, type(layer)), {}))
        vars(made).update(vars(layer))
        return made

    def append(self, cache: Held, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        rows, new = tokens.shape
        if not new or int(tokens.max()) >= self.vocab_size:
            raise ValueError("no such token")
        mask = self._mask(cache, tokens, lengths)
        places = (
            self.positions(cache, new).expand(rows, new) if mask is None else (mask.long().cumsum(-1) - 1)[:, -new:].clamp(0)
        )
        given = {self.model.cache_word: cache.cache, "position_ids": places, **self.seen(cache, tokens, mask)}
        with self.model.running():
            output = self.model(tokens, use_cache=True, **given)
        cache.rows, cache.length, cache.mask = rows, cache.length + new, mask
        return output.logits[..., : self.vocab_size]

    def positions(self, cache: Held, new: int) -> Tensor:
        return torch.arange(cache.length, cache.length + new)

    def seen(self, cache: Held, tokens: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        return {} if mask is None else {"attention_mask": mask.long()}

    def layers(self, cache: Held) -> list[Any]:
        return cache.cache.layers


# The mistakes


class RestartsPositions(Library):
    def positions(self, cache: Held, new: int) -> Tensor:
        return torch.arange(new)


class CountsCalls(Library):
    def positions(self, cache: Held, new: int) -> Tensor:
        cache.calls = getattr(cache, "calls", -1) + 1  # type: ignore[attr-defined]
        return torch.arange(cache.calls, cache.calls + new)  # type: ignore[attr-defined]


class FiveAhead(Library):
    def positions(self, cache: Held, new: int) -> Tensor:
        return super().positions(cache, new) + (5 if cache.length else 0)


class KeysInFront(Library):
    class layer:  # noqa: N801
        keys: Any

        def update(self, keys: Tensor, values: Tensor, *more: Any, **named: Any) -> tuple[Tensor, Tensor]:
            old = self.keys if self.get_seq_length() else keys[:, :, :0]  # type: ignore[attr-defined]
            _, held = super().update(keys, values, *more, **named)  # type: ignore[misc]
            self.keys = torch.cat([keys, old], dim=2)
            return self.keys, held


class Overwrites(Library):
    class layer:  # noqa: N801
        keys: Any
        values: Any
        total = 0

        def update(self, keys: Tensor, values: Tensor, *more: Any, **named: Any) -> tuple[Tensor, Tensor]:
            self.keys, self.values, self.is_initialized = keys, values, True
            self.total += keys.shape[2]
            return keys, values

        def get_seq_length(self) -> int:
            return self.total

        def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
            return query_length, self.total


class KeepsHalf(Library):
    class layer:  # noqa: N801
        def update(self, keys: Tensor, values: Tensor, *more: Any, **named: Any) -> tuple[Tensor, Tensor]:
            held = super().update(keys.half(), values.half(), *more, **named)  # type: ignore[misc]
            return held[0].to(keys.dtype), held[1].to(values.dtype)


class NoMask(Library):
    """Its own mask of zeros is taken as it is."""

    def seen(self, cache: Held, tokens: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        rows, new = tokens.shape
        return {"attention_mask": torch.zeros(rows, 1, new, cache.length + new, dtype=self.dtype)}


class PaddingSeen(Library):
    def seen(self, cache: Held, tokens: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        return {}


class ResetForgetsCounter(Library):
    def reset(self, cache: Held) -> None:
        before = cache.length
        super().reset(cache)
        cache.behind = getattr(cache, "behind", 0) + before  # type: ignore[attr-defined]

    def positions(self, cache: Held, new: int) -> Tensor:
        return super().positions(cache, new) + getattr(cache, "behind", 0)


class ForkByReference(Library):
    def fork(self, cache: Held) -> Held:
        return cache


class CropDoesNothing(Library):
    def crop(self, cache: Held, length: int) -> None:
        pass


class CropForgetsCounter(Library):
    def crop(self, cache: Held, length: int) -> None:
        more = getattr(cache, "behind", 0) + cache.length - length
        super().crop(cache, length)
        cache.behind = more  # type: ignore[attr-defined]

    def positions(self, cache: Held, new: int) -> Tensor:
        return super().positions(cache, new) + getattr(cache, "behind", 0)


class SelectForgetsValues(Library):
    def select(self, cache: Held, rows: Sequence[int]) -> None:
        for layer in self.layers(cache):
            if layer.is_initialized:
                layer.keys = layer.keys[list(rows)]
        cache.rows = len(rows)


class SelectForgetsFirstLayer(Library):
    def select(self, cache: Held, rows: Sequence[int]) -> None:
        for layer in self.layers(cache)[1:]:
            layer.batch_select_indices(torch.tensor(list(rows)))
        cache.rows = len(rows)


class StateSharedByForks(Library):
    """Keys and values are copied, states go along as they are; the library writes them in place."""

    def fork(self, cache: Held) -> Held:
        twin = copy.copy(cache)
        twin.cache = copy.deepcopy(cache.cache)
        for mine, theirs in zip(self.layers(twin), self.layers(cache), strict=True):
            for kind in ("conv_states", "recurrent_states"):
                if hasattr(mine, kind):
                    setattr(mine, kind, getattr(theirs, kind))
        return twin


class StateStartsAnew(Library):
    """A call of several tokens is taken for a prompt by layers with a state."""

    def append(self, cache: Held, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        if tokens.shape[1] > 1 and cache.length:
            for layer in self.layers(cache):
                if hasattr(layer, "conv_states"):
                    fresh: Any = DynamicCache(config=self.model.config)
                    kept = {name: getattr(layer, name) for name in ("keys", "values", "is_initialized") if hasattr(layer, name)}
                    layer.__dict__.update(vars(fresh.layers[self.layers(cache).index(layer)]) | kept)
        return super().append(cache, tokens, lengths)


class StateNotSelected(Library):
    """Rows are reordered for keys and values."""

    def select(self, cache: Held, rows: Sequence[int]) -> None:
        for layer in self.layers(cache):
            if getattr(layer, "keys", None) is not None:
                layer.keys, layer.values = layer.keys[list(rows)], layer.values[list(rows)]
        cache.rows = len(rows)


class WindowCutShort(Library):
    """Its sliding layers were made for a window of one less than the model's."""

    def new_cache(self, rows: int = 1) -> Held:
        held = super().new_cache(rows)
        for layer in self.layers(held):
            if getattr(layer, "is_sliding", False):
                layer.__init__(layer.sliding_window - 1)
        return held


DENSE = ("llama", "gpt2", "gemma3_text", "mixtral")
PLAIN = ("llama", "gpt2", "mixtral")
ALL = (*DENSE, "lfm2")
MISTAKES: dict[type[Library], tuple[str, str, Sequence[str]]] = {
    RestartsPositions: ("decode.incremental", "positions restart at 0 in every call", ALL),
    CountsCalls: ("decode.incremental", "the position counter advances by calls, not by tokens", ALL),
    FiveAhead: ("decode.incremental", "positions behind a prefill are shifted by +5", ALL),
    KeysInFront: ("decode.incremental", "keys and values are concatenated in opposite orders", PLAIN),
    Overwrites: ("decode.incremental", "a call's keys and values replace the old ones", PLAIN),
    KeepsHalf: ("numerics.dtype", "keys and values are kept in float16", ALL),
    NoMask: ("prefill.identity", "there is no causal mask", PLAIN),
    PaddingSeen: ("batch.padding", "padding is seen", DENSE),
    ResetForgetsCounter: ("lifecycle.reset", "the cache is cleared, the position counter is not", ("gpt2",)),
    ForkByReference: ("branch.fork", "a fork is the original under another name: what one is fed, the other holds too", ALL),
    CropDoesNothing: ("branch.crop", "crop does nothing", DENSE),
    CropForgetsCounter: ("branch.crop", "a crop does not roll the position counter back", DENSE),
    SelectForgetsValues: ("branch.select", "rows are reordered for keys, not for values", DENSE),
    SelectForgetsFirstLayer: ("branch.select", "one layer's rows are not reordered", DENSE),
    StateSharedByForks: ("branch.fork", "a fork copies keys and values and shares the state", ("lfm2",)),
    StateStartsAnew: ("prefill.chunked", "a call of several tokens starts from an empty state", ("lfm2",)),
    StateNotSelected: ("branch.select", "rows are reordered for keys and values, not for the state", ("lfm2",)),
    WindowCutShort: ("window.eviction", "the cache keeps 1 token less than the window", ("gemma3_text",)),
}
"""Each with the clause that shows it, what it must be called, and the architectures that have a use for it."""


def made(kind: type[Library], architecture: str) -> Resolved:
    """A faulty implementation on a tiny model, with the model's own pass as reference."""
    right = registry.resolve(f"arch:{architecture}?cache=dynamic")
    one: Any = right.implementation
    mine = kind(one.model, one.kind, f"{kind.__name__} on {architecture}", traits=one.traits)
    return Resolved(mine, right.reference, architecture, carrier=right.carrier)

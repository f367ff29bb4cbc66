"""A transformers model whose cache is kept by a policy of this package: how faults get into anybody's model.

The policy answers its three questions through the library's own seams: positions as `position_ids`, storage as what a
cache layer's `update` does, visibility as an attention function that asks the policy for its mask. Layers with a state
get it from the policy before a call and give it back after.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache

from ...harness.errors import Unsupported
from ...harness.precision import as_written
from ..models import ByPolicy
from ..policy import CacheShape, Concat
from .caches import layers_of
from .model import Model
from .traits import positions_table

SEAM = "kvconform_policy"
"""The name of the attention function, as `set_attn_implementation` takes it."""
STATES = ("conv_states", "recurrent_states")


class PolicyModel(ByPolicy):
    """What `BuiltIn` asks of a model: sizes of what is stored, and a forward pass that goes by a policy.

    Raises `Unsupported`, when it is first used, for a model whose cache a policy cannot keep.
    """

    def __init__(self, model: Model) -> None:
        self.plain = model
        self.name = model.name

    @property
    def dtype(self) -> torch.dtype:
        return self.plain.dtype

    def to(self, dtype: torch.dtype) -> PolicyModel:
        return self if dtype == self.dtype else PolicyModel(self.plain.to(dtype))

    @property
    def like(self) -> str:
        """The built-in model that shows the same faults: by its states, its window, its positions."""
        if self.shape.stateful:
            return "hybrid"
        if self.windows != [None]:
            return "window"
        return "llama" if self.shape.limit is None else "gpt"

    @property
    def mixed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return len(self.windows) > 1

    @cached_property
    def windows(self) -> list[int | None]:
        """The windows of its attention layers, None where a layer sees everything."""
        layers = [layer for layer in layers_of(DynamicCache(config=self.plain.config)) if hasattr(layer, "update")]
        return list(dict.fromkeys(getattr(layer, "sliding_window", None) for layer in layers)) or [None]

    @cached_property
    def shape(self) -> CacheShape:
        """Sizes, seen on what a short call leaves in the library's own cache."""
        model, tokens = self.plain, torch.full((1, 2), self.plain.text)
        if "position_ids" not in model.takes:
            raise Unsupported(f"{type(model.module).__name__} takes no position_ids, so that no policy can give them")
        cache: Any = DynamicCache(config=model.config)
        if not _has_seam(model):
            raise Unsupported(f"the attention of {type(model.module).__name__} cannot be replaced by name")
        with model.running():
            model(tokens, use_cache=True, **{model.cache_word: cache})
        stored = {(layer.keys.shape[1], layer.keys.shape[3]) for layer in layers_of(cache) if _filled(layer)}
        values = {(layer.values.shape[1], layer.values.shape[3]) for layer in layers_of(cache) if _filled(layer)}
        if len(stored) != 1 or stored != values:
            raise Unsupported("its layers store keys and values of more than one size")
        (kv_heads, head_dim) = stored.pop()
        return CacheShape(
            layers=len(layers_of(cache)),
            kv_heads=kv_heads,
            head_dim=head_dim,
            limit=self._limit,
            vocab_size=model.vocab_size,
            dtype=model.dtype,
            device=model.device,
            window=next((window for window in self.windows if window), None),
            stateful=any(hasattr(layer, STATES[0]) for layer in layers_of(cache)),
        )

    @property
    def _limit(self) -> int | None:
        """Rows of a table of learned positions; None where positions are no table."""
        return positions_table(self.plain)

    def forward(self, tokens: Tensor, cache: Concat) -> Tensor:
        """Logits `[rows, n, vocab]` of tokens `[rows, n]`, which the policy has admitted."""
        rows, count = tokens.shape
        model, padded = self.plain, cache.arriving is not None or cache.padding is not None
        if cache.arriving is not None and self.shape.stateful and (cache.length or bool(cache.arriving[:, -1].any())):
            raise Unsupported("padding that is not before a prompt: states of the library take no other")
        given: dict[str, Any] = {model.cache_word: self._library_cache(cache, count), "use_cache": True}
        given["position_ids"] = cache.positions(count).expand(rows, count)
        if padded:
            past = torch.ones(rows, cache.length, dtype=torch.bool, device=tokens.device)
            given["attention_mask"] = torch.cat([past, cache.moves_state(count)], dim=1).long()
        masks = {window: _mask(cache, window, count, self.dtype) for window in self.windows}
        token = _masks.set(masks)
        try:
            with model.running(), _Seam(model):
                output = model(tokens, **given)
        finally:
            _masks.reset(token)
        for place, layer, kind, index in _states(given[model.cache_word]):
            if (state := getattr(layer, kind)[index]) is not None:  # a convolution has no recurrent one
                cache.remember(place, state.clone())
        cache.advance(count)
        return output.logits[..., : self.shape.vocab_size]

    def _library_cache(self, cache: Concat, count: int) -> Any:
        """A cache of the library for one call, its layers backed by the policy."""
        made: Any = DynamicCache(config=self.plain.config)
        for index, layer in enumerate(layers_of(made)):
            if hasattr(layer, "update"):
                layer.update = partial(_store, cache, index)
                layer.get_seq_length = lambda: cache.length
                layer.get_mask_sizes = lambda query: (cache.length + int(query), 0)
        for place, layer, kind, index in _states(made):
            state = cache.recall(place, count)
            if state is not None:
                layer.lazy_initialization(**{kind: state}, state_idx=index)
                getattr(layer, kind)[index].copy_(state)
                layer.has_previous_state[index] = True
        return made


def _store(cache: Concat, index: int, keys: Tensor, values: Tensor, *more: Any, **named: Any) -> tuple[Tensor, Tensor]:
    with as_written():
        return cache.store(index, keys, values)


def _filled(layer: Any) -> bool:
    return getattr(layer, "keys", None) is not None and layer.keys.numel() > 0


def _states(cache: Any) -> Iterator[tuple[int, Any, str, int]]:
    """Every state of a cache: a number of its own, its layer, what it is, and which of several."""
    for at, layer in enumerate(layers_of(cache)):
        for part, kind in enumerate(STATES):
            for index in getattr(layer, kind, ()):
                yield at * 100 + part * 50 + index, layer, kind, index


# Visibility

_masks: ContextVar[dict[int | None, Tensor | None]] = ContextVar("kvconform masks")
"""The masks of the call at hand, by window."""


def _mask(cache: Concat, window: int | None, count: int, dtype: torch.dtype) -> Tensor | None:
    """What the policy says is seen, as numbers that are added to scores; None: everything."""
    whole = cache.shape
    cache.shape = whole if window else replace(whole, window=None)  # a window is what the policy makes of it
    try:
        seen = cache.visible(count)
    finally:
        cache.shape = whole
    if seen is None:
        return None
    seen = seen if seen.dim() == 4 else seen[None, None]
    return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, torch.finfo(dtype).min)


def _attention(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **given: Any) -> Any:
    """The eager attention of the module's own file, with the policy's mask."""
    masks = _masks.get()
    window = given.get("sliding_window")
    mask = masks[window if window in masks else next(iter(masks))]
    eager: Any = vars(sys.modules[type(module).__module__])["eager_attention_forward"]
    return eager(module, query, key, value, mask, **given)


def _no_mask(*_: Any, **__: Any) -> None:
    """Masks come from the policy."""


AttentionInterface.register(SEAM, _attention)
AttentionMaskInterface.register(SEAM, _no_mask)


class _Seam:
    """While it is entered, the model's attention goes through the policy."""

    def __init__(self, model: Model) -> None:
        self.module = model.module

    def __enter__(self) -> None:
        self.before = self.module.config._attn_implementation
        self.module.set_attn_implementation(SEAM)

    def __exit__(self, *_: object) -> None:
        self.module.set_attn_implementation(self.before)


def _has_seam(model: Model) -> bool:
    file = sys.modules[type(model.module).__module__]
    return "eager_attention_forward" in vars(file) and "ALL_ATTENTION_FUNCTIONS" in vars(file)

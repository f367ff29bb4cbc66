"""Built-in implementations: a cached model and a policy that keeps its cache."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from ..harness.implementation import Implementation
from ..reference.gpt import GPTConfig
from ..reference.llama import LlamaConfig
from ..reference.shipped import WEIGHTS, read_config, weights
from .models import CachedGPT, CachedLlama, CachedModel
from .policy import Concat

OPERATIONS = frozenset({"full", "fork", "crop", "reset", "reset_rows", "select", "length", "to"})
INCREMENTAL_BOUND = 1e-4
"""max |Δlogit| in float32, as published for models of this size."""


@cache
def model(name: str) -> CachedModel:
    """The cached `gpt` or `llama` on the shipped weights."""
    config = read_config(WEIGHTS / name)
    if isinstance(config, GPTConfig):
        return CachedGPT(name, weights(name), config)
    assert isinstance(config, LlamaConfig)
    return CachedLlama(name, weights(name), config)


class BuiltIn(Implementation):
    """A cached model whose cache objects are instances of a policy."""

    last_only: ClassVar[bool] = False
    """Give the logits of a call's last position only."""
    splits: ClassVar[bool] = False
    """A call may go through the model in parts, so that not even a prefill has the reference's operands."""
    incremental_bound = INCREMENTAL_BOUND

    def __init__(self, model: CachedModel, policy: type[Concat], name: str = "") -> None:
        self.model = model
        self.policy = policy
        self.name = name or f"{model.name}/{policy.__name__}"
        self.vocab_size = model.shape.vocab_size
        self.max_length = model.shape.limit
        self.exact_prefill = policy.exact_prefill and not self.splits

    @property
    def capabilities(self) -> frozenset[str]:
        return OPERATIONS

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    def new_cache(self, rows: int = 1) -> Concat:
        return self.policy(self.model.shape, rows)

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        with torch.inference_mode():
            logits = self.model.forward(tokens, cache)
        return logits[:, -1:] if self.last_only else logits

    def full(self, tokens: Tensor) -> Tensor:
        """One call on a cache that nothing has been in and nothing will be."""
        with torch.inference_mode():
            return self.model.forward(tokens, Concat(self.model.shape, tokens.shape[0]))

    def fork(self, cache: Concat) -> Concat:
        return cache.fork()

    def crop(self, cache: Concat, length: int) -> None:
        cache.crop(length)

    def reset(self, cache: Concat) -> None:
        cache.reset()

    def select(self, cache: Concat, rows: Sequence[int]) -> None:
        cache.select(rows)

    def length(self, cache: Concat) -> int:
        return cache.length

    def to(self, dtype: torch.dtype) -> BuiltIn:
        return type(self)(self.model.to(dtype), self.policy, self.name)

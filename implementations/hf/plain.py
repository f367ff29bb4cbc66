"""The reference of a transformers model: its own forward pass without a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from transformers import cache_utils

from .model import Model
from .ties import Selections, by_length, frequencies


class RoundedLayer(cache_utils.DynamicLayer):
    """Keys and values with a scale for each token and head, and so many bits."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.steps = 2 ** (bits - 1) - 1

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        return super().update(self._rounded(key_states), self._rounded(value_states))

    def _rounded(self, x: Tensor) -> Tensor:
        scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-30) / self.steps
        return (x / scale).round() * scale


@dataclass(frozen=True, eq=False)
class Plain:
    """The forward pass with `use_cache=False`, in the attention implementation of the model."""

    model: Model

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @cached_property
    def whole_rows(self) -> bool:
        """A longer pass turns earlier tokens by other frequencies."""
        return by_length(self.model.module)

    def logits(self, tokens: Tensor) -> Tensor:
        """`[rows, n, vocab]` for tokens `[rows, n]`."""
        with self.model.running():
            return self.model(tokens, use_cache=False).logits[..., : self.vocab_size]

    def nudged(self, tokens: Tensor) -> Tensor:
        """Logits `[rows, n, vocab]` where each number that leaves the embedding is one unit in the last place off or none, at
        random and always alike. No cache is read, and the noise goes through all layers as that of their own rounding does."""
        random = torch.Generator().manual_seed(0)

        def nudge(module: Any, given: Any, output: Tensor) -> Tensor:
            side = torch.randint(0, 2, output.shape, generator=random).to(output.device) - 0.5
            wide = output.double() if output.dtype == torch.float64 else output.float()
            return (wide * (1 + torch.finfo(output.dtype).eps * side * 1.02)).to(output.dtype)

        hook = self.model.module.get_input_embeddings().register_forward_hook(nudge)
        try:
            return self.logits(tokens)
        finally:
            hook.remove()

    def doubts(self, tokens: Tensor, epsilon: float) -> Sequence[str]:
        """For each of tokens `[1, n]` why its logits may be others: from a tie on every later token sees the difference."""
        length = tokens.shape[1]
        if self.whole_rows:
            self.logits(tokens)
            long = frequencies(self.model.module)
            self.logits(tokens[:, :1])
            short = frequencies(self.model.module)
            if any(not one.equal(other) for one, other in zip(long, short, strict=True)):
                return [f"its rotary frequencies depend on the length of a call, and {length} tokens have others"] * length
        with Selections(length, epsilon) as selections:
            self.logits(tokens)
        reasons = (selections.tied.get(place, "") for place in range(length))
        return list(accumulate(reasons, lambda earlier, here: earlier or here))

    def rounded(self, tokens: Tensor, bits: int) -> Tensor:
        """The same with keys and values rounded to so many bits as they are stored: the noise of a lossy cache."""
        layers = cache_utils.DynamicCache(config=self.model.config).layers
        cache = cache_utils.Cache(layers=[RoundedLayer(bits) for _ in layers])
        with self.model.running():
            output = self.model(tokens, use_cache=True, **{self.model.cache_word: cache})
        return output.logits[..., : self.vocab_size]

    def to(self, dtype: torch.dtype) -> Plain:
        return self if dtype == self.model.dtype else Plain(self.model.to(dtype))

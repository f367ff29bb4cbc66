"""The reference of a transformers model: its own forward pass without a cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .model import Model


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

    def logits(self, tokens: Tensor) -> Tensor:
        """`[rows, n, vocab]` for tokens `[rows, n]`."""
        with self.model.running():
            return self.model(tokens, use_cache=False).logits

    def to(self, dtype: torch.dtype) -> Plain:
        return self if dtype == self.model.dtype else Plain(self.model.to(dtype))

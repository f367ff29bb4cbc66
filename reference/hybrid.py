"""A small hybrid: attention, a gated linear recurrence, attention, a short causal convolution; no cache.

Its weights are drawn, not trained: with unit gain, so that attention is peaked and logits span several units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from .llama import LlamaConfig, attention, rms_norm, rotate, rotation, split_heads


@dataclass(frozen=True)
class HybridConfig:
    """Sizes. `layers` names the kind of each layer."""

    vocab_size: int = 1200
    max_position_embeddings: int = 96
    hidden_size: int = 80
    num_attention_heads: int = 5
    num_key_value_heads: int = 1
    head_dim: int = 16
    intermediate_size: int = 112
    kernel: int = 4
    rms_norm_eps: float = 3e-5
    rope_theta: float = 700.0
    layers: tuple[str, ...] = ("attention", "recurrence", "attention", "convolution")

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    @property
    def rope(self) -> LlamaConfig:
        """What `llama.rotation` needs to know."""
        return LlamaConfig(head_dim=self.head_dim, rope_theta=self.rope_theta)

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter with its shape; a projection is stored `[out, in]`."""
        width, inner, shared = self.hidden_size, self.intermediate_size, self.num_key_value_heads * self.head_dim
        query = self.num_attention_heads * self.head_dim
        kinds: dict[str, dict[str, tuple[int, ...]]] = {
            "attention": {"query": (query, width), "key": (shared, width), "value": (shared, width), "out": (width, query)},
            "recurrence": {"decay": (width, width), "input": (width, width), "gate": (width, width), "out": (width, width)},
            "convolution": {"kernel": (width, self.kernel), "out": (width, width)},
        }
        shapes: dict[str, tuple[int, ...]] = {"embedding": (self.vocab_size, width), "head": (self.vocab_size, width)}
        for index, kind in enumerate(self.layers):
            shapes |= {f"{index}.{name}": shape for name, shape in kinds[kind].items()}
            shapes |= {f"{index}.up": (inner, width), f"{index}.down": (width, inner)}
        return shapes


def drawn_weights(config: HybridConfig, seed: int = 11) -> dict[str, Tensor]:
    """Unit gain: standard deviation 1 / sqrt(fan-in), queries and the head larger, so that attention is peaked."""
    generator = torch.Generator().manual_seed(seed)
    gains = {"query": 3.0, "head": 3.0, "embedding": math.sqrt(config.hidden_size), "kernel": 1.0}
    return {
        name: torch.randn(shape, generator=generator) * gains.get(name.rpartition(".")[2], 1.0) / math.sqrt(shape[-1])
        for name, shape in config.parameter_shapes().items()
    }


def forward(
    weights: Mapping[str, Tensor],
    config: HybridConfig,
    tokens: Tensor,
    keep: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    """Logits `[rows, n, vocab]` for tokens `[rows, n]`; `keep` is what a store would do to keys and values."""
    x = weights["embedding"][tokens]
    cos, sin = rotation(config.rope, tokens.shape[1], x)
    mixers = {"attention": partial(attend, keep=keep), "recurrence": recur, "convolution": convolve}
    unit = torch.ones(config.hidden_size, dtype=x.dtype, device=x.device)

    for index, kind in enumerate(config.layers):
        layer = {name.removeprefix(f"{index}."): value for name, value in weights.items()}
        normed = rms_norm(x, unit, config.rms_norm_eps)
        x = x + mixers[kind](layer, normed, config, cos, sin) @ layer["out"].T
        normed = rms_norm(x, unit, config.rms_norm_eps)
        x = x + F.gelu(normed @ layer["up"].T) @ layer["down"].T

    return rms_norm(x, unit, config.rms_norm_eps) @ weights["head"].T


def attend(
    layer: Mapping[str, Tensor],
    x: Tensor,
    config: HybridConfig,
    cos: Tensor,
    sin: Tensor,
    keep: Callable[[Tensor], Tensor],
) -> Tensor:
    query, key, value = (split_heads(x @ layer[name].T, config.head_dim) for name in ("query", "key", "value"))
    mixed = attention(rotate(query, cos, sin), keep(rotate(key, cos, sin)), keep(value), window=None)
    return mixed.transpose(1, 2).flatten(2)


def recur(layer: Mapping[str, Tensor], x: Tensor, *_: object) -> Tensor:
    """h(t) = decay(t) · h(t-1) + (1 - decay(t)) · input(t), gated on its way out; h(-1) is zero."""
    decay, given, gate = (x @ layer["decay"].T).sigmoid(), x @ layer["input"].T, F.silu(x @ layer["gate"].T)
    state, states = torch.zeros_like(x[:, 0]), list[Tensor]()
    for step in range(x.shape[1]):
        state = decay[:, step] * state + (1 - decay[:, step]) * given[:, step]
        states.append(state)
    return torch.stack(states, dim=1) * gate


def convolve(layer: Mapping[str, Tensor], x: Tensor, config: HybridConfig, *_: object) -> Tensor:
    """Each channel's last `kernel` inputs, weighted; before the first there are zeros."""
    seen = F.pad(x, (0, 0, config.kernel - 1, 0)).unfold(1, config.kernel, 1)
    return F.silu((seen * layer["kernel"]).sum(dim=-1))

"""A small Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU; no cache.

Parameters carry the names of transformers' `LlamaForCausalLM`. Every call sees whole sequences from position 0 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes, under transformers' names. All differ, so that a swapped axis cannot go unnoticed."""

    vocab_size: int = 1200
    max_position_embeddings: int = 128
    hidden_size: int = 192
    num_hidden_layers: int = 3
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 352
    rms_norm_eps: float = 2e-5
    rope_theta: float = 5000.0
    sliding_window: int | None = None

    @property
    def context(self) -> int:
        return self.max_position_embeddings

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter with its shape; a projection is stored `[out, in]`."""
        width, inner = self.hidden_size, self.intermediate_size
        query, shared = self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, width)}
        for layer in range(self.num_hidden_layers):
            block = f"model.layers.{layer}."
            shapes |= {
                block + "input_layernorm.weight": (width,),
                block + "self_attn.q_proj.weight": (query, width),
                block + "self_attn.k_proj.weight": (shared, width),
                block + "self_attn.v_proj.weight": (shared, width),
                block + "self_attn.o_proj.weight": (width, query),
                block + "post_attention_layernorm.weight": (width,),
                block + "mlp.gate_proj.weight": (inner, width),
                block + "mlp.up_proj.weight": (inner, width),
                block + "mlp.down_proj.weight": (width, inner),
            }
        return shapes | {"model.norm.weight": (width,)}


def forward(
    weights: Mapping[str, Tensor],
    config: LlamaConfig,
    tokens: Tensor,
    drop: Callable[[Tensor], Tensor] = lambda x: x,
    keep: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    """Logits `[rows, n, vocab]` for tokens `[rows, n]`. `drop` is dropout in training, nothing otherwise; `keep` is what
    a store would do to keys and values, nothing otherwise."""
    rows, length = tokens.shape
    x = drop(weights["model.embed_tokens.weight"][tokens])
    cos, sin = rotation(config, length, x)

    for layer in range(config.num_hidden_layers):
        block = {name.removeprefix(f"model.layers.{layer}."): value for name, value in weights.items()}

        normed = rms_norm(x, block["input_layernorm.weight"], config.rms_norm_eps)
        query = split_heads(normed @ block["self_attn.q_proj.weight"].T, config.head_dim)
        key = split_heads(normed @ block["self_attn.k_proj.weight"].T, config.head_dim)
        value = split_heads(normed @ block["self_attn.v_proj.weight"].T, config.head_dim)
        mixed = attention(rotate(query, cos, sin), keep(rotate(key, cos, sin)), keep(value), config.sliding_window)
        x = x + drop(mixed.transpose(1, 2).reshape(rows, length, -1) @ block["self_attn.o_proj.weight"].T)

        normed = rms_norm(x, block["post_attention_layernorm.weight"], config.rms_norm_eps)
        gated = F.silu(normed @ block["mlp.gate_proj.weight"].T) * (normed @ block["mlp.up_proj.weight"].T)
        x = x + drop(gated @ block["mlp.down_proj.weight"].T)

    return rms_norm(x, weights["model.norm.weight"], config.rms_norm_eps) @ weights["model.embed_tokens.weight"].T


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon))


def split_heads(x: Tensor, head_dim: int) -> Tensor:
    """`[rows, n, heads * head_dim]` to `[rows, heads, n, head_dim]`."""
    return x.view(*x.shape[:2], -1, head_dim).transpose(1, 2)


def rotation(config: LlamaConfig, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine `[n, head_dim]` of positions 0 to n - 1; the two halves of a head turn together."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=like.dtype, device=like.device) / config.head_dim
    angles = torch.outer(torch.arange(length, dtype=like.dtype, device=like.device), config.rope_theta**-exponents)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding (Su et al. 2021) of the pairs (i, i + head_dim / 2)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def attention(query: Tensor, key: Tensor, value: Tensor, window: int | None) -> Tensor:
    """Causal attention `[rows, heads, n, head_dim]`; with a window, a position sees itself and the window - 1 before it."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    length = query.shape[2]
    seen = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    if window is not None:
        seen = seen.triu(1 - window)
    return scores.masked_fill(~seen, -math.inf).softmax(dim=-1) @ value

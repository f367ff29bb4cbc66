"""The built-in models with a cache: the forward pass, which asks a policy what it needs to know.

They take the weights of the references and share no code with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import embedding, gelu, layer_norm, silu

from ..reference.gpt import GPTConfig
from ..reference.llama import LlamaConfig
from .attention import attend, split
from .policy import CacheShape, Concat


@dataclass(frozen=True, eq=False)
class CachedModel:
    """Weights under the references' names, in one dtype."""

    name: str
    weights: Mapping[str, Tensor]

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.weights.values())).dtype

    def to(self, dtype: torch.dtype) -> Self:
        return replace(self, weights={name: weight.to(dtype) for name, weight in self.weights.items()})

    @cached_property
    def shape(self) -> CacheShape:
        """What its caches store."""
        raise NotImplementedError

    def forward(self, tokens: Tensor, cache: Concat) -> Tensor:
        """Logits `[rows, n, vocab]` of new tokens `[rows, n]` behind what the cache holds."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class CachedGPT(CachedModel):
    """Learned absolute positions. A position outside the table raises."""

    config: GPTConfig

    @cached_property
    def shape(self) -> CacheShape:
        sizes = self.config
        weight = self.weights["transformer.wte.weight"]
        return CacheShape(
            layers=sizes.n_layer,
            kv_heads=sizes.n_head,
            head_dim=sizes.n_embd // sizes.n_head,
            limit=sizes.n_positions,
            vocab_size=sizes.vocab_size,
            dtype=weight.dtype,
            device=weight.device,
        )

    def forward(self, tokens: Tensor, cache: Concat) -> Tensor:
        weights, heads = self.weights, self.config.n_head
        count = tokens.shape[1]
        positions, visible = cache.positions(count), cache.visible(count)
        places = embedding(positions, weights["transformer.wpe.weight"])
        x = embedding(tokens, weights["transformer.wte.weight"]) + places
        for layer in range(self.config.n_layer):
            block = f"transformer.h.{layer}."
            projected = self._norm(x, block + "ln_1") @ weights[block + "attn.c_attn.weight"]
            query, key, value = (split(part, heads) for part in projected.chunk(3, dim=-1))
            keys, values = cache.store(layer, key, value)
            x = x + attend(query, keys, values, visible) @ weights[block + "attn.c_proj.weight"]
            hidden = self._norm(x, block + "ln_2") @ weights[block + "mlp.c_fc.weight"] + weights[block + "mlp.c_fc.bias"]
            hidden = gelu(hidden, approximate="tanh")
            x = x + (hidden @ weights[block + "mlp.c_proj.weight"] + weights[block + "mlp.c_proj.bias"])
        cache.advance(count)
        return self._norm(x, "transformer.ln_f") @ weights["transformer.wte.weight"].T

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self.weights[name + ".weight"], self.weights[name + ".bias"]
        return layer_norm(x, (self.config.n_embd,), weight, bias, self.config.layer_norm_epsilon)


@dataclass(frozen=True, eq=False)
class CachedLlama(CachedModel):
    """Rotary positions, grouped-query attention."""

    config: LlamaConfig

    @cached_property
    def shape(self) -> CacheShape:
        sizes = self.config
        weight = self.weights["model.embed_tokens.weight"]
        return CacheShape(
            layers=sizes.num_hidden_layers,
            kv_heads=sizes.num_key_value_heads,
            head_dim=sizes.head_dim,
            limit=sizes.max_position_embeddings,
            window=sizes.sliding_window,
            vocab_size=sizes.vocab_size,
            dtype=weight.dtype,
            device=weight.device,
        )

    def forward(self, tokens: Tensor, cache: Concat) -> Tensor:
        weights, sizes = self.weights, self.config
        count = tokens.shape[1]
        positions, visible = cache.positions(count), cache.visible(count)
        turn = self.angles(positions)
        x = embedding(tokens, weights["model.embed_tokens.weight"])
        for layer in range(sizes.num_hidden_layers):
            block = f"model.layers.{layer}."
            normed = self._norm(x, block + "input_layernorm")
            query = split(normed @ weights[block + "self_attn.q_proj.weight"].T, sizes.num_attention_heads)
            key = split(normed @ weights[block + "self_attn.k_proj.weight"].T, sizes.num_key_value_heads)
            value = split(normed @ weights[block + "self_attn.v_proj.weight"].T, sizes.num_key_value_heads)
            keys, values = cache.store(layer, self.rotate(key, turn), value)
            mixed = attend(self.rotate(query, turn), keys, values, visible)
            x = x + mixed @ weights[block + "self_attn.o_proj.weight"].T
            normed = self._norm(x, block + "post_attention_layernorm")
            gate = silu(normed @ weights[block + "mlp.gate_proj.weight"].T)
            x = x + (gate * (normed @ weights[block + "mlp.up_proj.weight"].T)) @ weights[block + "mlp.down_proj.weight"].T
        cache.advance(count)
        return self._norm(x, "model.norm") @ weights["model.embed_tokens.weight"].T

    def angles(self, positions: Tensor) -> Tensor:
        """Angles `[..., 1, n, head_dim / 2]` of positions `[..., n]`, the same for all heads."""
        pairs = torch.arange(0, self.config.head_dim, 2, dtype=self.dtype, device=positions.device)
        turns = positions[..., None].to(self.dtype) * self.config.rope_theta ** -(pairs / self.config.head_dim)
        return turns.unsqueeze(-3)

    def rotate(self, x: Tensor, turn: Tensor) -> Tensor:
        """Turn the pairs (i, i + head_dim / 2) of `[rows, heads, n, head_dim]`."""
        cos, sin = turn.cos(), turn.sin()
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        mean = x.pow(2).mean(-1, keepdim=True)
        return self.weights[name + ".weight"] * (x * torch.rsqrt(mean + self.config.rms_norm_eps))

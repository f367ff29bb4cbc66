"""The built-in models with a cache: the forward pass, which asks a policy what it needs to know.

They take the weights of the references and share no code with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import embedding, gelu, layer_norm, silu

from ..reference.gpt import GPTConfig
from ..reference.hybrid import HybridConfig
from ..reference.llama import LlamaConfig
from .attention import split
from .policy import CacheShape, Concat
from .stores import rounded


class ByPolicy:
    """A model whose forward pass asks a policy for positions, storage and visibility."""

    name: str
    exact: ClassVar[bool] = False
    """A prefill has the reference's operands, bit for bit."""
    bound: ClassVar[float | None] = None
    """max |Δlogit| of incremental float32, where one is published for models of this size."""

    mixed: bool = False
    """Some layers have a window and others none."""

    @property
    def like(self) -> str:
        """The built-in model that shows the same faults."""
        return self.name

    @property
    def dtype(self) -> torch.dtype:
        raise NotImplementedError

    @cached_property
    def shape(self) -> CacheShape:
        """What its caches store."""
        raise NotImplementedError

    def to(self, dtype: torch.dtype) -> ByPolicy:
        """The same model in another precision."""
        raise NotImplementedError

    def forward(self, tokens: Tensor, cache: Concat) -> Tensor:
        """Logits `[rows, n, vocab]` of new tokens `[rows, n]` behind what the cache holds."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class CachedModel(ByPolicy):
    """Weights under the references' names, in one dtype."""

    name: str
    weights: Mapping[str, Tensor]
    exact: ClassVar[bool] = True
    bound: ClassVar[float | None] = 1e-4

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.weights.values())).dtype

    def to(self, dtype: torch.dtype) -> Self:
        return replace(self, weights={name: weight.to(dtype) for name, weight in self.weights.items()})


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
            x = x + cache.attend(query, keys, values, visible) @ weights[block + "attn.c_proj.weight"]
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
        turn = angles(sizes, positions, self.dtype)
        x = embedding(tokens, weights["model.embed_tokens.weight"])
        for layer in range(sizes.num_hidden_layers):
            block = f"model.layers.{layer}."
            normed = self._norm(x, block + "input_layernorm")
            query = split(self.linear(normed, block + "self_attn.q_proj"), sizes.num_attention_heads)
            key = split(self.linear(normed, block + "self_attn.k_proj"), sizes.num_key_value_heads)
            value = split(self.linear(normed, block + "self_attn.v_proj"), sizes.num_key_value_heads)
            if cache.rotates_when_read:
                keys, values = cache.store(layer, key, value)
                keys = self.rotate(keys, angles(sizes, cache.key_positions(count), self.dtype))
            else:
                keys, values = cache.store(layer, self.rotate(key, turn), value)
            mixed = cache.attend(self.rotate(query, turn), keys, values, visible)
            x = x + self.linear(mixed, block + "self_attn.o_proj")
            normed = self._norm(x, block + "post_attention_layernorm")
            gate = silu(self.linear(normed, block + "mlp.gate_proj"))
            x = x + self.linear(gate * self.linear(normed, block + "mlp.up_proj"), block + "mlp.down_proj")
        cache.advance(count)
        return self._norm(x, "model.norm") @ weights["model.embed_tokens.weight"].T

    def linear(self, x: Tensor, name: str) -> Tensor:
        """A projection by its weight's name."""
        return x @ self.weights[name + ".weight"].T

    def rotate(self, x: Tensor, turn: Tensor) -> Tensor:
        """Turn keys or queries by the angles of their positions."""
        return turned(x, turn)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        mean = x.pow(2).mean(-1, keepdim=True)
        return self.weights[name + ".weight"] * (x * torch.rsqrt(mean + self.config.rms_norm_eps))


@dataclass(frozen=True, eq=False)
class CachedHybrid(CachedModel):
    """Attention layers with keys and values, a recurrence and a convolution with a state."""

    config: HybridConfig

    @cached_property
    def shape(self) -> CacheShape:
        sizes, weight = self.config, self.weights["embedding"]
        return CacheShape(
            layers=len(sizes.layers),
            kv_heads=sizes.num_key_value_heads,
            head_dim=sizes.head_dim,
            limit=sizes.max_position_embeddings,
            vocab_size=sizes.vocab_size,
            dtype=weight.dtype,
            device=weight.device,
            stateful=True,
        )

    def forward(self, tokens: Tensor, cache: Concat) -> Tensor:
        count = tokens.shape[1]
        turn, visible = angles(self.config, cache.positions(count), self.dtype), cache.visible(count)
        x = embedding(tokens, self.weights["embedding"])
        for index, kind in enumerate(self.config.layers):
            normed = self._norm(x)
            if kind == "attention":
                mixed = self._attend(index, normed, turn, visible, cache)
            else:
                step = self._recur if kind == "recurrence" else self._convolve
                mixed = step(index, normed, cache)
            x = x + self._linear(mixed, f"{index}.out")
            x = x + self._linear(gelu(self._linear(self._norm(x), f"{index}.up")), f"{index}.down")
        cache.advance(count)
        return self._linear(self._norm(x), "head")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weights[name].T

    def _norm(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps)

    def _attend(self, index: int, x: Tensor, turn: Tensor, visible: Tensor | None, cache: Concat) -> Tensor:
        sizes = self.config
        query = split(self._linear(x, f"{index}.query"), sizes.num_attention_heads)
        key, value = (split(self._linear(x, f"{index}.{name}"), sizes.num_key_value_heads) for name in ("key", "value"))
        keys, values = cache.store(index, turned(key, turn), value)
        return cache.attend(turned(query, turn), keys, values, visible)

    def _recur(self, index: int, x: Tensor, cache: Concat) -> Tensor:
        decay, given = self._linear(x, f"{index}.decay").sigmoid(), self._linear(x, f"{index}.input")
        state = cache.recall(index, x.shape[1])
        state = torch.zeros_like(x[:, 0]) if state is None else state
        moves, states = cache.moves_state(x.shape[1]), list[Tensor]()
        for step in range(x.shape[1]):
            moved = decay[:, step] * state + (1 - decay[:, step]) * given[:, step]
            state = torch.where(moves[:, step, None], moved, state)
            states.append(state)
        cache.remember(index, state)
        return torch.stack(states, dim=1) * silu(self._linear(x, f"{index}.gate"))

    def _convolve(self, index: int, x: Tensor, cache: Concat) -> Tensor:
        """The state is the last `kernel` - 1 inputs of each row, `[rows, kernel - 1, width]`."""
        past = cache.recall(index, x.shape[1])
        past = x.new_zeros(x.shape[0], self.config.kernel - 1, x.shape[2]) if past is None else past
        moves, taps, outputs = cache.moves_state(x.shape[1]), self.weights[f"{index}.kernel"].T, list[Tensor]()
        for step in range(x.shape[1]):
            seen = torch.cat([past, x[:, step : step + 1]], dim=1)
            outputs.append((seen * taps).sum(dim=1))
            past = torch.where(moves[:, step, None, None], seen[:, 1:], past)
        cache.remember(index, past)
        return silu(torch.stack(outputs, dim=1))


def angles(config: LlamaConfig | HybridConfig, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """Angles `[..., 1, n, head_dim / 2]` of positions `[..., n]`, the same for all heads."""
    pairs = torch.arange(0, config.head_dim, 2, dtype=dtype, device=positions.device)
    turns = positions[..., None].to(dtype) * config.rope_theta ** -(pairs / config.head_dim)
    return turns.unsqueeze(-3)


def turned(x: Tensor, turn: Tensor) -> Tensor:
    """Turn the pairs (i, i + head_dim / 2) of `[rows, heads, n, head_dim]`."""
    cos, sin = turn.cos(), turn.sin()
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


@dataclass(frozen=True, eq=False)
class NoisyLlama(CachedLlama):
    """The llama with quantised arithmetic: activations are rounded to eight bits before every projection."""

    exact = False

    def linear(self, x: Tensor, name: str) -> Tensor:
        return super().linear(rounded(x, 8), name)

"""A small GPT: learned absolute positions, pre-norm, no cache. The plain forward pass that caches are judged by.

Every call sees whole sequences from position 0 on and keeps nothing. Weights carry the names and layouts of
transformers' GPT-2 (a projection is stored `[in, out]`), so the file loads there too, with the biases that this model
does not have at zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class GPTConfig:
    """Sizes, under transformers' names."""

    vocab_size: int = 1200
    n_positions: int = 64
    n_embd: int = 128
    n_layer: int = 2
    n_head: int = 4
    n_inner: int = 256
    layer_norm_epsilon: float = 1e-5

    @property
    def context(self) -> int:
        return self.n_positions

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter with its shape: 425,984 numbers with the default sizes."""
        width, inner = self.n_embd, self.n_inner
        shapes: dict[str, tuple[int, ...]] = {
            "transformer.wte.weight": (self.vocab_size, width),
            "transformer.wpe.weight": (self.n_positions, width),
        }
        for layer in range(self.n_layer):
            block = f"transformer.h.{layer}."
            shapes |= {
                block + "ln_1.weight": (width,),
                block + "ln_1.bias": (width,),
                block + "attn.c_attn.weight": (width, 3 * width),
                block + "attn.c_proj.weight": (width, width),
                block + "ln_2.weight": (width,),
                block + "ln_2.bias": (width,),
                block + "mlp.c_fc.weight": (width, inner),
                block + "mlp.c_fc.bias": (inner,),
                block + "mlp.c_proj.weight": (inner, width),
                block + "mlp.c_proj.bias": (width,),
            }
        return shapes | {"transformer.ln_f.weight": (width,), "transformer.ln_f.bias": (width,)}


def forward(
    weights: Mapping[str, Tensor],
    config: GPTConfig,
    tokens: Tensor,
    drop: Callable[[Tensor], Tensor] = lambda x: x,
    keep: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    """Logits `[rows, n, vocab]` for tokens `[rows, n]`. `drop` is dropout in training, nothing otherwise; `keep` is what
    a store would do to keys and values, nothing otherwise."""
    width, length = config.n_embd, tokens.shape[1]
    positions = torch.arange(length, device=tokens.device)
    x = drop(weights["transformer.wte.weight"][tokens] + weights["transformer.wpe.weight"][positions])

    for layer in range(config.n_layer):
        block = {name.removeprefix(f"transformer.h.{layer}."): value for name, value in weights.items()}

        normed = F.layer_norm(x, (width,), block["ln_1.weight"], block["ln_1.bias"], config.layer_norm_epsilon)
        query, key, value = (normed @ block["attn.c_attn.weight"]).split(width, dim=-1)
        x = x + drop(attention(query, key, value, config.n_head, keep) @ block["attn.c_proj.weight"])

        normed = F.layer_norm(x, (width,), block["ln_2.weight"], block["ln_2.bias"], config.layer_norm_epsilon)
        hidden = F.gelu(normed @ block["mlp.c_fc.weight"] + block["mlp.c_fc.bias"], approximate="tanh")
        x = x + drop(hidden @ block["mlp.c_proj.weight"] + block["mlp.c_proj.bias"])

    norm, bias = weights["transformer.ln_f.weight"], weights["transformer.ln_f.bias"]
    x = F.layer_norm(x, (width,), norm, bias, config.layer_norm_epsilon)
    return x @ weights["transformer.wte.weight"].T


def attention(query: Tensor, key: Tensor, value: Tensor, heads: int, keep: Callable[[Tensor], Tensor]) -> Tensor:
    """Causal attention of `[rows, n, width]` with itself: position i sees positions 0 to i."""
    rows, length, width = query.shape
    query, key, value = (x.view(rows, length, heads, width // heads).transpose(1, 2).contiguous() for x in (query, key, value))
    key, value = keep(key), keep(value)
    scores = query @ key.transpose(-2, -1) / math.sqrt(width // heads)
    causal = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
    scores = scores.masked_fill(~causal, -math.inf)
    mixed = scores.softmax(dim=-1) @ value
    return mixed.transpose(1, 2).reshape(rows, length, width)

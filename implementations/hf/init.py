"""Unit-gain weights: every matrix keeps the variance of what it gets, so that no part of a model drowns another.

Under the library's own initialisation (matrices of standard deviation 0.02) attention is flat, branches vanish beside
the residual stream, and a real deviation of the cache shrinks to 1e-4 or less of the logits. Only parameters are drawn:
buffers and frozen tables (sinusoids, rotary tables, feature maps) stay as the model's code made them.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any

import torch
from torch import Generator, Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

LOGITS = 4.0
"""Standard deviation that the final logits are brought to."""

QUERY = r"(^|\.)(q_proj|q_b_proj|query|q_lin|wq|q_norm|q_layernorm|query_layernorm|to_q|q_attn|query_proj|q)\.weight$"
"""Weights that scale queries alone: doubled, so that attention is peaked (its logits then vary by about 2)."""

FUSED = r"(^|\.)(c_attn|qkv_proj|Wqkv|query_key_value|qkv|in_proj_qkv|attn_qkv|qkv_lin)\.weight$"
"""Weights that give queries, keys and values together: by the square root of two, to the same end."""


def draw(model: PreTrainedModel, seed: int) -> None:
    """Give every trainable parameter a new value, in place; the same seed gives the same values."""
    generator = torch.Generator().manual_seed(seed)
    seen: set[int] = set()
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen or not parameter.requires_grad:
                continue
            seen.add(id(parameter))
            full = f"{path}.{name}"
            with torch.no_grad():
                parameter.copy_(_value(model, module, full, parameter, generator))


def _value(model: PreTrainedModel, module: nn.Module, full: str, parameter: Tensor, generator: Generator) -> Tensor:
    name = full.rsplit(".", 1)[-1]
    normal = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
    uniform = torch.rand(parameter.shape, generator=generator, dtype=torch.float32)
    if name == "A_log":
        return uniform * 2.0 - 2.5  # decay rates between 0.08 and 0.6 a unit of time
    if name in ("dt_bias", "dt_proj_bias") or full.endswith("dt_proj.bias"):
        return normal * 0.5  # steps softplus(.) near 0.7
    if parameter.dim() <= 1 or prod(parameter.shape) == max(parameter.shape):
        return _vector(full, parameter, normal)
    if isinstance(module, nn.Embedding):
        return normal
    gain = 2.0 if re.search(QUERY, full) else 2.0**0.5 if re.search(FUSED, full) else 1.0
    return normal * gain / _fan_in(model.config, module, name, parameter) ** 0.5


def _vector(full: str, parameter: Tensor, normal: Tensor) -> Tensor:
    """Scales, biases and other vectors: the library's value with a spread, which is near 1 or near 0 as its norm asks."""
    if "bias" in full.rsplit(".", 1)[-1]:
        return parameter + 0.1 * normal
    return parameter + 0.2 * normal + (1.0 if re.search(QUERY, full) else 0.0)


def _fan_in(config: Any, module: nn.Module, name: str, parameter: Tensor) -> int:
    """How many inputs are summed into one output."""
    if isinstance(module, Conv1D):
        return parameter.shape[0]
    if parameter.dim() == 3 and not isinstance(module, nn.Conv1d):
        hidden = config.get_text_config(decoder=True).hidden_size
        inner = next((n for n in parameter.shape[1:] if n != hidden), hidden)
        return inner if re.search("down|output|w2|fc2|c_proj", name) else hidden
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return prod(parameter.shape[1:])
    return parameter.shape[-1]


def calibrate(model: PreTrainedModel, vocabulary: int, seed: int) -> None:
    """Scale the output embedding so that the logits have the standard deviation `LOGITS`.

    Where it is tied to the input embedding the whole model changes with it: a few rounds settle that.
    """
    head = model.get_output_embeddings()
    heads: list[nn.Module] = list(head.children()) if isinstance(head, nn.ModuleList) else [head] if head is not None else []
    weights = [weight for each in heads if isinstance(weight := each.weight, Tensor)]
    tokens = torch.randint(vocabulary - 1, (2, 24), generator=torch.Generator().manual_seed(seed))
    for _ in range(3):
        spread = float(model(input_ids=tokens, use_cache=False).logits.std())
        with torch.no_grad():
            for weight in weights:
                weight.mul_(LOGITS / max(spread, 1e-6))

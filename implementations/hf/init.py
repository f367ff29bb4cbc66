"""Unit-gain weights: every matrix keeps the variance of what it gets, so that no part of a model drowns another.

Under the library's own initialisation (matrices of standard deviation 0.02) attention is flat, branches vanish beside
the residual stream, and a real deviation of the cache shrinks to 1e-4 or less of the logits. Only parameters are drawn:
buffers and frozen tables (sinusoids, rotary tables, feature maps) stay as the model's code made them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from math import prod
from typing import Any

import torch
from torch import Generator, Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from .attention_spread import attention_spread

LOGITS = 4.0
"""Standard deviation that the final logits are brought to."""

ATTENTION = 2.0
"""Standard deviation that the logits of attention are brought to: some keys count and others do not."""

QUERY = re.compile(
    r"(^|\.)(q|q_proj|q_b_proj|q_lin|q_attn|wq|to_q|query|query_proj|q_norm|q_layernorm|query_layernorm)\.weight$"
    r"|q_proj\.norm\.scale$|qk_norm\.temp$"
)
"""Weights that scale queries alone."""

FUSED = re.compile(r"(^|\.)(c_attn|qkv|qkv_proj|Wqkv|query_key_value|in_proj_qkv|attn_qkv|qkv_lin)\.weight$")
"""Weights that give queries, keys and values together: a factor of √2 gives the logits of attention one of 2."""


def draw(model: PreTrainedModel, seed: int) -> None:
    """Give every trainable parameter a new value, in place; the same seed gives the same values."""
    generator = torch.Generator().manual_seed(seed)
    for module, name, parameter in _trainable(model):
        with torch.no_grad():
            parameter.copy_(_value(model.config, module, name, parameter, generator))


def calibrate(model: PreTrainedModel, vocabulary: int, seed: int) -> None:
    """Scale query weights and the output embedding so that the logits of attention and the final ones spread as wanted.

    An output embedding that is tied to the input embedding changes the whole model with it: a few rounds settle that.
    """
    tokens = torch.randint(vocabulary - 1, (2, 24), generator=torch.Generator().manual_seed(seed))
    queries = _queries(model)
    for _ in range(3):
        spread, _ = attention_spread(model, tokens)
        if spread is None or 0.7 < spread / ATTENTION < 1.4:
            break
        for weight, offset in queries:
            weight.copy_((weight + offset) * (ATTENTION / spread) - offset)
    weights = _heads(model)
    for _ in range(4):
        spread = float(attention_spread(model, tokens)[1].std())
        if not spread or 0.95 < spread / LOGITS < 1.05:
            break
        for weight in weights:
            weight.mul_(LOGITS / spread)


def _trainable(model: PreTrainedModel) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """Each trainable parameter once, with the module that owns it and its full name."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                yield module, f"{path}.{name}", parameter


def _queries(model: PreTrainedModel) -> list[tuple[Tensor, float]]:
    """What scales the queries of each attention module: the norm of queries where there is one, else the projection.

    With the 1 of norms that multiply by 1 + weight.
    """
    found: dict[str, dict[bool, tuple[Tensor, float]]] = defaultdict(dict)
    for name, parameter in model.named_parameters():
        if QUERY.search(name):
            owner, module, _ = name.rsplit(".", 2)
            norm = "norm" in module
            found[owner][norm] = parameter, 1.0 if norm and bool(parameter.mean().abs() < 0.5) else 0.0
    return [group[max(group)] for group in found.values()]


def _heads(model: PreTrainedModel) -> list[Tensor]:
    """Weights of the output embedding; of several, where a model has one for each stream of tokens."""
    head = model.get_output_embeddings()
    if head is None:
        named = (module for name, module in model.named_modules() if name.endswith("lm_head"))
        head = next(named, None)
    heads: list[nn.Module] = list(head.children()) if isinstance(head, nn.ModuleList) else [head] if head is not None else []
    return [weight for each in heads if isinstance(weight := each.weight, Tensor)]


def _value(config: Any, module: nn.Module, full: str, parameter: Tensor, generator: Generator) -> Tensor:
    name = full.rsplit(".", 1)[-1]
    normal = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
    if name == "A_log":
        return torch.rand(parameter.shape, generator=generator) * 2.0 - 2.5  # decay rates between 0.08 and 0.6
    if name == "dt_bias" or full.endswith("dt_proj.bias"):
        return normal * 0.5  # steps near 0.7, so that a state neither stands still nor dies
    if prod(parameter.shape) == max(parameter.shape, default=1) or "Norm" in type(module).__name__:
        return parameter + normal * (0.1 if "bias" in name else 0.2)  # near 1 or near 0, as the library has it
    if isinstance(module, nn.Embedding):
        return normal
    gain = 2.0 if QUERY.search(full) else 2.0**0.5 if FUSED.search(full) else 1.0
    return normal * gain / _fan_in(config, module, name, parameter) ** 0.5


def _fan_in(config: Any, module: nn.Module, name: str, parameter: Tensor) -> int:
    """How many inputs are summed into one output."""
    if isinstance(module, Conv1D):
        return parameter.shape[0]
    if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return prod(parameter.shape[1:])
    if parameter.dim() == 3:  # stacked experts, in either order of inputs and outputs
        hidden = config.get_text_config(decoder=True).hidden_size
        inner = next((size for size in parameter.shape[1:] if size != hidden), hidden)
        return inner if re.search("down|output|w2|fc2|c_proj", name) else hidden
    return parameter.shape[-1]

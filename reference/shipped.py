"""The weights that the package ships, and the `config.json` that goes with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import gpt, hybrid, llama
from .gpt import GPTConfig
from .hybrid import HybridConfig, drawn_weights
from .llama import LlamaConfig
from .vocabulary import Vocabulary

WEIGHTS = Path(__file__).parent / "weights"
WINDOW = 8
"""Positions that a token of the `window` model sees, itself included."""
CONFIGS: dict[str, type[GPTConfig] | type[LlamaConfig]] = {"gpt2": GPTConfig, "llama": LlamaConfig}


def config_json(config: GPTConfig | LlamaConfig) -> dict[str, Any]:
    """The configuration as transformers reads it. `rope_theta` stands at the top too: other engines look there."""
    sizes = {name: value for name, value in asdict(config).items() if value is not None}
    common = {"tie_word_embeddings": True, "dtype": "float32", "bos_token_id": None, "eos_token_id": None}
    if isinstance(config, GPTConfig):
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "activation_function": "gelu_pytorch_tanh",
            **sizes,
            **common,
        }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        **sizes,
        **common,
    }


def read_config(folder: Path) -> GPTConfig | LlamaConfig:
    """The configuration in a folder that `config_json` wrote."""
    raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kind = CONFIGS[raw["model_type"]]
    return kind(**{field.name: raw[field.name] for field in fields(kind) if field.name in raw})


@cache
def vocabulary() -> Vocabulary:
    """The characters of the shipped models."""
    return Vocabulary.load(WEIGHTS / "characters.json")


@cache
def weights(model: str) -> dict[str, Tensor]:
    """The shipped parameters of `gpt` or `llama`, float32, memory-mapped."""
    from safetensors.torch import load_file

    return load_file(WEIGHTS / model / "model.safetensors")


@dataclass(frozen=True, eq=False)
class PlainReference:
    """A reference of this package: a plain forward pass over weights in one dtype."""

    name: str
    vocab_size: int
    config: GPTConfig | LlamaConfig | HybridConfig
    parameters: Mapping[str, Tensor]

    def logits(self, tokens: Tensor) -> Tensor:
        """`[rows, n, vocab]` for tokens `[rows, n]`; no more positions than the model has."""
        return self._forward(tokens)

    def rounded(self, tokens: Tensor, bits: int) -> Tensor:
        """The same with keys and values rounded to so many bits, a scale for each token and head."""
        steps = 2 ** (bits - 1) - 1

        def keep(x: Tensor) -> Tensor:
            scale = x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-30) / steps
            return (x / scale).round() * scale

        return self._forward(tokens, keep)

    def _forward(self, tokens: Tensor, keep: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
        if isinstance(self.config, GPTConfig):
            return gpt.forward(self.parameters, self.config, tokens, keep=keep)
        if isinstance(self.config, HybridConfig):
            return hybrid.forward(self.parameters, self.config, tokens, keep=keep)
        return llama.forward(self.parameters, self.config, tokens, keep=keep)

    def to(self, dtype: torch.dtype) -> PlainReference:
        return replace(self, parameters={name: weight.to(dtype) for name, weight in self.parameters.items()})


@cache
def reference(model: str) -> PlainReference:
    """A reference: `gpt` or `llama` on the shipped weights, `window`, the llama with a sliding window, or `hybrid`."""
    if model == "hybrid":
        drawn = HybridConfig()
        return PlainReference(model, drawn.vocab_size, drawn, drawn_weights(drawn))
    folder = "llama" if model == "window" else model
    config = read_config(WEIGHTS / folder)
    if model == "window":
        config = replace(config, sliding_window=WINDOW)
    return PlainReference(model, config.vocab_size, config, weights(folder))

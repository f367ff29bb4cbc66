"""A transformers model as the adapter and the reference share it: one set of weights, put in precisions on demand."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from transformers import cache_utils

from ...harness.errors import Unsupported
from ...harness.precision import WIDE, lifted
from ...harness.runner import error_text

CACHE_WORDS = ("cache", "past_key_values", "cache_params", "state", "mems", "past_buckets_states")
"""Names that models have had for the cache in their forward pass and in what it returns, newest first."""


class Model:
    """A causal language model of transformers in one precision, and the same in others.

    In float64 its float32 islands are lifted while it runs; weights are copied once for each precision that is asked
    for, and not at all for its own.
    """

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module: Any = module
        self.name = name
        self.dtype: torch.dtype = next(p.dtype for p in module.parameters() if p.is_floating_point())
        self.device: torch.device = next(module.parameters()).device
        self._others: dict[torch.dtype, Model] = {}
        self.call: Any = module
        self.copies = True
        """May there be a copy of its weights, in another precision?"""

    @property
    def weight_bytes(self) -> int:
        """What its weights take in memory."""
        return sum(weight.nbytes for weight in self.module.parameters())

    @cached_property
    def config(self) -> Any:
        """The decoder's part of the configuration."""
        return self.module.config.get_text_config(decoder=True)

    @cached_property
    def vocab_size(self) -> int:
        """Tokens that the model can be given and gives logits for.

        Raises `Unsupported` where it cannot be called with tokens alone, so that there is nothing to hold a cache against.
        """
        rows, length = 2, 3
        tokens = torch.full((rows, length), self.text)
        try:
            with self.running():
                logits: Tensor = self(tokens, use_cache=False).logits
        except Exception as error:
            raise Unsupported(f"its plain pass over tokens raises {error_text(error)}") from None
        if logits.shape[:2] != (rows, length):
            raise Unsupported(f"for tokens [{rows}, {length}] its plain pass gives logits {list(logits.shape)}")
        return min(logits.shape[-1], self.embedded)

    @property
    def embedded(self) -> int:
        """Tokens that the embedding knows; some models keep further ones for images."""
        given = self.module.get_input_embeddings()
        if (weight := getattr(given, "weight", None)) is not None:
            return int(weight.shape[0])
        parts = given.modules() if isinstance(given, nn.Module) else ()
        return min(
            (part.num_embeddings for part in parts if isinstance(part, nn.Embedding)), default=int(self.config.vocab_size)
        )

    @property
    def padding(self) -> frozenset[int]:
        """The token that means padding, where one does: some models count positions without it."""
        token = getattr(self.config, "pad_token_id", None)
        return frozenset({token} if isinstance(token, int) and token >= 0 else ())

    @property
    def text(self) -> int:
        """A token that means nothing but text."""
        return next(token for token in range(1, 4) if token not in self.padding)

    @property
    def own_cache(self) -> bool:
        """Is what the forward pass takes a thing of the model's own, and none of the library's cache classes?"""
        told = inspect.signature(self.module.forward).parameters[self.cache_word].annotation
        named = any(hasattr(cache_utils, word) for word in re.findall("[A-Za-z]*Cache", str(told)))
        return told is not inspect.Parameter.empty and not named

    @cached_property
    def takes(self) -> frozenset[str]:
        """Names that the forward pass takes."""
        return frozenset(inspect.signature(self.module.forward).parameters)

    @cached_property
    def places(self) -> bool:
        """Can it be told positions? Where only further arguments could carry them, it is tried whether they matter."""
        further = [p for p in inspect.signature(self.module.forward).parameters.values() if p.kind is p.VAR_KEYWORD]
        if "position_ids" in self.takes or not further:
            return "position_ids" in self.takes
        tokens = torch.tensor([[token for token in range(1, 9) if token not in self.padding][:6]])
        mask = {"attention_mask": torch.ones_like(tokens)} if "attention_mask" in self.takes else {}
        apart = torch.arange(0, 2 * tokens.shape[1], 2)[None]
        try:
            with self.running():
                plain, placed = (self(tokens, use_cache=False, **mask, **more).logits for more in ({}, {"position_ids": apart}))
        except Exception:
            return False
        return not plain.equal(placed)

    @cached_property
    def cache_word(self) -> str:
        """What the cache is called. Raises `Unsupported` where the forward pass takes none."""
        for word in CACHE_WORDS:
            if word in self.takes:
                return word
        raise Unsupported(f"the forward pass of {type(self.module).__name__} takes no cache")

    @contextmanager
    def running(self) -> Generator[None]:
        """Around every call: no gradients; in float64, nothing narrower."""
        with torch.inference_mode(), lifted() if self.dtype == torch.float64 else nullcontext():
            yield

    def __call__(self, tokens: Tensor, **given: Any) -> Any:
        """The forward pass over tokens `[rows, n]`, for use inside `running`."""
        return self.call(input_ids=tokens.to(self.device), **given)

    def to(self, dtype: torch.dtype) -> Model:
        """The same model in another precision, kept for the next time. Raises `Unsupported` where no copy may be made."""
        if dtype == self.dtype:
            return self
        if not self.copies:
            size = f"{self.weight_bytes / 2**30:.2g} GiB of weights"
            raise Unsupported(f"no second copy is made of its {size}: leave the precision as it is, or say copies=yes")
        if dtype not in self._others:
            self._others[dtype] = Model(_converted(self.module, dtype), self.name)
        return self._others[dtype]


def _converted(module: Any, dtype: torch.dtype) -> nn.Module:
    """A copy in another precision. In a narrow one, tables that are computed and not stored stay as they are, as they do
    where the library loads a model; in float64 everything is wide, tensors that no module registered too."""
    wide = dtype == torch.float64
    with torch.inference_mode(False):
        new = copy.deepcopy(module)
        kept = {id(buffer) for buffer in new.buffers()} if not wide else set[int]()
        stored = {id(tensor) for tensor in new.state_dict(keep_vars=True).values()}
        narrow = re.compile("|".join(map(re.escape, _kept_wide(new, dtype))) or "(?!)")
        for path, part in new.named_modules():
            for name, tensor in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
                if not tensor.is_floating_point() or (id(tensor) in kept and id(tensor) not in stored):
                    continue
                if wide or not narrow.search(f"{path}.{name}"):
                    tensor.data = tensor.data.to(dtype)
            if wide:
                _widen_others(part)
        new.config.dtype = dtype
    return new


def _kept_wide(module: Any, dtype: torch.dtype) -> list[str]:
    """Parts that the library keeps in float32 in this precision."""
    names = set(getattr(module, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        names |= set(getattr(module, "_keep_in_fp32_modules", None) or ())
    return sorted(names)


def _widen_others(part: nn.Module) -> None:
    for name, value in vars(part).items():
        if isinstance(value, Tensor) and value.dtype in WIDE:
            setattr(part, name, value.to(WIDE[value.dtype]))

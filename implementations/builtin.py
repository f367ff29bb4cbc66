"""Built-in implementations: a cached model and a policy that keeps its cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..harness.implementation import generating
from ..reference.gpt import GPTConfig
from ..reference.hybrid import HybridConfig
from ..reference.shipped import PlainReference, reference
from .generating import Generating
from .models import ByPolicy, CachedGPT, CachedHybrid, CachedLlama, CachedModel, NoisyLlama
from .policy import Concat
from .stores import Static

OPERATIONS = frozenset({"full", "fork", "crop", "reset", "reset_rows", "select", "join", "restore", "length", "to"})


@cache
def model(name: str) -> CachedModel:
    """A cached model by the name of its reference."""
    plain = reference("llama" if name == "noisy" else name)
    return cached(name, plain)


def cached(name: str, plain: PlainReference) -> CachedModel:
    """A cached model over the weights of a plain reference."""
    if isinstance(plain.config, GPTConfig):
        return CachedGPT(name, plain.parameters, plain.config)
    if isinstance(plain.config, HybridConfig):
        return CachedHybrid(name, plain.parameters, plain.config)
    kind = NoisyLlama if name == "noisy" else CachedLlama
    return kind(name, plain.parameters, plain.config)


class BuiltIn(Generating):
    """A cached model whose cache objects are instances of a policy."""

    last_only: ClassVar[bool] = False
    """Give the logits of a call's last position only."""
    splits: ClassVar[bool] = False
    """A call may go through the model in parts, so that not even a prefill has the reference's operands."""
    padding_side: ClassVar[Literal["left", "right"]] = "left"

    def __init__(self, model: ByPolicy, policy: type[Concat], name: str = "") -> None:
        self.model = model
        self.policy = policy
        self.name = name or f"{model.name}/{policy.__name__}"
        self.vocab_size = model.shape.vocab_size
        self.max_length = model.shape.limit
        self.exact_prefill = policy.exact_prefill and not self.splits and model.exact
        self.incremental_bound = model.bound
        self.landmarks = policy.landmarks(model.shape)
        self.lossy = policy.lossy
        self.noisy = isinstance(model, NoisyLlama)
        self.ragged = self.padding_side if policy.ragged else "no"
        self.ways = tuple(self._ways())

    @property
    def capabilities(self) -> frozenset[str]:
        able = OPERATIONS - self.policy.lacks - ({"crop"} if self.model.shape.stateful else set[str]())
        return (able - {"to"} if self.noisy else able) | generating(self)

    def _ways(self) -> Iterator[str]:
        """Ways of generating that its caches allow."""
        yield from ("greedy", "chunked")
        if not self.policy.lossy:
            yield "static"
        if self.ragged != "no":
            yield "padded"
        if not self.last_only and not self.model.shape.stateful and "crop" not in self.policy.lacks:
            yield "lookup"
        if "select" not in self.policy.lacks:
            yield "beams"

    @property
    def like(self) -> str:
        """The built-in model that shows the same faults."""
        return self.model.like

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @torch.inference_mode()
    def new_cache(self, rows: int = 1) -> Concat:
        return self.policy(self.model.shape, rows)

    @torch.inference_mode()
    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        padding = None if lengths is None else padding_mask(tokens, lengths, self.ragged)
        logits = self.feed(cache, tokens, padding)
        return logits[:, -1:] if self.last_only else logits

    def feed(self, cache: Concat, tokens: Tensor, padding: Tensor | None) -> Tensor:
        """Logits of all of a call's tokens; `padding` says which are none."""
        cache.admit(tokens, padding)
        return self.model.forward(tokens, cache)

    @torch.inference_mode()
    def full(self, tokens: Tensor) -> Tensor:
        """One call on a cache that nothing has been in and nothing will be."""
        cache = Concat(self.model.shape, tokens.shape[0])
        cache.admit(tokens)
        return self.model.forward(tokens, cache)

    @torch.inference_mode()
    def fork(self, cache: Concat) -> Concat:
        return cache.fork()

    @torch.inference_mode()
    def crop(self, cache: Concat, length: int) -> None:
        cache.crop(length)

    @torch.inference_mode()
    def reset(self, cache: Concat) -> None:
        cache.reset()

    @torch.inference_mode()
    def select(self, cache: Concat, rows: Sequence[int]) -> None:
        cache.select(rows)

    @torch.inference_mode()
    def join(self, cache: Concat, other: Concat) -> None:
        cache.join(other)

    @torch.inference_mode()
    def dump(self, cache: Concat) -> bytes:
        return cache.dump()

    @torch.inference_mode()
    def load(self, data: bytes) -> Concat:
        return self.policy.load(self.model.shape, data)

    def length(self, cache: Concat) -> list[int]:
        return cache.lengths().tolist()

    @torch.inference_mode()
    def drop(self, cache: Concat) -> None:
        cache.release()

    def fixed_cache(self, rows: int) -> Concat:
        return Static(self.model.shape, rows)

    def crop_floor(self, lengths: Sequence[int]) -> int:
        return self.policy.crop_floor(self.model.shape, lengths)

    def to(self, dtype: torch.dtype) -> BuiltIn:
        return type(self)(self.model.to(dtype), self.policy, self.name)


def padding_mask(tokens: Tensor, lengths: Tensor, side: str) -> Tensor:
    """Which of `tokens` `[rows, n]` are padding, where each row has so many real ones."""
    places = torch.arange(tokens.shape[1], device=tokens.device)
    real = lengths.to(tokens.device)[:, None]
    return places < tokens.shape[1] - real if side == "left" else places >= real

"""What is under test: tokens in, logits out, state in a cache between calls.

Subclass `Implementation`, give `new_cache` and `append`, and override what else the cache can do: an overridden method
declares the capability of its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Cache = Any
"""One live state of an implementation, of whatever type it likes; the harness only hands it back."""

OPTIONAL = ("full", "fork", "crop", "reset", "select", "join", "dump", "length", "to", "quieter")
"""Methods whose overriding declares a capability. `dump` goes with `load` and is called `restore`."""

WAYS = ("greedy", "padded", "static", "chunked", "lookup", "beams")
"""Ways in which an implementation's own loop may generate text."""


class Implementation:
    """Tokens in, logits out. Shapes are `[rows, n]` for tokens (int64) and `[rows, n or 1, vocab]` for logits."""

    name: str = ""
    vocab_size: int = 0
    special: frozenset[int] = frozenset()
    """Tokens that are no text, so that programs feed none: one that means padding, say."""
    max_length: int | None = None
    """Positions; None where there is no limit. One more must be refused before any state is touched."""
    max_rows: int | None = None
    """Rows of one cache; 1 where there are no batches."""
    max_append: int | None = None
    """Tokens in one call; 1 for an engine that takes one token at a time."""
    max_caches: int | None = None
    """Caches alive at once; 1 where the state hangs on the model."""
    landmarks: tuple[int, ...] = ()
    """Lengths at which the behaviour changes: window, block, buffer, chunk, quantisation group."""
    lossy: int | None = None
    """Bits that the store keeps of a key or value, where it is approximate."""
    noisy: bool = False
    """Quantised arithmetic: judged by ratio to the noise of calls that read no cache."""
    exact_prefill: bool = False
    """Attention gets operands of the shape that the reference has, so a prefill is judged by equality."""
    incremental_bound: float | None = None
    """A published bound for incremental float32 logits, used instead of the measured one."""
    dtypes: tuple[str, ...] = ()
    """Names of the dtypes that `to` can be given; empty: any."""
    ways: tuple[str, ...] = ()
    """Ways that `generate` knows: greedy, padded (prompts of unequal length), static (a cache of fixed size), chunked (the
    prompt in parts), lookup (drafts from the prompt), beams (three; a score is a sum of log-probabilities)."""
    ragged: Literal["no", "left", "right"] = "no"
    array: Literal["torch", "numpy"] = "torch"
    """What tokens are handed in as. Logits may be of any kind that speaks DLPack."""
    refusals: tuple[type[Exception], ...] = (ValueError, IndexError, NotImplementedError, RuntimeError)
    """Exceptions that count as a refusal."""

    @property
    def capabilities(self) -> frozenset[str]:
        """What the cache can do: what is overridden, unless a subclass says otherwise."""
        own = {name for name in OPTIONAL if getattr(type(self), name) is not getattr(Implementation, name)}
        if "dump" in own:
            own = own - {"dump"} | {"restore"}
        return frozenset(own | generating(self))

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the logits, as computed now."""
        import torch

        return torch.float32

    @property
    def device(self) -> torch.device:
        import torch

        return torch.device("cpu")

    def prepare(self, ops: frozenset[str]) -> None:
        """Told before a program begins which kinds of op it has, for a cache that must know that a rollback will come."""

    def new_cache(self, rows: int = 1) -> Cache:
        """An empty cache of so many rows."""
        raise NotImplementedError(f"{type(self).__name__} does not define new_cache(rows)")

    def append(self, cache: Cache, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Feed `tokens` and give the logits of all new positions, or of the last one only.

        `lengths` comes only with ragged rows: how many of a row's tokens are real, padding (token 0) on the side that
        `ragged` names.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define append(cache, tokens)")

    def full(self, tokens: Tensor) -> Tensor:
        """The implementation's own forward pass without a cache: `[rows, n or 1, vocab]`."""
        raise NotImplementedError

    def fork(self, cache: Cache) -> Cache:
        """An independent copy."""
        raise NotImplementedError

    def crop(self, cache: Cache, length: int) -> None:
        """Roll back to the first `length` tokens."""
        raise NotImplementedError

    def crop_floor(self, lengths: Sequence[int]) -> int:
        """The least length that `crop` may go back to, given the lengths since the cache was empty."""
        return 0

    def reset(self, cache: Cache) -> None:
        """Empty the cache; it is then as good as new."""
        raise NotImplementedError

    def select(self, cache: Cache, rows: Sequence[int]) -> None:
        """New row i is old row `rows[i]`."""
        raise NotImplementedError

    def join(self, cache: Cache, other: Cache) -> None:
        """The rows of `other` become further rows of `cache`."""
        raise NotImplementedError

    def dump(self, cache: Cache) -> bytes:
        raise NotImplementedError

    def load(self, data: bytes) -> Cache:
        raise NotImplementedError

    def length(self, cache: Cache) -> int | Sequence[int]:
        """Tokens held: one number, or one a row where rows are ragged."""
        raise NotImplementedError

    def generate(self, prompts: Sequence[Sequence[int]], count: int, way: str) -> Sequence[Sequence[int]]:
        """For each prompt the next `count` tokens by the implementation's own loop, in one of its `ways`: the best at each
        step, none of the `special` ones, and no token ends it."""
        raise NotImplementedError

    def drop(self, cache: Cache) -> None:
        """Forget a cache. Nothing to do unless memory is held elsewhere."""

    def close(self) -> None:
        """Let go of what the implementation holds."""

    def to(self, dtype: torch.dtype) -> Implementation:
        """The same model in another precision."""
        raise NotImplementedError

    def quieter(self) -> Implementation:
        """The same weights without that noise, dequantised say: noisy arithmetic is judged there first."""
        raise NotImplementedError


def generating(implementation: Implementation) -> set[str]:
    """Capabilities that its ways of generating are: `generate.greedy` and so on."""
    return {f"generate.{way}" for way in implementation.ways}

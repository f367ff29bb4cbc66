"""Calls of an implementation that take tokens and give logits: arrays go in as it wants them, and come out as tensors.

Memory is shared, so that what a call changes in its tokens, and a later call in its logits, is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import Unsupported
from .implementation import Cache, Implementation
from .passes import PASSES

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def append(implementation: Implementation, cache: Cache, tokens: Tensor, lengths: Tensor | None = None) -> Any:
    """`append` with tensors; a tensor where what it gives can be seen as one, else what it gave."""
    more = () if lengths is None else (lengths,)
    return called(lambda *given: implementation.append(cache, *given), implementation, tokens, *more)


def full(implementation: Implementation, tokens: Tensor) -> Any:
    """`full` likewise."""
    return called(implementation.full, implementation, tokens)


def called(method: Callable[..., Any], implementation: Implementation, *tokens: Tensor) -> Any:
    """A method with tensors as the implementation wants them. No gradients are recorded: nobody asks for them here."""
    import torch

    PASSES.count()
    with torch.no_grad():
        return taken(method(*(handed(one, implementation) for one in tokens)), implementation.dtype)


def handed(tensor: Tensor, implementation: Implementation) -> Any:
    """Tokens as an implementation wants them: numpy, or a tensor on its device."""
    if implementation.array == "numpy":
        return tensor.numpy()
    return tensor if implementation.device.type == "cpu" else tensor.to(implementation.device)


def taken(value: Any, dtype: torch.dtype) -> Any:
    """Logits as a tensor: on the same memory where they are an array that speaks DLPack or numpy's protocol, in `dtype` where
    they are lists of numbers."""
    import numpy as np
    import torch

    if isinstance(value, list) and _number_in(value):
        try:
            return torch.tensor(value, dtype=dtype)
        except (ValueError, TypeError):  # parts of unequal length, or of another kind
            return value
    if isinstance(value, torch.Tensor) or not hasattr(value, "__dlpack__"):
        return value
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    return torch.from_dlpack(value)


def _number_in(value: Any) -> bool:
    """Is the first thing in lists of lists a number?"""
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, int | float)


def single(implementation: Implementation, tokens: Tensor) -> Any:
    """One append of `tokens` `[rows, n]` on a fresh cache. Raises `Unsupported` where it takes fewer in a call."""
    most = implementation.max_append
    if most is not None and most < tokens.shape[1]:
        raise Unsupported(f"a single call of {tokens.shape[1]} tokens is wanted here, and it takes at most {most}")
    cache = implementation.new_cache(tokens.shape[0])
    try:
        return append(implementation, cache, tokens)
    finally:
        implementation.drop(cache)


def every_position(call: Callable[[Tensor], Tensor], tokens: Tensor) -> Tensor:
    """Logits `[rows, n, vocab]` of a call on `tokens`; one that gives the last position only is made once a prefix."""
    import torch

    got = call(tokens)
    if got.shape[1] == tokens.shape[1]:
        return got
    return torch.cat([*(call(tokens[:, :length]) for length in range(1, tokens.shape[1])), got], dim=1)

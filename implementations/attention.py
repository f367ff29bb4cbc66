"""Attention over stored keys, written apart from the references'."""

from __future__ import annotations

import math

from torch import Tensor


class BroadcastError(RuntimeError):
    """A mask that does not fit the scores. The words are candle's: the two shapes tell position and cached length."""


def attend(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
    """Mix values for each query: `[rows, heads, n, head_dim]` and `[rows, kv_heads, keys, head_dim]` to
    `[rows, n, heads * head_dim]`. `visible` is `[n, keys]` or `[rows, 1, n, keys]`; None: all keys are seen."""
    shared = query.shape[1] // keys.shape[1]
    if shared > 1:
        keys, values = keys.repeat_interleave(shared, dim=1), values.repeat_interleave(shared, dim=1)
    scores = query @ keys.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if visible is not None:
        if not _fits(visible, scores):
            raise BroadcastError(f"cannot broadcast {list(visible.shape)} to {list(scores.shape)}")
        scores = scores.masked_fill(visible.logical_not(), -math.inf)
    mixed = scores.softmax(dim=-1) @ values
    return mixed.transpose(1, 2).flatten(2)


def _fits(visible: Tensor, scores: Tensor) -> bool:
    sizes = zip(reversed(visible.shape), reversed(scores.shape), strict=False)
    return all(mask in (1, score) for mask, score in sizes)


def split(x: Tensor, heads: int) -> Tensor:
    """`[rows, n, heads * head_dim]` to `[rows, heads, n, head_dim]`."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)

"""What torch computes as attention, in order: queries, keys, values, who sees whom, and what comes out.

A function mode looks on while somebody else's code runs; nothing in that code changes. Attention is either a call of
`scaled_dot_product_attention`, or a softmax between two products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

PRODUCTS = ("matmul", "__matmul__", "bmm")
HIDDEN = 1e4
"""Scores below minus this are those of a mask: as an infinity or the least number, and in float16 at least so much."""


@dataclass(frozen=True, eq=False)
class Attention:
    """One call. `query` and `output` are `[rows, heads, n, dim]`, `key` and `value` `[rows, heads, slots, dim]` with as many
    heads, `visible` is `[rows, n, slots]`: which slots a query sees."""

    query: Tensor
    key: Tensor
    value: Tensor
    visible: Tensor
    output: Tensor


class AttentionCalls(TorchFunctionMode):
    """Puts attention of four dimensions behind `calls`, a list that others may share, while it is entered, in the thread
    that enters it."""

    def __init__(self, calls: list[Any]) -> None:
        super().__init__()
        self.calls = calls
        self._product: tuple[Tensor, Tensor, Tensor] | None = None
        self._pending: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            self._fused(args, kwargs or {}, result)
        elif name in PRODUCTS and isinstance(result, Tensor) and result.dim() == 4:
            self._multiplied(args[0], args[1], result)
        elif name == "softmax" and isinstance(result, Tensor) and self._product is not None:
            query, key, scores = self._product
            if scores.shape == result.shape:
                given = args[0] if args else (kwargs or {})["input"]
                self._pending = query, key, (given > -HIDDEN).any(dim=1), result
            self._product = None
        return result

    def _multiplied(self, one: Tensor, other: Tensor, result: Tensor) -> None:
        if self._pending is not None and one.shape == self._pending[3].shape:
            query, key, visible, _ = self._pending
            self._keep(query, key, other, visible, result)
            self._pending = None
        else:
            self._product = one, other.transpose(-2, -1), result

    def _fused(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Tensor) -> None:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        query, key, value, mask = given["query"], given["key"], given["value"], given.get("attn_mask")
        if query.dim() != 4:
            return
        rows, new, slots = query.shape[0], query.shape[2], key.shape[2]
        visible = torch.ones(new, slots, dtype=torch.bool, device=query.device)
        if given.get("is_causal"):
            visible = visible.tril()
        elif mask is not None:
            visible = mask if mask.dtype == torch.bool else mask > -HIDDEN
            visible = visible.any(dim=1) if visible.dim() == 4 else visible
        self._keep(query, key, value, visible.expand(rows, new, slots), result)

    def _keep(self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor, output: Tensor) -> None:
        """Copies: what is in a cache is written over later."""
        shared = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(shared, dim=1) if shared > 1 else x for x in (key, value))
        self.calls.append(Attention(*(x.detach().clone() for x in (query, key, value, visible, output))))

"""How peaked attention is: the spread of what its softmax is given."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_SOFTMAX: tuple[Callable[..., Tensor], ...] = (torch.softmax, nn.functional.softmax, Tensor.softmax)
_MASKED = -1e4
"""What lies below is a mask's."""


def attention_spread(model: nn.Module, tokens: Tensor) -> tuple[float | None, Tensor]:
    """Standard deviation over the visible keys of the last query, the median of all softmax calls; and the logits.

    None where no softmax runs over keys (state spaces, fused kernels). tokens [rows, n], logits [rows, n, vocab].
    """
    with _Spreads(tokens.shape[1]) as seen:
        logits = model(input_ids=tokens, use_cache=False).logits
    return (median(seen.spreads) if seen.spreads else None), logits


class _Spreads(TorchFunctionMode):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.spreads: list[float] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _SOFTMAX and args and args[0].dim() >= 3 and args[0].shape[-2] == self.length <= args[0].shape[-1]:
            last = args[0][..., -1, :]
            visible = last.masked_fill(last < _MASKED, torch.nan)
            if (spread := (visible - visible.nanmean(-1, keepdim=True)).square().nanmean().sqrt()).isfinite():
                self.spreads.append(float(spread))
        return func(*args, **(kwargs or {}))

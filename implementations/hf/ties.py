"""Where a model itself could go either way: selections among nearly equal scores, frequencies that depend on the length.

Recognised by what a pass does and not by model names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

TIE = 64.0
"""Scores that lie closer than so many units in the last place of their scale are a tie."""
LENGTH_DEPENDENT = ("dynamic", "longrope")
"""Rotary scalings whose frequencies are chosen by the length of a call."""


class Selections(TorchFunctionMode):
    """While a pass over one row of `length` tokens runs: at which tokens a selection was decided by less than noise."""

    def __init__(self, length: int, epsilon: float) -> None:
        super().__init__()
        self.length, self.epsilon = length, epsilon
        self.tied: dict[int, str] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func in (torch.topk, Tensor.topk):
            scores, k, dim, largest = _topk(*args, **kwargs)
            if scores.is_floating_point() and k < scores.shape[dim]:
                self._note(scores.movedim(dim, -1), k, largest, f"top {k} of {scores.shape[dim]}")
        elif func in (torch.argmax, Tensor.argmax):
            scores, dim = _argmax(*args, **kwargs)
            if dim is not None and scores.is_floating_point() and scores.shape[dim] > 1:
                self._note(scores.movedim(dim, -1), 1, True, f"the largest of {scores.shape[dim]}")
        return result

    def _note(self, scores: Tensor, k: int, largest: bool, what: str) -> None:
        """`scores` `[..., choices]`: the last that was chosen against the first that was not."""
        with torch._C.DisableTorchFunction():
            best = (scores if largest else -scores).topk(k + 1, dim=-1).values
            scale = best.abs().masked_fill(~best.isfinite(), 0).amax(dim=-1).clamp(min=1e-300)
            margin = (best[..., k - 1] - best[..., k]) / scale  # NaN where both are masked out, infinite where one is
            for token in self._tokens(margin <= TIE * self.epsilon):
                self.tied.setdefault(token, f"a tie at a selection ({what}): the margin is within the noise")

    def _tokens(self, tied: Tensor) -> Iterator[int]:
        """Which tokens the flags belong to: the axis that has as many entries as there are tokens; all where none has."""
        if not tied.any():
            return
        if self.length in tied.shape:
            axis = tied.shape.index(self.length)
            yield from tied.movedim(axis, 0).reshape(self.length, -1).any(dim=-1).nonzero().flatten().tolist()
        else:
            yield from range(self.length)


def _topk(scores: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, **_: Any) -> Any:
    return scores, int(k), dim, largest


def _argmax(scores: Tensor, dim: int | None = None, keepdim: bool = False, **_: Any) -> Any:
    return scores, dim


def by_length(module: Any) -> bool:
    """Has a part of the model rotary frequencies that depend on the length of a call?"""
    for part in module.modules():
        kind = getattr(part, "rope_type", None)
        kinds = kind.values() if isinstance(kind, dict) else [kind]
        if any(word in str(one) for one in kinds for word in LENGTH_DEPENDENT):
            return True
    return False


def frequencies(module: Any) -> list[Tensor]:
    """Copies of the rotary tables as they stand."""
    return [buffer.clone() for name, buffer in module.named_buffers() if name.endswith("inv_freq")]

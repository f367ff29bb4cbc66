"""A cache whose layers make their masks for what they hold, as many engines do."""

from __future__ import annotations

import torch
from torch import Tensor

from ..policy import Concat


class MaskForEach(Concat):
    """Each layer makes its mask for the keys that it has, so that layers of unequal length go unnoticed."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None) -> Tensor:
        count, there = query.shape[2], keys.shape[2]
        if visible is not None and visible.shape[-1] != there:
            visible = torch.ones(count, there, dtype=torch.bool).tril(there - count)
        return super().attend(query, keys, values, visible)

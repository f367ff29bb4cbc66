"""Which keys may a query see?"""

from __future__ import annotations

from torch import Tensor

from ..catalogue import fault
from ..policy import Concat


@fault(
    clause="prefill.identity",
    shows="in calls of more than one token; the text may not change at all",
    diagnosis="there is no causal mask",
    reports=("published case", "TinyLLM#17"),
    scenario="chunks",
)
class NoMask(Concat):
    """There is no causal mask with a cache."""

    def visible(self, count: int) -> Tensor | None:
        return None

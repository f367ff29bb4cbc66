"""What becomes of the state of recurrent and convolution layers?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from ..catalogue import fault
from ..policy import Concat

MODELS = ("hybrid",)


@fault(
    clause="prefill.chunked",
    shows="on a warm cache, in calls of several tokens",
    diagnosis="a call of several tokens starts from an empty state",
    reports=("mamba#739", "transformers state models"),
    models=MODELS,
    scenario="chunks",
)
class StateNotCarried(Concat):
    """A call of several tokens starts from an empty state."""

    def recall(self, layer: int, count: int) -> Tensor | None:
        return None if count > 1 else super().recall(layer, count)


@fault(
    clause="branch.fork",
    shows="once both branches have appended",
    diagnosis="a fork copies keys and values and shares the state",
    reports=("vllm fork family",),
    models=MODELS,
    scenario="branch",
)
class StateNotForked(Concat):
    """A fork copies keys and values and shares the state."""

    def fork(self) -> Self:
        twin = super().fork()
        twin.states = self.states
        return twin


@fault(
    clause="branch.select",
    shows="where rows differ",
    diagnosis="rows are reordered for keys and values, not for the state",
    reports=("transformers#46612",),
    models=MODELS,
    scenario="reorder",
)
class StateNotSelected(Concat):
    """Rows are reordered for keys and values, not for the state."""

    def select_states(self, picks: Sequence[int]) -> None:
        pass


@fault(
    clause="batch.padding",
    shows="in ragged rows",
    diagnosis="padding is taken into the state",
    reports=("transformers#48256",),
    models=MODELS,
    scenario="ragged",
)
class StateSeesPadding(Concat):
    """Padding is taken into the state."""

    def moves_state(self, count: int) -> Tensor:
        return torch.ones(self.rows, count, dtype=torch.bool)


@fault(
    clause="lifecycle.reset",
    shows="from the second prompt on",
    diagnosis="a reset clears keys and values and leaves the state",
    models=MODELS,
    scenario="reset",
)
class StateKeptAfterReset(Concat):
    """A reset clears keys and values and leaves the state."""

    def reset(self) -> None:
        states = self.states
        super().reset()
        self.states = states

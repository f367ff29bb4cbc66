"""Loops that generate text: what goes wrong around a cache that is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..builtin import BuiltIn
from ..catalogue import fault
from ..policy import Concat
from ..stores import Static


@fault(clause="generate.greedy", shows="from the second token on", diagnosis="the last token of the prompt is fed twice")
class LastTokenFedTwice(BuiltIn):
    """The loop feeds the prompt whole, and its last token again to begin with."""

    def prefill(self, cache: Concat, prompts: Sequence[Sequence[int]], chunk: int | None) -> Tensor:
        super().prefill(cache, prompts, chunk)
        return self.step(cache, prompts)


@fault(clause="generate.padded", shows="in shorter rows", diagnosis="the mask of a padded batch is made and not handed over")
class PaddingUnmasked(BuiltIn):
    """Padding of a batch is fed as if it were text."""

    def padded(self, cache: Concat, prompts: Sequence[Sequence[int]], lengths: Tensor, longest: int) -> Tensor:
        return super().padded(cache, prompts, torch.full_like(lengths, longest), longest)


@fault(
    clause="generate.padded",
    shows="in shorter rows",
    diagnosis="generated tokens of a padded row count positions from the longest row",
)
class PaddedRowPosition(BuiltIn):
    """Generated tokens of a padded row count positions from the longest row."""

    def step(self, cache: Concat, rows: Sequence[Sequence[int]]) -> Tensor:
        cache.__dict__["positions"] = lambda count: cache.slots(count)
        return super().step(cache, rows)


class Unhidden(Static):
    """All slots of the buffer are seen, those that hold nothing yet too."""

    poison = 0.0

    def visible(self, count: int) -> Tensor:
        return torch.ones_like(super().visible(count)) if count == 1 else super().visible(count)


@fault(clause="generate.static", shows="in every step", diagnosis="empty slots of the buffer are seen")
class StaticSeesEmpty(BuiltIn):
    """A cache of fixed size lets each new token see the slots that hold nothing yet."""

    def fixed_cache(self, rows: int) -> Concat:
        return Unhidden(self.model.shape, rows)


@fault(clause="generate.chunked", shows="from the second chunk on", diagnosis="each chunk begins at an emptied cache")
class StaleChunk(BuiltIn):
    """Only the last chunk of a prompt stays in the cache."""

    def fed_in_chunks(self, cache: Concat, tokens: Tensor, chunk: int) -> Tensor:
        for part in tokens.split(chunk, dim=1)[:-1]:
            self.append(cache, part)
            self.reset(cache)
        return self.append(cache, tokens.split(chunk, dim=1)[-1])[:, -1]


@fault(clause="generate.chunked", shows="where the last chunk is short", diagnosis="the last chunk is filled up with padding")
class LastChunkFilledUp(BuiltIn):
    """A short last chunk is filled up to a whole one, and the filling is taken for text."""

    def fed_in_chunks(self, cache: Concat, tokens: Tensor, chunk: int) -> Tensor:
        more = -tokens.shape[1] % chunk
        return super().fed_in_chunks(cache, torch.nn.functional.pad(tokens, (0, more)), chunk)


@fault(
    clause="generate.lookup",
    shows="once a draft is rejected",
    diagnosis="a rejected draft stays in the cache",
    models=("gpt", "llama", "window"),
)
class RejectedDraftStays(BuiltIn):
    """What was drafted wrongly stays in the cache."""

    def reject(self, cache: Any, length: int) -> None:
        pass


@fault(
    clause="generate.lookup",
    shows="once a draft is rejected",
    diagnosis="a draft is taken unseen",
    models=("gpt", "llama", "window"),
)
class DraftTakenUnseen(BuiltIn):
    """The rollback keeps one token too many."""

    def reject(self, cache: Any, length: int) -> None:
        super().reject(cache, length + 1)


@fault(clause="generate.beams", shows="once beams change places", diagnosis="the cache is not reordered with the beams")
class BeamsNotReordered(BuiltIn):
    """Beams go on from the cache of their place and not of the beam that they grew from."""

    def hand_over(self, cache: Concat, parents: list[int]) -> None:
        super().hand_over(cache, parents if cache.rows == 1 else list(range(len(parents))))

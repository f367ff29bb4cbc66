"""A loop of generating text over a cache's own operations: greedy, padded, chunked, drafts from the prompt, beams.

Faults are subclasses of `BuiltIn` with one of the short steps overridden.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..harness.errors import Unsupported
from ..harness.implementation import Implementation

CHUNK = 4
DRAFTS = 3
BEAMS = 3


class Generating(Implementation):
    """An implementation whose `generate` is made of its `append`, `crop` and `select`."""

    def generate(self, prompts: Sequence[Sequence[int]], count: int, way: str) -> list[list[int]]:
        cache = self.fixed_cache(len(prompts)) if way == "static" else self.new_cache(len(prompts))
        try:
            if way == "beams":
                return [self.search(list(prompt), count) for prompt in prompts]
            if way == "lookup":
                return [self.looked_up(cache, list(prompt), count) for prompt in prompts]
            best = self.best(self.prefill(cache, prompts, CHUNK if way == "chunked" else None))
            rows = [[token] for token in best]
            for _ in range(count - 1):
                for row, token in zip(rows, self.best(self.step(cache, rows)), strict=True):
                    row.append(token)
            return rows
        finally:
            self.drop(cache)

    def fixed_cache(self, rows: int) -> Any:
        """A cache that is one buffer of fixed size."""
        raise Unsupported("it has no cache of fixed size")

    def prefill(self, cache: Any, prompts: Sequence[Sequence[int]], chunk: int | None) -> Tensor:
        """Feed the prompts, in chunks where a size is given; logits behind their last tokens."""
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        longest = int(lengths.max())
        if bool((lengths < longest).any()):
            return self.padded(cache, prompts, lengths, longest)
        return self.fed_in_chunks(cache, torch.tensor([list(prompt) for prompt in prompts]), chunk or longest)

    def fed_in_chunks(self, cache: Any, tokens: Tensor, chunk: int) -> Tensor:
        logits = [self.append(cache, part) for part in tokens.split(chunk, dim=1)]
        return logits[-1][:, -1]

    def padded(self, cache: Any, prompts: Sequence[Sequence[int]], lengths: Tensor, longest: int) -> Tensor:
        """Prompts of unequal length, padding on the side that the implementation says."""
        left = self.ragged == "left"
        tokens = torch.zeros(len(prompts), longest, dtype=torch.int64)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[longest - len(prompt) if left else 0 :][: len(prompt)] = torch.tensor(list(prompt))
        logits = self.append(cache, tokens, lengths)
        last = torch.full_like(lengths, logits.shape[1]) if left or logits.shape[1] == 1 else lengths
        return logits[torch.arange(len(prompts)), last - 1]

    def step(self, cache: Any, rows: Sequence[Sequence[int]]) -> Tensor:
        """Feed what was chosen last."""
        return self.append(cache, torch.tensor([row[-1:] for row in rows]))[:, -1]

    def best(self, logits: Tensor) -> list[int]:
        return logits.argmax(-1).tolist()

    # Drafts from the prompt

    def looked_up(self, cache: Any, prompt: list[int], count: int) -> list[int]:
        """Each call feeds the last token and what followed it before; what was drafted wrongly is rolled back."""
        tokens = prompt + self.best(self.prefill(cache, [prompt], None))
        while len(tokens) < len(prompt) + count:
            drafts = self.drafts(tokens)[: len(prompt) + count - len(tokens) - 1]
            held = len(tokens) - 1
            if self.crop_floor([held, held + 1 + len(drafts)]) > held + 1:  # what is rejected could not be taken back
                drafts = []
            logits = self.append(cache, torch.tensor([[tokens[-1], *drafts]]))
            chosen: list[int] = logits[0].argmax(-1).tolist()
            right = 0
            while right < len(drafts) and drafts[right] == chosen[right]:
                right += 1
            tokens += chosen[: right + 1]
            if right < len(drafts):
                self.reject(cache, len(tokens) - 1)
        return tokens[len(prompt) :]

    def drafts(self, tokens: Sequence[int]) -> list[int]:
        """What followed the last token where it stood before."""
        for place in range(len(tokens) - 2, -1, -1):
            if tokens[place] == tokens[-1]:
                return list(tokens[place + 1 : place + 1 + DRAFTS])
        return []

    def reject(self, cache: Any, length: int) -> None:
        """Take back what lies behind the tokens that were right."""
        self.crop(cache, length)

    # Beams

    def search(self, prompt: list[int], count: int) -> list[int]:
        """The best of `BEAMS` beams by the sum of log-probabilities."""
        cache = self.new_cache(1)
        try:
            scores, beams = torch.zeros(1, dtype=torch.float64), [list[int]()]
            logits = self.append(cache, torch.tensor([prompt]))[:, -1]
            for _ in range(count):
                grown = scores[:, None] + logits.double().log_softmax(-1)
                scores, places = grown.flatten().topk(BEAMS)
                parents, tokens = (places // grown.shape[1]).tolist(), (places % grown.shape[1]).tolist()
                beams = [[*beams[parent], token] for parent, token in zip(parents, tokens, strict=True)]
                self.hand_over(cache, parents)
                logits = self.step(cache, beams)
            return beams[int(scores.argmax())]
        finally:
            self.drop(cache)

    def hand_over(self, cache: Any, parents: list[int]) -> None:
        """Each beam goes on from the cache of the one that it grew from."""
        self.select(cache, parents)

"""Forms of faults of visibility, windows included."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from ...harness.program import Append, Program
from ..builtin import BuiltIn
from ..catalogue import form
from ..policy import CacheShape, Concat


def ahead(target: BuiltIn, program: Program) -> Iterable[int]:
    return (2, 3)


def near(target: BuiltIn, program: Program) -> Iterable[int]:
    return (2, 3, 4) if target.model.shape.window else ()


def lengths(target: BuiltIn, program: Program) -> Iterable[int]:
    """Windows that a model without one may have been given: no longer than what the program feeds."""
    if target.model.shape.window:
        return ()
    longest = max((len(row) for op in program.ops if isinstance(op, Append) for row in op.rows), default=1)
    return range(1, min(longest + len(program.ops), 20))


@form("no_mask", "there is no causal mask on a warm cache", name="no_mask_when_warm")
class NoMaskWhenWarm(Concat):
    def visible(self, count: int) -> Tensor | None:
        return None if self.length else super().visible(count)


@form("no_mask", "there is no causal mask in the first call", name="no_mask_when_fresh")
class NoMaskWhenFresh(Concat):
    def visible(self, count: int) -> Tensor | None:
        return super().visible(count) if self.length else None


@form("mask_one_ahead", "a token sees the {value} after it", values=ahead)
class Ahead(Concat):
    value: ClassVar[int] = 1

    def visible(self, count: int) -> Tensor | None:
        return self.span(0, self.length + count) <= self.slots(count)[:, None] + self.value


@form("first_token_hidden", "a token does not see itself on a warm cache", name="self_hidden")
class SelfHidden(Concat):
    def visible(self, count: int) -> Tensor | None:
        seen = super().visible(count)
        if not self.length:
            return seen
        keys, queries = self.span(0, self.length + count), self.slots(count)[:, None]
        return (keys < queries) if seen is None else seen & (keys != queries)


@form("first_token_hidden", "the last token of the past is hidden", name="last_past_hidden")
class LastPastHidden(Concat):
    def visible(self, count: int) -> Tensor | None:
        seen = super().visible(count)
        if not self.length:
            return seen
        there = torch.ones(count, self.length + count, dtype=torch.bool) if seen is None else seen
        return there & (self.span(0, self.length + count) != self.length - 1)


@form("mask_square", "the past is hidden from calls of several tokens", name="past_hidden_from_several")
class PastHiddenFromSeveral(Concat):
    def visible(self, count: int) -> Tensor | None:
        seen = super().visible(count)
        if seen is None or not self.length or count == 1:
            return seen
        return seen & (self.span(0, self.length + count) >= self.length)


@form("window_short", "the window is {value} too short", values=near)
class WindowShorter(Concat):
    value: ClassVar[int] = 1

    def __init__(self, shape: CacheShape, rows: int) -> None:
        super().__init__(replace(shape, window=max((shape.window or 1) - self.value, 1)), rows)


@form("window_long", "the window is {value} too long", values=near)
class WindowLonger(Concat):
    value: ClassVar[int] = 1

    def __init__(self, shape: CacheShape, rows: int) -> None:
        super().__init__(replace(shape, window=(shape.window or 1) + self.value), rows)


@form("window_long", "the window is ignored: everything is seen", name="window_ignored")
class WindowIgnored(Concat):
    def __init__(self, shape: CacheShape, rows: int) -> None:
        super().__init__(replace(shape, window=None), rows)


@form(
    "window_short",
    "only the last {value} tokens are seen: a window that the model has not",
    name="window_added",
    values=lengths,
)
class WindowAdded(Concat):
    value: ClassVar[int] = 1

    def __init__(self, shape: CacheShape, rows: int) -> None:
        super().__init__(replace(shape, window=self.value), rows)


@form("window_short", "a token on a warm cache sees all, whatever the window", name="window_ignored_in_decode")
class WindowIgnoredInDecode(Concat):
    def visible(self, count: int) -> Tensor | None:
        if count == 1 and self.padding is None:
            return None
        return super().visible(count)


def less(target: BuiltIn, program: Program) -> Iterable[int]:
    return (1, 2) if target.model.shape.window else ()


@form("window_short", "the cache keeps {value} token less than the window", name="window_kept_short", values=less)
class WindowKeptShort(Concat):
    """A call sees its own tokens by the right window, and of the past what is left."""

    value: ClassVar[int] = 1

    def visible(self, count: int) -> Tensor | None:
        seen = super().visible(count)
        if self.shape.window is None:
            return seen
        kept = self.span(0, self.length + count) > self.length - self.shape.window + self.value
        return kept.expand(count, -1) if seen is None else seen & kept

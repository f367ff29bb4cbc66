"""Which logits should an append give? The reference on the history, remembered by tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

from .errors import Unsupported
from .passes import PASSES
from .program import Row

MEMORY = 256 * 2**20
"""Bytes of logits that an oracle remembers."""


class Reference(Protocol):
    """A plain forward pass without a cache.

    It may have more to say. `doubts(tokens, epsilon)` gives for tokens `[1, n]` a reason a position, empty where there is
    none, why its logits may be others without anything being wrong: a selection among scores that are equal up to the
    noise of a precision with this `epsilon`, say. `whole_rows` is true where a pass over more tokens gives the earlier
    ones other logits, so that each row needs a pass of its own.
    """

    @property
    def name(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    def logits(self, tokens: Tensor) -> Tensor:
        """`[rows, n, vocab]` for tokens `[rows, n]`."""
        ...

    def to(self, dtype: torch.dtype) -> Reference:
        """The same weights in another precision."""
        ...


class Oracle:
    """The reference in one dtype. Rows are remembered one by one; exact calls as a whole, since a batched row and a
    prefix of a longer pass are not bit-equal to the call that is judged."""

    def __init__(self, reference: Reference, dtype: torch.dtype) -> None:
        import torch

        self.dtype = dtype
        self.epsilon = torch.finfo(dtype).eps
        self._given, self._reference = reference, reference.to(dtype)
        self._rows: OrderedDict[Row, Tensor] = OrderedDict()
        self._longest: dict[Row, Row] = {}
        self._calls: OrderedDict[tuple[Row, ...], Tensor] = OrderedDict()
        self._floors: dict[Row, float] = {}
        self._conditioning: dict[Row, float] = {}
        self._doubts: dict[Row, Sequence[str]] = {}
        self._whole_rows = bool(getattr(reference, "whole_rows", False))
        self._is_wide = dtype == torch.float64
        self.passes = 0

    @property
    def reference(self) -> Reference:
        return self._reference

    @cached_property
    def _wide(self) -> Reference | None:
        """The reference in float64, where it can be put in it."""
        import torch

        try:
            return self._given.to(torch.float64)
        except Unsupported:
            return None

    def call(self, rows: tuple[Row, ...]) -> Tensor:
        """The reference on this very call, `[rows, n, vocab]`: what exactness is judged by."""
        if rows not in self._calls:
            self._calls[rows] = self._pass(self._reference, rows)
            _forget(self._calls)
        return self._calls[rows]

    def row(self, tokens: Row, count: int) -> Tensor:
        """Logits `[count, vocab]` of the last `count` positions of one row."""
        known = self._longest.get(tokens)
        if known is None or known not in self._rows:
            self._remember(tokens)
            known = tokens
        self._rows.move_to_end(known)
        return self._rows[known][len(tokens) - count : len(tokens)]

    def expected(self, rows: tuple[Row, ...], count: int) -> Tensor:
        """Logits `[rows, count, vocab]` of the last `count` positions of rows that are of one length."""
        import torch

        return torch.stack([self.row(row, count) for row in rows])

    def prepare(self, rows: list[Row]) -> None:
        """Compute rows of which others are prefixes first, so that one pass serves them all."""
        for row in sorted(rows, key=len, reverse=True):
            self.row(row, 1)

    def rounded(self, tokens: Row, bits: int) -> Tensor:
        """Logits `[n, vocab]` of the reference with keys and values rounded to so many bits: the noise of a lossy store.

        Raises `Unsupported` where the reference cannot round.
        """
        import torch

        rounding = getattr(self._reference, "rounded", None)
        if rounding is None:
            raise Unsupported("its store is lossy, and this reference cannot round keys and values to judge it by")
        PASSES.count()
        with torch.inference_mode():
            return rounding(torch.tensor([tokens]), bits)[0]

    @property
    def narrow(self) -> bool:
        """Is it in half precision itself, for want of a wider one on the same weights?"""
        return self.epsilon > 1e-5 and hasattr(self._reference, "nudged")

    def nudged(self, tokens: Row) -> Tensor:
        """Logits `[n, vocab]` of the reference with what enters its layers moved by a unit in the last place: the noise of a
        precision that it is in itself. Raises `Unsupported` where it cannot."""
        import torch

        nudge = getattr(self._reference, "nudged", None)
        if nudge is None:
            raise Unsupported("the reference has this precision only, and cannot say how large its noise is")
        PASSES.count()
        with torch.inference_mode():
            return nudge(torch.tensor([tokens]))[0]

    def floor(self, tokens: Row) -> float:
        """The noise of the reference on a row: against itself in float64 where it has that precision, in another batch
        shape, and in a pass that ends earlier.

        Never read from the thing under test.
        """
        if tokens not in self._floors:
            plain = self.row(tokens, len(tokens))
            start = tokens[: len(tokens) // 2 + 1]
            variants = [self._pass(self._reference, (tokens, tokens[::-1]))[0]]
            if not self._whole_rows:
                variants.append(self._pass(self._reference, (start,))[0])
            if not self._is_wide and self._wide is not None:
                variants.append(self._pass(self._wide, (tokens,))[0])
            self._floors[tokens] = max((other - plain[: len(other)]).abs().max().item() for other in variants)
        return self._floors[tokens]

    def conditioning(self, tokens: Row) -> float:
        """How far logits of a row move where what enters the layers is moved by a unit in the last place: what a model that
        amplifies rounding makes of any other order of its sums. 0 where the reference cannot tell."""
        if not hasattr(self._reference, "nudged"):
            return 0.0
        if tokens not in self._conditioning:
            self._conditioning[tokens] = (self.nudged(tokens) - self.row(tokens, len(tokens))).abs().max().item()
        return self._conditioning[tokens]

    def precision_gap(self, tokens: Row) -> float:
        """How far the reference in float64 is on a row; 0 where that is what is asked, or where it has no float64."""
        if self._is_wide or self._wide is None:
            return 0.0
        return (self._pass(self._wide, (tokens,))[0] - self.row(tokens, len(tokens))).abs().max().item()

    def doubt(self, tokens: Row, position: int, epsilon: float) -> str:
        """Why the logits of a position in a row cannot be told in a precision; empty where they can."""
        if tokens not in self._doubts:
            import torch

            ask = getattr(self._reference, "doubts", None)
            PASSES.count(3 if ask and self._whole_rows else 1 if ask else 0)
            with torch.inference_mode():
                self._doubts[tokens] = ask(torch.tensor([tokens]), epsilon) if ask else ()
        reasons = self._doubts[tokens]
        return reasons[position] if position < len(reasons) else ""

    def _remember(self, tokens: Row) -> None:
        self._rows[tokens] = self._pass(self._reference, (tokens,))[0]
        for length in range(len(tokens) if self._whole_rows else 1, len(tokens) + 1):
            self._longest[tokens[:length]] = tokens
        _forget(self._rows)
        if len(self._longest) > 200_000:
            self._longest = {start: whole for start, whole in self._longest.items() if whole in self._rows}

    def _pass(self, reference: Reference, rows: tuple[Row, ...]) -> Tensor:
        import torch

        return self._counted(reference, torch.tensor(rows))

    def plain(self, tokens: Tensor) -> Tensor:
        """What the reference gives for these tokens now, not remembered: `[rows, n, vocab]`."""
        return self._counted(self._reference, tokens)

    def _counted(self, reference: Reference, tokens: Tensor) -> Tensor:
        import torch

        self.passes += 1
        made = PASSES.made
        with torch.inference_mode():
            logits = reference.logits(tokens)
        if PASSES.made == made:  # an implementation that is its own reference has counted them itself
            PASSES.count()
        return logits


def _forget(kept: OrderedDict[tuple[Row, ...], Tensor] | OrderedDict[Row, Tensor]) -> None:
    newest = next(reversed(kept.values()))
    looks = len(kept) % 64 == 0 or 64 * newest.nbytes > MEMORY  # a large vocabulary fills it sooner
    size = sum(tensor.nbytes for tensor in kept.values()) if looks else 0
    while size > MEMORY and len(kept) > 1:
        _, oldest = kept.popitem(last=False)
        size -= oldest.nbytes

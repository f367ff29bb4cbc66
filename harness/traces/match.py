"""Which line of one file stands for which line of the other, and the figures of the two, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

from ..comparison import compare
from ..errors import TraceError
from ..noise import squares
from ..program import Program
from .layout import Place, chosen_positions, places
from .read import Trace

BLOCK = 2**22
"""Bytes of one block in float64: what is held at a time is a small multiple of it."""


class Lines(Protocol):
    """Where logits come from: a file, or a reference that computes them."""

    def take(self, lines: list[int]) -> Tensor:
        """`[len(lines), vocab]` in float64."""
        ...


@dataclass(frozen=True)
class Pairs:
    """Lines of GOT and the lines that are due there, in the order of the program: `positions` are those of the trace."""

    got: list[int]
    due: list[int]
    positions: list[int]
    total: int
    vocab: int
    places: list[Place] | None

    def __len__(self) -> int:
        return len(self.got)

    @property
    def blocks(self) -> Iterator[slice]:
        """Parts of the pairs that are small enough to be held."""
        step = max(1, BLOCK // (8 * self.vocab))
        return (slice(first, min(first + step, len(self))) for first in range(0, len(self), step))

    def place(self, pair: int) -> Place | None:
        return self.places[self.positions[pair]] if self.places else None


def pair_up(ref: Trace, got: Trace, text: str = "", program: str = "") -> Pairs:
    """Hold the lines of two files against each other. `text` is what `--positions` says, `program` what both are about where
    that is not REF's own. Raises `TraceError` where they cannot be."""
    if ref.vocab != got.vocab:
        hint = _transposed(ref, got)
        raise TraceError(f"{_shape('REF', ref)}, {_shape('GOT', got)}: the vocabularies differ{hint}")
    program = program or ref.header.program
    if got.header.program and program and got.header.program != program:
        raise TraceError("GOT was recorded for another program than REF; record both for the same one")
    known = places(Program.parse(program)) if program else None
    total = len(known) if known else ref.count
    in_ref = _positions("REF", ref, known, ref.header.positions, total)
    named = chosen_positions(text, total, known) if text else got.header.positions
    in_got = _positions("GOT", got, known, named, total)
    line = {position: index for index, position in enumerate(in_ref)}
    ordered = sorted((position, index) for index, position in enumerate(in_got) if position in line)
    if not ordered:
        raise TraceError("REF and GOT hold no position in common, so nothing can be compared")
    found = [position for position, _ in ordered]
    return Pairs([index for _, index in ordered], [line[at] for at in found], found, total, ref.vocab, known)


def _positions(
    name: str, trace: Trace, known: Sequence[Place] | None, named: tuple[int, ...] | None, total: int
) -> Sequence[int]:
    """The position of the trace that each line of a file is about."""
    held = range(total) if named is None else named
    if any(position >= total for position in held):
        raise TraceError(f"{name} says that it holds position {max(held)}, and the program has {total} of them")
    if len(held) != trace.count:
        said = f"{len(held)} are named" if named is not None else f"the trace has {total}"
        mend = "; say which by --positions last, --positions decode, or as 16-32" if trace.count < total else ""
        raise TraceError(f"{_shape(name, trace)}, that is {trace.count} position(s), and {said}{mend}")
    if trace.rows == 1 or known is None:
        return held
    # [rows, n, vocab]: a row after the other, where a trace goes append by append.
    by_row = sorted(held, key=lambda position: known[position].row)
    for row in range(trace.rows):
        part = by_row[row * trace.shape[1] : (row + 1) * trace.shape[1]]
        if any(known[position].row != row for position in part):
            raise TraceError(f"{_shape(name, trace)}, and the program's row {row} has another number of positions")
    return by_row


def _shape(name: str, trace: Trace) -> str:
    return f"{name} is {list(trace.shape)}"


def _transposed(ref: Trace, got: Trace) -> str:
    if got.shape[-2:] == ref.shape[-2:][::-1]:
        return ". GOT is transposed: write a position's logits as one row, [n, vocab]"
    return f" ({ref.vocab} and {got.vocab}); cut padding off the vocabulary before writing"


@dataclass
class Figures:
    """Of each pair: max |Δ|, squared error, KL divergence, whether the most likely token differs, and whether all of GOT is
    finite (the others are 0 where it is not); the scale and the deviation of the logits due."""

    gaps: list[float]
    squared: list[float]
    divergences: list[float]
    flips: int
    finite: list[bool]
    scale: float
    deviation: float


def figures(due: Lines, got: Lines, pairs: Pairs, ref_path: Path) -> Figures:
    """One pass over both. Raises `TraceError` where what is due is not finite itself."""
    import torch

    found = Figures([], [], [], 0, [], 0.0, 0.0)
    sums, squared = 0.0, 0.0
    for part in pairs.blocks:
        expected, given = due.take(pairs.due[part]), got.take(pairs.got[part])
        if not expected.isfinite().all():
            bad = int((~expected.isfinite()).any(-1).nonzero()[0])
            raise TraceError(f"{ref_path} itself holds NaN or infinity at position {pairs.positions[part][bad]}")
        fine = given.isfinite().all(-1)
        found.finite += fine.tolist()
        # Lines that are not finite are told as such; in the figures they count as right.
        given = torch.where(fine[:, None], given, expected)
        comparison = compare(given[None], expected[None])
        error, divergence = squares(given, expected)
        found.gaps += comparison.differences
        found.squared += error.tolist()
        found.divergences += divergence.tolist()
        found.flips += comparison.flips
        found.scale = max(found.scale, comparison.scale)
        sums += expected.sum().item()
        squared += expected.square().sum().item()
    size = len(pairs) * pairs.vocab
    found.deviation = max(squared / size - (sums / size) ** 2, 0.0) ** 0.5
    return found

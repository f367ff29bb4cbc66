"""Make a trace: the logits that a program should give, by the reference, or those that an implementation gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

from ..conformance import Guarding
from ..errors import KvconformError, TraceError, Unsupported
from ..history import histories
from ..implementation import Implementation
from ..noise import squares
from ..oracle import Oracle, Reference
from ..program import Append, Program, print_op
from ..runner import apply_ops, error_text, malformed
from ..scope import Scope, unsupported
from ..sources import dtype_name, name_of, reference_of
from ..target import Resolved
from ..trial import HALF, longest_rows
from .layout import IMPLEMENTATION, REFERENCE, Group, Header, groups, places
from .write import TraceWriter

NOTHING = "the program appends nothing, so there is nothing to record; write for example: append a 5 9 3"


class Recomputed:
    """What a reference gives for a program, in the precision that is judged, without any file. Raises `TraceError` where
    it gives nothing."""

    def __init__(self, reference: Reference, dtype: str, program: Program) -> None:
        import torch

        self.program, self.half = program, dtype in HALF
        precision: torch.dtype = getattr(torch, dtype)
        # Half precision is judged against the same weights in float64; its noise is that of a pass in half precision.
        self.stored = "float32" if self.half else dtype
        self._groups = [(one, at) for one in groups(program) for at in range(one.count)]
        try:
            self.oracle = Oracle(reference.to(precision), torch.float64) if self.half else Oracle(reference, precision)
            self._noisy = Oracle(reference, precision) if self.half else None
            for oracle in filter(None, (self.oracle, self._noisy)):
                oracle.prepare(longest_rows(program))
        except Unsupported as reason:
            raise TraceError(f"the reference cannot be computed in {dtype}: {reason}") from None
        except KvconformError:
            raise
        except Exception as error:
            raise TraceError(f"the reference itself fails on this program: {error_text(error)}") from None

    @property
    def floor(self) -> float | None:
        """The reference against itself; None in half precision, where the noise of each line counts instead."""
        return None if self.half else max(map(self.oracle.floor, longest_rows(self.program)))

    def group(self, one: Group) -> tuple[Tensor, Tensor | None]:
        """Logits `[count, vocab]` of one append and row, and in half precision their noise `[count, 2]`: squared error
        and KL divergence of the reference's own pass in this precision."""
        import torch

        expected = self.oracle.row(one.tokens, one.count)
        if self._noisy is None:
            return expected, None
        return expected, torch.stack(squares(self._noisy.row(one.tokens, one.count), expected), dim=-1)

    def noise(self) -> Tensor:
        """The noise of every line, `[lines, 2]`; in half precision only."""
        import torch

        return torch.cat([noise for _, noise in map(self.group, groups(self.program)) if noise is not None])

    def take(self, lines: list[int]) -> Tensor:
        """Lines of the program's trace, `[len(positions), vocab]` in float64."""
        import torch

        parts: list[Tensor] = []
        place = 0
        while place < len(lines):
            one, at = self._groups[lines[place]]
            end = place + 1
            while end < len(lines) and lines[end] == lines[end - 1] + 1 and self._groups[lines[end]][0] is one:
                end += 1
            parts.append(self.oracle.row(one.tokens, one.count)[at : at + end - place].double())
            place = end
        return torch.cat(parts)


def record_reference(target: str, resolved: Resolved, program: Program, dtype: str, out: Path) -> Header:
    """Write what the target's reference gives for a program. Raises `TraceError`, `ProgramError`."""
    import torch

    _fits(program, Scope.of(resolved.implementation))
    dtype, reference = dtype or dtype_name(resolved.implementation), reference_of(resolved)
    source = Recomputed(reference, dtype, program)
    vocab = reference.vocab_size
    header = Header(str(program), target, REFERENCE, reference.name, dtype, vocab, version=version("kvconform"))
    noises: list[Tensor] = []
    scale = 0.0
    with TraceWriter(out, source.stored, vocab, header) as writer:
        for one in groups(program):
            expected, noise = source.group(one)
            if not expected.isfinite().all():
                raise TraceError(f"the reference itself gives NaN or infinity at op {one.op} ({_short(one.text)})")
            scale = max(scale, expected.abs().max().item())
            writer.write(expected)
            noises += [noise] if noise is not None else []
        header = replace(header, floor=source.floor, scale=scale)
        writer.finish(header, torch.cat(noises) if noises else None)
    return header


def record_implementation(target: str, resolved: Resolved, program: Program, dtype: str, out: Path) -> Header:
    """Write what the implementation gives for a program, last positions only where it gives no more. It is not judged:
    NaN is written as it came. Raises `TraceError` where an op raises or an answer has no lines of logits in it."""
    implementation, _ = Guarding().guarded(resolved.implementation, dtype or dtype_name(resolved.implementation))
    if reason := unsupported(program, Scope.of(implementation)):
        raise TraceError(f"{target} cannot run this program: {reason}")
    everything = tuple(range(len(places(program))))
    if not everything:
        raise TraceError(NOTHING)
    stored, vocab, name = dtype_name(implementation), implementation.vocab_size, name_of(implementation)
    about = Header(str(program), target, IMPLEMENTATION, name, stored, vocab, version=version("kvconform"))
    about = replace(about, positions=everything)
    scale, held, line = 0.0, list[int](), 0
    with TraceWriter(out, stored, vocab, about) as writer:
        for new, block in _answers(implementation, program):
            writer.write(block)
            held += range(line + new - len(block), line + new)
            line += new
            finite = block[block.isfinite()]
            scale = max(scale, finite.abs().max().item() if len(finite) else 0.0)
        positions = None if tuple(held) == everything else tuple(held)
        about = replace(about, scale=scale, positions=positions)
        writer.finish(about)
    return about


def _answers(implementation: Implementation, program: Program) -> Iterator[tuple[int, Tensor]]:
    """A block of logits for each append and row, behind the number of tokens that the row was fed; padding is cut."""
    with apply_ops(implementation) as apply:
        for index, op in enumerate(program.ops):
            try:
                logits = apply(op)
            except Exception as error:
                raise TraceError(f"op {index} ({_short(print_op(op))}) raised {error_text(error)}") from None
            if not isinstance(op, Append) or op.refused:
                continue
            if wrong := malformed(logits, op, implementation):
                raise TraceError(f"op {index} ({_short(print_op(op))}): {wrong[1]}")
            assert logits is not None
            count = logits.shape[1]
            for row, new in enumerate(map(len, op.rows)):
                taken = min(new, count)
                start = count - taken if implementation.ragged == "left" or count == 1 else 0
                yield new, logits[row, start : start + taken]


def _fits(program: Program, scope: Scope) -> None:
    """A reference can be asked anything but tokens and lengths that its model has not."""
    if not any(True for _ in groups(program)):
        raise TraceError(NOTHING)
    for op, after in zip(program.ops, histories(program)[1:], strict=True):
        if op.refused:
            continue
        if scope.max_length is not None and after.length(op.cache) > scope.max_length:
            raise TraceError(f"op {_short(print_op(op))!r} goes beyond the model's {scope.max_length} positions")
        if isinstance(op, Append) and max(token for row in op.rows for token in row) >= scope.vocab_size:
            raise TraceError(f"op {_short(print_op(op))!r} has a token beyond the vocabulary of {scope.vocab_size}")


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:59]}…"

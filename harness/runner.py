"""The one executor: a program, op by op, on an implementation, each append held against the oracle."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

from . import calls
from .comparison import Comparison, compare
from .errors import AdapterError, Unsupported
from .history import History
from .implementation import Cache, Implementation
from .oracle import Oracle
from .place import raised_at
from .program import KINDS, Append, Crop, Drop, Fork, Join, Op, Program, Reset, Restore, Row, Select
from .wellformed import no_logits, wrong_kind, wrong_shape


class Divergence(StrEnum):
    """The ways in which an implementation can break the contract."""

    LOGITS = "logits"
    NOT_FINITE = "not finite"
    SHAPE = "shape"
    DTYPE = "dtype"
    RAISED = "raised"
    ACCEPTED = "accepted"
    REFUSAL = "wrong refusal"
    LENGTH = "length"
    ALIASED = "aliased"
    MUTATED = "inputs mutated"
    UNSTABLE = "unstable"
    WORK = "work"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class Step:
    """One op as it ran. `past` is the length of its cache before it; `first` the index of the first position judged."""

    index: int
    op: Op
    past: int
    first: int = 0
    comparison: Comparison | None = None
    divergence: Divergence | None = None
    detail: str = ""
    logits: Tensor | None = None
    inputs_kept: bool = True

    @property
    def fresh(self) -> bool:
        return self.past == 0


def execute(
    program: Program, implementation: Implementation, oracle: Oracle | None, *, exact: bool = False, keep: bool = False
) -> Iterator[Step]:
    """Run a legal program and yield a step an op, ending after the first that diverged by more than its figures.

    With `exact`, an append to an empty cache is held against the reference's very same call. `keep` leaves the logits
    on the steps. Without an oracle nothing is compared.
    """
    state = _State(implementation)
    implementation.prepare(frozenset(op.kind for op in program.ops))
    try:
        for index, op in enumerate(program.ops):
            before = state.history
            past = before.length(op.cache)
            step = _refused(state, index, op, past) if op.refused else _legal(state, index, op, past, oracle, exact, keep)
            yield step
            if step.divergence is not None:
                return
    finally:
        state.close()


def walk(program: Program, implementation: Implementation) -> Iterator[tuple[Step, Cache, History]]:
    """Each op as it runs, with the cache that it is about and what all caches hold then. Nothing is compared."""
    state = _State(implementation)
    try:
        for index, op in enumerate(program.ops):
            step = _legal(state, index, op, state.history.length(op.cache), None, exact=False, keep=False)
            yield step, state.caches.get(op.cache), state.history
            if step.divergence is not None:
                return
    finally:
        state.close()


@contextmanager
def apply_ops(implementation: Implementation) -> Generator[Callable[[Op], Tensor | None]]:
    """A function that carries out ops one by one, for runs that choose their tokens as they go; caches are let go at the
    end. It gives the logits of an append, raises what the implementation raises, and a refused op changes nothing."""
    state = _State(implementation)
    implementation.prepare(frozenset(KINDS))

    def apply(op: Op) -> Tensor | None:
        if op.refused:
            _refused(state, 0, op, 0)
            return None
        logits = state.apply(op)
        state.history = state.history.after(op)
        return logits

    try:
        yield apply
    finally:
        state.close()


class _State:
    """The live caches of one run beside the history that says what they hold."""

    def __init__(self, implementation: Implementation) -> None:
        self.implementation = implementation
        self.caches: dict[str, Cache] = {}
        self.history = History()
        self.inputs: tuple[Tensor, ...] = ()

    def apply(self, op: Op) -> Tensor | None:
        """Carry out one op on the implementation; logits where it is an append."""
        implementation, caches = self.implementation, self.caches
        match op:
            case Append(cache, rows):
                fresh = cache not in caches
                held = implementation.new_cache(len(rows)) if fresh else caches[cache]
                self.inputs = _inputs(rows, implementation)
                try:
                    logits = calls.append(implementation, held, *self.inputs)
                except Exception:
                    if fresh:  # a first append that is refused leaves no cache behind
                        implementation.drop(held)
                    raise
                caches[cache] = held
                return logits
            case Fork(cache, target):
                caches[target] = implementation.fork(caches[cache])
            case Crop(cache, length):
                implementation.crop(caches[cache], length)
            case Reset(cache):
                implementation.reset(caches[cache])
            case Select(cache, rows):
                implementation.select(caches[cache], rows)
            case Join(cache, source):
                implementation.join(caches[cache], caches[source])
                implementation.drop(caches.pop(source))
            case Restore(cache):
                data = implementation.dump(caches[cache])
                implementation.drop(caches.pop(cache))
                caches[cache] = implementation.load(data)
            case Drop(cache):
                implementation.drop(caches.pop(cache))
        return None

    def inputs_kept(self, op: Append) -> bool:
        """Are the tokens still those that were handed in?"""
        return all(map(_equal, self.inputs, _inputs(op.rows, self.implementation)))

    def close(self) -> None:
        for cache in self.caches.values():
            self.implementation.drop(cache)
        self.caches.clear()


def _inputs(rows: tuple[Row, ...], implementation: Implementation) -> tuple[Tensor, ...]:
    """Tokens `[rows, n]`, and the lengths where rows are ragged; padding is token 0."""
    import torch

    lengths = [len(row) for row in rows]
    if len(set(lengths)) == 1:
        return (torch.tensor(rows, dtype=torch.int64).reshape(len(rows), -1),)
    width = max(lengths)
    left = implementation.ragged == "left"
    padded = [(0,) * (width - len(row)) * left + row + (0,) * (width - len(row)) * (not left) for row in rows]
    return torch.tensor(padded, dtype=torch.int64), torch.tensor(lengths)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.equal(other)


def _refused(state: _State, index: int, op: Op, past: int) -> Step:
    try:
        state.apply(op)
    except (AdapterError, Unsupported):
        raise
    except state.implementation.refusals:
        return Step(index, op, past)
    except Exception as error:
        return Step(index, op, past, divergence=Divergence.REFUSAL, detail=blamed(error))
    return Step(index, op, past, divergence=Divergence.ACCEPTED, detail="it must be refused, and was accepted")


def _legal(state: _State, index: int, op: Op, past: int, oracle: Oracle | None, exact: bool, keep: bool) -> Step:
    try:
        logits = state.apply(op)
    except (AdapterError, Unsupported):
        raise
    except Exception as error:
        return Step(index, op, past, divergence=Divergence.RAISED, detail=blamed(error))
    state.history = state.history.after(op)
    if not isinstance(op, Append):
        return Step(index, op, past)
    if wrong := malformed(logits, op, state.implementation):
        return Step(index, op, past, divergence=wrong[0], detail=wrong[1])
    assert logits is not None
    count = logits.shape[1]
    first = state.history.length(op.cache) - count
    kept = logits if keep else None
    if not logits.isfinite().all():
        bad = (~logits.isfinite()).any(dim=-1).any(dim=0).nonzero()[0].item()
        detail = f"logits of token {first + int(bad)} hold NaN or infinity"
        return Step(index, op, past, first + int(bad), divergence=Divergence.NOT_FINITE, detail=detail, logits=kept)
    if oracle is None:
        return Step(index, op, past, first, logits=kept, inputs_kept=state.inputs_kept(op))
    comparison = _judge(logits.cpu(), op, past, state.history.caches[op.cache], oracle, exact, state.implementation.ragged)
    return Step(index, op, past, first, comparison, logits=kept)


def _judge(
    logits: Tensor, op: Append, past: int, rows: tuple[Row, ...], oracle: Oracle, exact: bool, ragged: str
) -> Comparison:
    count = logits.shape[1]
    lengths = [len(row) for row in op.rows]
    if len(set(lengths)) == 1 and len(set(map(len, rows))) == 1:
        expected = oracle.call(rows)[:, -count:] if exact and past == 0 else oracle.expected(rows, count)
        return compare(logits, expected)
    # Padding is no position: it is cut from both sides before they are compared.
    import torch

    real, wanted = torch.zeros_like(logits), torch.zeros_like(logits)
    for index, (row, new) in enumerate(zip(rows, lengths, strict=True)):
        taken = min(new, count)
        place = slice(count - taken, count) if ragged == "left" or count == 1 else slice(0, taken)
        real[index, place], wanted[index, place] = logits[index, place], oracle.row(row, taken)
    return compare(real, wanted)


def malformed(logits: object, op: Append, implementation: Implementation) -> tuple[Divergence, str] | None:
    """What is wrong with the form of the answer, if anything is."""
    import torch

    if not isinstance(logits, torch.Tensor):
        return Divergence.SHAPE, no_logits(logits)
    rows, new, vocab = len(op.rows), max(map(len, op.rows)), implementation.vocab_size
    if tuple(logits.shape) not in ((rows, new, vocab), (rows, 1, vocab)):
        return Divergence.SHAPE, wrong_shape(tuple(logits.shape), rows, new, vocab)
    if wrong := wrong_kind(logits, implementation):
        return Divergence.DTYPE, wrong
    return None


def error_text(error: Exception) -> str:
    """An exception in one line; a backtrace that follows the first line is cut."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


def blamed(error: Exception, otherwise: str = "") -> str:
    """An exception in one line, with its place where the user's own code raised it, else with whom that leaves."""
    place = raised_at(error)
    return f"{otherwise}: {error_text(error)}" if otherwise and not place else f"{error_text(error)}{place}"

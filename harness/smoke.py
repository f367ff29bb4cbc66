"""Checks that come before the contract: is the adapter itself right, and is it the reference's model at all?

What goes wrong here is no fault of the cache, and everything behind it is inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from . import calls
from .checks import full_agrees
from .errors import AdapterError, Unsupported
from .noise import noise_is_noise
from .program import Append, Program
from .runner import Divergence, blamed, error_text, execute, walk
from .sources import Own
from .tolerance import Ratio, Rounding, allowance
from .trial import Judged, Subject, Trial, Verdict, judge, reads_no_cache

if TYPE_CHECKING:
    from torch import Tensor


def answers(program: Program, subject: Subject, judged: Judged) -> Trial:
    """Every op is carried out, and appends give logits of the right form."""
    try:
        steps = list(execute(program, subject.implementation, None))
    except (AdapterError, Unsupported):
        raise
    except Exception as error:  # letting go of a cache, which is no op of the program
        return Trial(program, Verdict.FAILED, blamed(error), Divergence.RAISED, len(program.ops) - 1, op="drop")
    last = steps[-1]
    if last.divergence in FORM and (last.divergence is not Divergence.RAISED or last.fresh or not isinstance(last.op, Append)):
        return judge(program, steps, Rounding(), subject, judged)
    return Trial(program, Verdict.PASSED, positions=program.tokens)


FORM = (Divergence.RAISED, Divergence.SHAPE, Divergence.DTYPE)
"""What is wrong with the form of an answer. What it holds, and what raises on a warm cache, other clauses judge."""


def tells_its_length(program: Program, subject: Subject, judged: Judged) -> Trial:
    """After every op `length` is how many tokens the cache holds."""
    for step, cache, history in walk(program, subject.implementation):
        if step.divergence:
            raise Unsupported(f"{step.op.kind} goes wrong before a length can be asked: {step.detail}")
        if step.op.cache not in history.caches:
            continue
        due = [len(row) for row in history.caches[step.op.cache]]
        wrong = _length(subject, cache, due)
        if wrong:
            return Trial(program, Verdict.FAILED, wrong, Divergence.LENGTH, step.index, step.past, step.op.kind)
    return Trial(program, Verdict.PASSED, positions=len(program.ops))


def _length(subject: Subject, cache: object, due: list[int]) -> str:
    try:
        got: Any = subject.implementation.length(cache)
        told = [int(one) for one in got] if hasattr(got, "__len__") else [int(got)] * len(due)
    except (AdapterError, Unsupported):
        raise
    except Exception as error:
        return f"length raises {blamed(error)}"
    if told == due:
        return ""
    said, held = (one[0] if len(set(one)) == 1 else one for one in (told, due))
    return f"length says {said}, and the cache should hold {held} tokens"


@reads_no_cache
def stands_in_place(program: Program, subject: Subject, judged: Judged) -> Trial:
    """The logits of a call without a past are not those of other positions, and are logits."""
    if isinstance(subject.oracle.reference, Own) and subject.oracle.reference.weaker:
        raise Unsupported("it is judged by itself")
    for index, (op, got, expected) in enumerate(_single_calls(program, subject)):
        rearranged = None if _near(got, expected, subject, op) else _rearranged(got, expected, subject, op)
        if rearranged:
            gap = (got - expected).abs().max().item()
            return Trial(program, Verdict.FAILED, rearranged, Divergence.LOGITS, index, 0, op.kind, gap, positions=got.shape[1])
    return Trial(program, Verdict.PASSED, positions=program.tokens)


TELLING = 3
"""Positions that tell a shift from a reversal."""


def _rearranged(got: Tensor, expected: Tensor, subject: Subject, op: Append) -> str:
    """Which other reading of the expected logits `[1, n, vocab]` the logits are, in words; nothing where none is known."""
    import torch

    same = partial(_near, subject=subject, op=op)
    if got.shape[1] >= TELLING:
        if same(got[:, :-1], expected[:, 1:]):
            return "logits are shifted: position i has those of position i + 1; give each new token the logits that follow it"
        if same(got[:, 1:], expected[:, :-1]):
            return "logits are shifted: position i has those of position i − 1; give each new token the logits that follow it"
        if same(got, expected.flip(1)):
            return "logits stand in reverse: the last new token's come first"
    if same(got, expected.log_softmax(-1)):
        return "append gives log-probabilities: return logits, as they are before the softmax"
    if same(got, expected.softmax(-1)):
        return "append gives probabilities: return logits, as they are before the softmax"
    if got.shape[1] >= TELLING and same(got, torch.zeros_like(got) + expected[:, -1:]):
        return "every position has the logits of the last one: give each its own, or the last one alone, [rows, 1, vocabulary]"
    return ""


@reads_no_cache
def same_model(program: Program, subject: Subject, judged: Judged) -> Trial:
    """A pass that reads no cache gives the reference's logits: `full`, or else a single call on a fresh cache."""
    if isinstance(subject.oracle.reference, Own):
        raise Unsupported("it is judged by itself")
    if "full" in subject.implementation.capabilities:
        return full_agrees(program, subject, judged)
    if isinstance(subject.tolerance(Judged.ALL), Ratio):
        return noise_is_noise(program, subject)
    for index, (op, got, expected) in enumerate(_single_calls(program, subject)):
        if _near(got, expected, subject, op):
            continue
        if not _causal(got, op, subject):
            raise Unsupported("its logits change with tokens that come later: prefill.identity tells")
        gaps = (got - expected).abs().amax(dim=(0, 2))
        first = next(at for at, gap in enumerate(gaps.tolist()) if not gap <= _allowed(expected, subject, op))
        where = (
            "from the first token on"
            if first == 0
            else f"tokens before {first} are right: look at what depends on the position"
        )
        detail = f"a single call, which reads no cache, is off by {gaps.max().item():.3g}; {where}"
        return replace(
            Trial(program, Verdict.FAILED, detail, Divergence.LOGITS, index, first, op.kind, gaps.max().item()),
            positions=got.shape[1],
            differences=tuple(enumerate(gaps.tolist())),
        )
    return Trial(program, Verdict.PASSED, positions=program.tokens)


def _single_calls(program: Program, subject: Subject) -> Iterator[tuple[Append, Tensor, Tensor]]:
    """The logits `[1, n, vocab]` of each append on a cache of its own, with the reference's."""
    import torch

    for op in program.ops:
        assert isinstance(op, Append)
        tokens = torch.tensor(op.rows[:1])
        most = subject.implementation.max_append
        try:
            got = calls.single(subject.implementation, tokens if most is None else tokens[:, :most]).cpu()
        except (AdapterError, Unsupported):
            raise
        except Exception as error:
            raise Unsupported(f"a single call raises {error_text(error)}: adapter.answers tells") from error
        count = got.shape[1]
        asked = op.rows[0] if most is None else op.rows[0][:most]
        yield op, got, subject.oracle.row(asked, count)[None]


def _allowed(expected: Tensor, subject: Subject, op: Append) -> float:
    """How far from the reference rounding may lead; the beginning of a bug, for nothing less is blamed on a conversion."""
    scale = expected.abs().max().item()
    found = allowance(Rounding(), scale, subject.oracle.floor(op.rows[0]), subject.oracle.epsilon)
    return max(found.allowed, SMALL * scale) if isinstance(subject.tolerance(Judged.ALL), Ratio) else 10 * found.allowed


SMALL = 0.05
"""Under a ratio, part of the scale within which logits are taken for the same."""


def _near(got: Tensor, expected: Tensor, subject: Subject, op: Append) -> bool:
    return got.shape == expected.shape and (got - expected).abs().max().item() <= _allowed(expected, subject, op)


def _causal(got: Tensor, op: Append, subject: Subject) -> bool:
    """Do the first logits of a call stay when its last token changes?"""
    import torch

    if got.shape[1] < 2:
        return True
    tokens = torch.tensor(op.rows[:1])[:, : got.shape[1]]
    tokens[:, -1] = (tokens[:, -1] + 1) % subject.implementation.vocab_size
    other = calls.single(subject.implementation, tokens).cpu()[:, :-1]
    return (other - got[:, :-1]).abs().max().item() <= _allowed(got, subject, op)

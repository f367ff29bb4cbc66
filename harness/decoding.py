"""Tokens that an implementation's own `generate` chooses, held against full passes of the reference.

Never against another run of `generate`, with and without a cache say: a fault that both share would not show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

from .errors import AdapterError, Unsupported
from .noise import noise_of
from .passes import PASSES
from .program import Append, Program, Row
from .runner import Divergence, blamed
from .tolerance import Allowance, Band, Ratio, Rounding, allowance
from .trial import Check, Judged, Subject, Trial, Verdict, measured, reads_no_cache

NEW = 10
"""Tokens that are generated behind a prompt, where its limit leaves room for them."""
BEAMS = 3
"""Beams that a search keeps: the way `beams` means so many, and a score that is the sum of the log-probabilities."""
BRANCHES = 16
"""Sets of beams that are followed where scores tie; beyond that nothing can be told."""


def chooses(way: str) -> Check:
    """A check of tokens that are chosen one by one."""

    @reads_no_cache
    def best_tokens(program: Program, subject: Subject, judged: Judged) -> Trial:
        """Each token is the reference's best behind those before it, as far as the measured noise lets that be told"""
        prompts, new = _generated(program, subject, way)
        if isinstance(new, Trial):
            return new
        trials = [_row(program, subject, prompt, chosen) for prompt, chosen in zip(prompts, new, strict=True)]
        return _worst(trials)

    return best_tokens


def searches(way: str) -> Check:
    """A check of tokens that are the best of a beam search."""

    @reads_no_cache
    def best_beams(program: Program, subject: Subject, judged: Judged) -> Trial:
        """The tokens are those that a beam search over full passes finds, or as good up to the measured noise"""
        prompts, new = _generated(program, subject, way)
        if isinstance(new, Trial):
            return new
        return _worst([_beam(program, subject, prompt, chosen) for prompt, chosen in zip(prompts, new, strict=True)])

    return best_beams


def _generated(program: Program, subject: Subject, way: str) -> tuple[tuple[Row, ...], list[Row] | Trial]:
    """The prompts, and what is generated behind each of them; or the trial of what is no such thing."""
    if len(program.ops) != 1 or not isinstance(op := program.ops[0], Append):
        raise Unsupported("what is generated is asked by a program of one append: the prompts")
    implementation = subject.implementation
    limit, longest = implementation.max_length, max(map(len, op.rows))
    count = NEW if limit is None else min(NEW, limit - longest)
    if count < 1:
        raise Unsupported(f"its limit of {limit} positions leaves no room behind a prompt of {longest}")

    def failed(kind: Divergence, detail: str) -> tuple[tuple[Row, ...], Trial]:
        return op.rows, Trial(program, Verdict.FAILED, detail, kind, 0, longest, op.kind, positions=1)

    try:
        PASSES.count(count + (longest + 3) // 4)  # at most: a prompt in chunks, and a call a token
        given = implementation.generate(op.rows, count, way)
        new = [tuple(int(token) for token in row) for row in given]
    except (AdapterError, Unsupported):
        raise
    except Exception as error:
        return failed(Divergence.RAISED, f"generate raises {blamed(error)}")
    sizes = list(map(len, new))
    if sizes != [count] * len(op.rows):
        return failed(Divergence.SHAPE, f"generate gives {sizes} tokens where {count} are wanted for {len(op.rows)} prompt(s)")
    if foreign := {token for row in new for token in row if not 0 <= token < implementation.vocab_size}:
        return failed(Divergence.SHAPE, f"generate gives {min(foreign)}, which is no token of its vocabulary")
    return op.rows, new


def _worst(trials: Sequence[Trial]) -> Trial:
    """Of the rows of a program the one that tells most against it."""
    order = (Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.PASSED)
    return min(trials, key=lambda trial: (order.index(trial.verdict), -trial.difference))


def _row(program: Program, subject: Subject, prompt: Row, chosen: Row) -> Trial:
    """By how much the reference prefers another token, at each step."""
    subject.oracle.prepare([(*prompt, *chosen[:-1])])
    margins: list[tuple[int, float]] = []
    scale, better = 0.0, list[int]()
    for step, token in enumerate(chosen):
        logits = _logits(subject, (*prompt, *chosen[:step]))
        best = int(logits.argmax())
        better.append(best)
        margins.append((len(prompt) + step, (logits[best] - logits[token]).item()))
        scale = max(scale, logits[best].abs().item())
    whole = (*prompt, *chosen)
    allowed = _allowed(subject, whole[:-1], scale, max(margin for _, margin in margins) / 2)
    largest = max(margin for _, margin in margins)
    curve, count = tuple(margins), len(margins)
    passed = Trial(
        program, Verdict.PASSED, difference=largest, allowance=allowed, positions=count, differences=curve
    )  # fmt: skip
    for (place, margin), token, best in zip(margins, chosen, better, strict=True):
        band = allowed.band(margin / 2)  # either of the two logits may be off
        if band is Band.ROUNDING:
            continue
        detail = f"token {token} is generated at position {place}, and {best} is better by {margin:.3g}"
        if reason := subject.oracle.doubt(whole, place - 1, subject.oracle.epsilon):
            return _told(passed, Verdict.INCONCLUSIVE, f"{detail}: {reason}", place)
        if band is Band.SUSPICIOUS or allowed.too_noisy:
            return _told(passed, Verdict.INCONCLUSIVE, f"{detail}, allowed {2 * allowed.allowed:.3g}", place)
        return _told(passed, Verdict.FAILED, f"{detail}, allowed {2 * allowed.allowed:.3g}", place)
    return passed


def _told(passed: Trial, verdict: Verdict, detail: str, place: int) -> Trial:
    divergence = Divergence.TOKENS if verdict is Verdict.FAILED else None
    return Trial(
        passed.program, verdict, detail, divergence, 0, place, "append", passed.difference, passed.allowance,
        positions=passed.positions, differences=passed.differences,
    )  # fmt: skip


def _logits(subject: Subject, tokens: Row) -> Tensor:
    """The reference's logits `[vocab]` of the token behind a row; none of the special ones is ever chosen."""
    import torch

    logits = subject.oracle.row(tokens, 1)[0].double()
    if not logits.isfinite().all():
        raise Unsupported("the reference's logits are not finite")
    special = [token for token in subject.implementation.special if token < len(logits)]
    return logits.index_fill(0, torch.tensor(special), -math.inf) if special else logits


def _allowed(subject: Subject, row: Row, scale: float, largest: float) -> Allowance:
    """How far a logit may be off, as the other clauses allow; the floor is measured only where it is needed."""
    oracle = subject.oracle
    if isinstance(subject.tolerance(Judged.WARM), Ratio):
        gap = noise_of(subject).logits(row).double() - oracle.row(row, len(row)).double()
        floor = gap.abs().max().item()
        return Allowance(Ratio(), Ratio().program_fails * floor, floor, scale)
    cheap = allowance(Rounding(), scale, 0.0, oracle.epsilon)
    if largest <= cheap.allowed:
        return Allowance(Rounding(), cheap.allowed, None, scale)
    return measured([row], scale, largest, oracle)


@dataclass(frozen=True)
class _Beam:
    tokens: Row
    score: float


def _beam(program: Program, subject: Subject, prompt: Row, chosen: Row) -> Trial:
    """An own search over full passes, along every set of beams that the noise leaves open."""
    allowed = _allowed(subject, (*prompt, *chosen[:-1]), _scale(subject, prompt), math.inf)
    fronts: set[frozenset[_Beam]] = {frozenset({_Beam((), 0.0)})}
    unsure = 4 * allowed.allowed  # of one log-probability against another: two logits, and two normalisers
    for step in range(1, len(chosen) + 1):
        fronts = {kept for front in fronts for kept in _kept(_grown(subject, prompt, front), step * unsure)}
        if len(fronts) > BRANCHES:
            detail = f"more than {BRANCHES} sets of beams tie within the noise after {step} tokens"
            if subject.implementation.noisy or subject.implementation.lossy is not None:
                raise Unsupported(f"its arithmetic is approximate: {detail}")
            return Trial(program, Verdict.INCONCLUSIVE, detail, allowance=allowed)
    ends = [(beam, max(one.score for one in front) - beam.score) for front in fronts for beam in front]
    bound = len(chosen) * unsure
    if any(beam.tokens == chosen and short <= bound for beam, short in ends):
        return Trial(program, Verdict.PASSED, allowance=allowed, positions=len(chosen))
    best = min(ends, key=lambda end: end[1])[0]
    place = len(prompt) + next(at for at, pair in enumerate(zip(best.tokens, chosen, strict=True)) if pair[0] != pair[1])
    searched = dict.fromkeys([chosen, *(beam.tokens for beam, _ in ends)])
    gap = abs(best.score - _score(subject, prompt, chosen))
    told = Trial(program, Verdict.PASSED, difference=gap, allowance=allowed, positions=len(chosen))
    detail = (
        f"the beam {' '.join(map(str, chosen))} is given, and a search over full passes finds "
        f"{' '.join(map(str, best.tokens))}, whose score differs by {gap:.3g}"
    )
    tied = (subject.oracle.doubt((*prompt, *row), len(prompt) + len(row) - 2, subject.oracle.epsilon) for row in searched)
    if reason := next(filter(None, tied), ""):
        return _told(told, Verdict.INCONCLUSIVE, f"{detail}: {reason}", place)
    if allowed.too_noisy:
        return _told(told, Verdict.INCONCLUSIVE, f"{detail}: the noise is too large to tell", place)
    return _told(told, Verdict.FAILED, detail, place)


def _scale(subject: Subject, tokens: Row) -> float:
    return subject.oracle.row(tokens, 1).abs().max().item()


def _log_probabilities(subject: Subject, tokens: Row) -> Tensor:
    """Normalised over all tokens, special ones too, as the library's search has it."""
    whole = subject.oracle.row(tokens, 1)[0].double().logsumexp(-1)
    return _logits(subject, tokens) - whole


def _grown(subject: Subject, prompt: Row, front: frozenset[_Beam]) -> list[_Beam]:
    """All that a step may keep: the best continuations of each beam, best first. More of one beam than are kept, since
    those that tie with the last are wanted too."""
    grown: list[_Beam] = []
    for beam in front:
        found = _log_probabilities(subject, (*prompt, *beam.tokens))
        scores, best = found.topk(min(2 * BEAMS, len(found)))
        ranked = zip(best.tolist(), scores.tolist(), strict=True)
        grown += [_Beam((*beam.tokens, token), beam.score + score) for token, score in ranked]
    return sorted(grown, key=lambda beam: beam.score, reverse=True)


def _kept(grown: Sequence[_Beam], unsure: float) -> list[frozenset[_Beam]]:
    """Each set of beams that a step may keep: those that are surely among the best, and any of those that tie there."""
    if len(grown) <= BEAMS:
        return [frozenset(grown)]
    last, first_out = grown[BEAMS - 1].score, grown[BEAMS].score
    sure = [beam for beam in grown[:BEAMS] if beam.score > first_out + unsure]
    open_ones = [beam for beam in grown[len(sure) :] if beam.score >= last - unsure]
    sets = combinations(open_ones, BEAMS - len(sure))
    return [frozenset((*sure, *rest)) for rest, _ in zip(sets, range(BRANCHES + 1), strict=False)]


def _score(subject: Subject, prompt: Row, chosen: Row) -> float:
    return sum(_log_probabilities(subject, (*prompt, *chosen[:step]))[token].item() for step, token in enumerate(chosen))

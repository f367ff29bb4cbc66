"""Noisy arithmetic and lossy stores: an error is judged by its ratio to the noise at the same positions.

Under a maximum, a position off by one hides in quantised noise: both move logits by as much. Pooled over many positions
the root mean squares differ. The noise is never read from a run that reads a cache, for a bug that both share would
certify itself: it is the implementation's own single call on a fresh cache against the reference, or, for a store that
keeps fewer bits, the reference with keys and values rounded to as many.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from . import calls
from .comparison import in_slices
from .history import histories
from .implementation import Implementation
from .pool import Pool
from .program import Append, Program, Row
from .runner import Divergence, Step, execute
from .tolerance import Ratio
from .trial import Judged, Subject, Trial, Verdict, longest_rows

if TYPE_CHECKING:
    from torch import Tensor


class Noise:
    """The noise of an implementation on a row, position by position, remembered by tokens."""

    def __init__(self, subject: Subject) -> None:
        self.implementation, self.oracle = subject.implementation, subject.oracle
        self._ends: dict[Row, tuple[Tensor, Tensor]] = {}
        self._longer: dict[Row, Row] = {}

    def of(self, tokens: Row, count: int) -> tuple[Tensor, Tensor]:
        """Squared error and KL divergence of the noise at the last `count` positions of a row."""
        import torch

        parts: list[tuple[Tensor, Tensor]] = []
        while count > 0:
            error, divergence = (part[-count:] for part in self._end(tokens))
            parts.insert(0, (error, divergence))
            tokens, count = tokens[: -len(error)], count - len(error)
        return torch.cat([error for error, _ in parts]), torch.cat([divergence for _, divergence in parts])

    def _end(self, tokens: Row) -> tuple[Tensor, Tensor]:
        """The same at as many positions, up to the end of a row, as one call gives."""
        whole = self._longer.get(tokens, tokens)
        if whole not in self._ends:
            if len(self._ends) > MOST_ROWS:
                self._ends.clear()
                self._longer.clear()
            whole, got = tokens, self._call(tokens)
            self._ends[tokens] = squares(got, self.oracle.row(tokens, len(got)))
            if self.oracle.narrow:  # one pass over a large model serves all that a row begins with
                self._longer |= {tokens[:length]: tokens for length in range(1, len(tokens) + 1)}
        error, divergence = self._ends[whole]
        past = len(whole) - len(tokens)
        return error[: len(error) - past], divergence[: len(error) - past]

    def _call(self, tokens: Row) -> Tensor:
        """Logits `[1 or n, vocab]` of one call. Who gives the last position only is not asked for those that nobody judges."""
        import torch

        if self.implementation.lossy is not None or self.oracle.narrow:
            return self.logits(tokens)
        return calls.single(self.implementation, torch.tensor([tokens]))[0].cpu()

    def logits(self, tokens: Row) -> Tensor:
        """Logits `[n, vocab]` that carry the noise and have read no cache."""
        if self.implementation.lossy is not None:
            return self.oracle.rounded(tokens, self.implementation.lossy)
        if self.oracle.narrow:
            return self.oracle.nudged(tokens)
        return single_call(self.implementation, tokens)


MOST_ROWS = 2000
"""Rows whose noise is remembered."""
_NOISES: WeakKeyDictionary[Subject, Noise] = WeakKeyDictionary()


def noise_of(subject: Subject) -> Noise:
    """The noise of a subject, measured once for each row."""
    return _NOISES.setdefault(subject, Noise(subject))


def single_call(implementation: Implementation, tokens: Row) -> Tensor:
    """All positions `[n, vocab]` of one call on a fresh cache; one that gives the last position only is called once a
    prefix. Raises `Unsupported` where it takes fewer tokens in a call."""
    import torch

    return calls.every_position(partial(calls.single, implementation), torch.tensor([tokens]))[0].cpu()


def squares(got: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    """Squared error summed over the vocabulary, and KL divergence from the expected, at each position `[n]`."""
    import torch

    parts = [_squares(*pair) for pair in in_slices(got, expected)]
    return torch.cat([error for error, _ in parts]), torch.cat([divergence for _, divergence in parts])


def _squares(got: Tensor, expected: Tensor) -> tuple[Tensor, Tensor]:
    got, expected = got.double(), expected.double()
    log_due, log_got = expected.log_softmax(-1), got.log_softmax(-1)
    divergence = (log_due.exp() * (log_due - log_got)).sum(-1).clamp(min=0)
    return (got - expected).square().sum(-1), divergence


def ratio_match(program: Program, subject: Subject, judged: Judged, tolerance: Ratio) -> Trial:
    """Run a program and pool its judged positions. One program alone fails only where the ratio leaves no doubt."""
    subject.oracle.prepare(longest_rows(program))
    if judged is Judged.FRESH and subject.implementation.lossy is None:
        wrong = noise_is_noise(program, subject)
        if wrong.verdict is not Verdict.PASSED:
            return wrong
    steps = list(execute(program, subject.implementation, subject.oracle, keep=True))
    chosen = [step for step in steps if step.comparison and judged.includes(step)]
    if judged is not Judged.FRESH:
        chosen = _after_what_it_is_about(program, chosen)
    if subject.oracle.narrow:
        for row in longest_rows(program):
            noise_of(subject).of(row, len(row))
    pool, worst = Pool(), (0.0, steps[-1], 0)
    for step in chosen:
        for place, part in enumerate(_positions(step, program, subject)):
            pool += part
            worst = max(worst, (part.ratio, step, step.first + place), key=lambda entry: entry[0])
    broken = steps[-1] if steps and steps[-1].divergence else None
    curve = tuple(
        (step.first + at, gap) for step in chosen if step.comparison for at, gap in enumerate(step.comparison.differences)
    )
    trial = Trial(
        program,
        Verdict.PASSED,
        difference=max((gap for _, gap in curve), default=0.0),
        flips=sum(step.comparison.flips for step in chosen if step.comparison),
        positions=pool.positions,
        differences=curve,
        pool=pool,
    )
    return _verdict(trial, broken, worst, tolerance)


def _verdict(trial: Trial, broken: Step | None, worst: tuple[float, Step, int], tolerance: Ratio) -> Trial:
    if broken is not None:
        return replace(
            trial,
            verdict=Verdict.FAILED,
            detail=broken.detail,
            divergence=broken.divergence,
            step=broken.index,
            token=max(broken.first, broken.past),
            op=broken.op.kind,
        )
    assert trial.pool is not None
    if not trial.pool.positions:
        if any(isinstance(op, Append) and not op.refused for op in trial.program.ops):
            return replace(trial, verdict=Verdict.INCONCLUSIVE, detail="nothing was compared")
        return trial
    ratio, allowed = trial.pool.ratio, tolerance.alone(trial.pool.positions)
    if ratio > allowed:
        _, step, token = worst
        detail = f"error {ratio:.3g} × the noise over {trial.pool.positions} positions, allowed {allowed:.3g} ×"
        return replace(
            trial,
            verdict=Verdict.FAILED,
            detail=detail,
            divergence=Divergence.LOGITS,
            step=step.index,
            token=token,
            op=step.op.kind,
        )
    return trial


def _after_what_it_is_about(program: Program, steps: list[Step]) -> list[Step]:
    """Only steps that read a cache, and only those behind the first op that is no append, lest honest ones dilute."""
    first = next((index for index, op in enumerate(program.ops) if not isinstance(op, Append)), len(program.ops))
    return [step for step in steps if step.index > first] or [step for step in steps if not step.fresh] or steps


def _positions(step: Step, program: Program, subject: Subject) -> list[Pool]:
    """A pool for each new position of a step, over its rows."""
    assert isinstance(step.op, Append)
    assert step.logits is not None
    rows = histories(program)[step.index + 1].caches[step.op.cache]
    logits = step.logits.cpu()
    count, pools = logits.shape[1], [Pool()] * logits.shape[1]
    for index, (row, new) in enumerate(zip(rows, step.op.rows, strict=True)):
        taken = min(len(new), count)
        start = count - taken if subject.implementation.ragged == "left" or count == 1 else 0
        expected = subject.oracle.row(row, taken)
        error, divergence = squares(logits[index, start : start + taken], expected)
        noise, noise_divergence = noise_of(subject).of(row, taken)
        spread = expected.double().var(-1, correction=0) * expected.shape[-1]
        sums = (part.tolist() for part in (error, noise, divergence, noise_divergence, spread))
        for at, parts in enumerate(zip(*sums, strict=True), start):
            pools[at] += Pool.at(*parts, logits=expected.shape[-1])
    return pools


QUIET = 0.2
"""Part of the logits' standard deviation above which the error of a call that reads no cache is no noise."""


def noise_is_noise(program: Program, subject: Subject) -> Trial:
    """A call that reads no cache is near the reference, and its first logits do not change with what follows."""
    positions = 0
    for index, (op, before) in enumerate(zip(program.ops, histories(program), strict=False)):
        if not isinstance(op, Append) or op.refused or before.length(op.cache):
            continue
        for row in op.rows:
            if wrong := _no_noise(row, subject):
                detail, size = wrong
                return Trial(program, Verdict.FAILED, detail, Divergence.LOGITS, index, 0, op.kind, size, positions=len(row))
            positions += len(row)
    return Trial(program, Verdict.PASSED, positions=positions)


def _no_noise(row: Row, subject: Subject) -> tuple[str, float] | None:
    """Why the error of a single call on a row is more than noise, with its size, or None."""
    expected, got = subject.oracle.row(row, len(row)), single_call(subject.implementation, row)
    error, spread = _rms(got, expected), expected.std().item()
    if not error <= QUIET * spread:
        return f"a call without a past is off by {error:.3g} (RMS), at a deviation of the logits of {spread:.3g}", error
    half = len(row) // 2
    if not half:
        return None
    other = tuple(token % (subject.implementation.vocab_size - 1) + 1 for token in row[half:])
    changed = single_call(subject.implementation, (*row[:half], *other))[:half]
    moved = _rms(changed, got[:half])
    noise = _rms(subject.oracle.nudged(row), expected) if subject.oracle.narrow else error
    if not moved <= 2 * noise:
        return f"the first logits of a call move by {moved:.3g} (RMS) with what follows, its noise is {noise:.3g}", moved
    return None


def _rms(got: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference of logits `[n, vocab]`."""
    return (squares(got, expected)[0].sum().item() / got.numel()) ** 0.5

"""Checks other than that of logits against the reference: what an implementation must repeat, and leave alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from statistics import median
from typing import TYPE_CHECKING

from . import calls
from .comparison import compare
from .errors import AdapterError, Unsupported
from .history import histories
from .match import logits_match
from .noise import noise_is_noise
from .program import Append, Fork, Op, Program, Reset, Row, print_op
from .runner import Divergence, Step, blamed, execute
from .tolerance import SCALE_ULPS, TOO_NOISY, Ratio, Rounding, allowance
from .trial import Judged, Subject, Trial, Verdict, judge, reads_no_cache

if TYPE_CHECKING:
    from torch import Tensor


def _failed(program: Program, step: Step, kind: Divergence, detail: str, difference: float = 0.0) -> Trial:
    return Trial(program, Verdict.FAILED, detail, kind, step.index, step.first, step.op.kind, difference, positions=1)


def _run(program: Program, subject: Subject, keep: bool = False) -> Iterator[Step]:
    return execute(program, subject.implementation, None, keep=keep)


def repeats(program: Program, subject: Subject, judged: Judged) -> Trial:
    """The same program on the same implementation gives the same logits: bit for bit, or within rounding elsewhere."""
    first, second = list(_run(program, subject, keep=True)), list(_run(program, subject, keep=True))
    positions = 0
    for one, other in zip(first, second, strict=False):
        if one.divergence:
            return judge(program, first, Rounding(), subject, judged)
        if other.divergence:
            detail = f"the same program went another way the second time: {other.detail}"
            return _failed(program, other, Divergence.UNSTABLE, detail)
        if one.logits is None or other.logits is None:
            continue
        positions += one.logits[..., 0].numel()
        if not one.logits.equal(other.logits):
            gap = (one.logits - other.logits).abs().max().item()
            scale = one.logits.abs().max().item()
            floor = 0.0 if subject.implementation.exact_prefill else max(map(subject.oracle.floor, _rows(program)))
            allowed = allowance(Rounding(), scale, floor, subject.oracle.epsilon).allowed
            if subject.implementation.exact_prefill or not gap <= allowed:
                detail = f"the same program gave other logits the second time: max |Δlogit| {gap:.3g}"
                return _failed(program, one, Divergence.UNSTABLE, detail, gap)
    return Trial(program, Verdict.PASSED, positions=positions)


def replays(program: Program, subject: Subject, judged: Judged) -> Trial:
    """After a fork, a reset or a restore a cache gives what a fresh one gives that repeats its calls, up to the noise
    from run to run: on any engine, whatever its arithmetic."""
    steps = list(_run(program, subject, keep=True))
    if steps[-1].divergence:
        return judge(program, steps, Rounding(), subject, judged)
    positions = 0
    for last, repeated in _lineages(program):
        first, second = (list(_run(Program(repeated), subject, keep=True))[-1].logits for _ in range(2))
        got = steps[last].logits
        if got is None or first is None or second is None:
            continue
        positions += got[..., 0].numel()
        gap, noise = ((one - first).abs().max().item() for one in (got, second))
        ulps = SCALE_ULPS * _epsilon(got) * first.abs().max().item()
        if not gap <= max(ulps, 2 * noise):
            detail = f"a fresh cache that repeats the same calls gives other logits: max |Δlogit| {gap:.3g}"
            return _failed(program, steps[last], Divergence.LOGITS, detail, gap)
    if not positions:
        return Trial(program, Verdict.UNSUPPORTED, "no cache was forked, reset or restored")
    return Trial(program, Verdict.PASSED, positions=positions)


def _epsilon(logits: Tensor) -> float:
    import torch

    return torch.finfo(logits.dtype).eps


def _lineages(program: Program) -> list[tuple[int, tuple[Op, ...]]]:
    """For each cache with a fork, reset or restore in its past: its last append, and the appends that a fresh cache
    would have to repeat."""
    calls: dict[str, tuple[Op, ...]] = {}
    touched: set[str] = set()
    ends: dict[str, int] = {}
    for index, op in enumerate(program.ops):
        if isinstance(op, Append):
            calls[op.cache] = (*calls.get(op.cache, ()), replace(op, cache="a"))
            ends[op.cache] = index
            continue
        touched |= {op.cache, op.target} if isinstance(op, Fork) else {op.cache}
        if isinstance(op, Fork):
            calls[op.target] = calls.get(op.cache, ())
        elif isinstance(op, Reset):
            calls[op.cache] = ()
        ends.pop(op.cache, None)
    return [(ends[name], calls[name]) for name in sorted(touched) if name in ends]


def keeps_logits(program: Program, subject: Subject, judged: Judged) -> Trial:
    """Logits that were returned are not changed by later calls."""
    steps: list[Step] = []
    kept: list[tuple[Step, Tensor]] = []
    for step in _run(program, subject, keep=True):
        steps.append(step)
        if step.logits is not None:
            kept.append((step, step.logits.clone()))
    if steps[-1].divergence:
        return judge(program, steps, Rounding(), subject, judged)
    for step, copy in kept:
        assert step.logits is not None
        if not step.logits.equal(copy):
            detail = f"the logits of {print_op(step.op)!r} changed after they were returned: they share the cache's memory"
            return _failed(program, step, Divergence.ALIASED, detail, (step.logits - copy).abs().max().item())
    return Trial(program, Verdict.PASSED, positions=sum(copy[..., 0].numel() for _, copy in kept))


def keeps_inputs(program: Program, subject: Subject, judged: Judged) -> Trial:
    """Tokens that were handed in are not changed."""
    steps = list(_run(program, subject))
    for step in steps:
        if not step.inputs_kept:
            return _failed(program, step, Divergence.MUTATED, "append changed the tokens that it was given")
    if steps[-1].divergence:
        return judge(program, steps, Rounding(), subject, judged)
    return Trial(program, Verdict.PASSED, positions=len(steps))


@reads_no_cache
def full_agrees(program: Program, subject: Subject, judged: Judged) -> Trial:
    """The implementation's own pass without a cache gives the reference's logits."""
    if isinstance(subject.tolerance(Judged.ALL), Ratio):
        return noise_is_noise(program, subject)
    steps: list[Step] = []
    for index, op in enumerate(program.ops):
        assert isinstance(op, Append)
        steps.append(_full_step(subject, index, op))
        if steps[-1].divergence:
            break
    return judge(program, steps, Rounding(), subject, Judged.ALL)


def _full_step(subject: Subject, index: int, op: Append) -> Step:
    """The full pass over an append's tokens, held against the reference."""
    try:
        got = _full(subject, op.rows)
    except (AdapterError, Unsupported):
        raise
    except Exception as error:
        detail = f"its full pass raises {blamed(error)}"
        return Step(index, op, 0, divergence=Divergence.RAISED, detail=detail)
    expected = subject.oracle.expected(op.rows, len(op.rows[0]))
    if got.shape != expected.shape:
        detail = f"its full pass gives logits of shape {list(got.shape)}, not {list(expected.shape)}"
        return Step(index, op, 0, divergence=Divergence.SHAPE, detail=detail)
    if not got.isfinite().all():
        return Step(index, op, 0, divergence=Divergence.NOT_FINITE, detail="its full pass gives NaN or infinity")
    return Step(index, op, 0, 0, compare(got, expected))


def _full(subject: Subject, rows: tuple[Row, ...]) -> Tensor:
    """`full` over all positions; one that gives the last position only is called once a prefix."""
    import torch

    tokens = torch.tensor(rows)
    return calls.every_position(partial(calls.full, subject.implementation), tokens).cpu()


@reads_no_cache
def reference_repeats(program: Program, subject: Subject, judged: Judged) -> Trial:
    """The reference gives the same bits for the same tokens."""
    import torch

    for index, tokens in enumerate(_token_tensors(program)):
        with torch.inference_mode():
            one, other = subject.oracle.plain(tokens), subject.oracle.plain(tokens)
        if not one.equal(other):
            step = Step(index, program.ops[index], 0)
            return _failed(program, step, Divergence.UNSTABLE, "the reference gave other logits for the same tokens")
    return Trial(program, Verdict.PASSED, positions=program.tokens)


@reads_no_cache
def reference_is_causal(program: Program, subject: Subject, judged: Judged) -> Trial:
    """The reference's logits do not change with the tokens that follow."""
    import torch

    for index, tokens in enumerate(_token_tensors(program)):
        half = tokens.shape[1] // 2
        other = tokens.clone()
        other[:, half:] = _others(other[:, half:], subject)
        with torch.inference_mode():
            one, changed = subject.oracle.plain(tokens), subject.oracle.plain(other)
        gap = (one[:, :half] - changed[:, :half]).abs().max().item()
        allowed = allowance(Rounding(), one.abs().max().item(), 0.0, subject.oracle.epsilon).allowed
        if not gap <= allowed:
            step = Step(index, program.ops[index], 0)
            detail = f"the reference's logits change by {gap:.3g} with tokens that come later"
            return _failed(program, step, Divergence.LOGITS, detail, gap)
    return Trial(program, Verdict.PASSED, positions=program.tokens)


SENSITIVE = 1e-3
"""Part of the logits' scale by which a changed first token must move the last logits."""


@reads_no_cache
def reference_is_sensitive(program: Program, subject: Subject, judged: Judged) -> Trial:
    """The reference's logits depend on the past; a model whose logits do not proves nothing about a cache."""
    import torch

    for index, tokens in enumerate(_token_tensors(program)):
        other = tokens.clone()
        other[:, :-1] = _others(other[:, :-1], subject)
        with torch.inference_mode():
            one, changed = subject.oracle.plain(tokens)[:, -1], subject.oracle.plain(other)[:, -1]
        gap, scale = (one - changed).abs().max().item(), one.abs().max().item()
        if not gap > SENSITIVE * scale:
            detail = f"other past tokens move the reference's logits by {gap:.3g} only, at a scale of {scale:.3g}"
            return Trial(program, Verdict.INCONCLUSIVE, detail, step=index)
    return Trial(program, Verdict.PASSED, positions=program.tokens)


def _others(tokens: Tensor, subject: Subject) -> Tensor:
    """Another token for each, and no special one."""
    import torch

    usable = torch.tensor(
        [token for token in range(subject.implementation.vocab_size) if token not in subject.implementation.special]
    )
    return usable[(torch.searchsorted(usable, tokens) + 1) % len(usable)]


SINGLE = 1e-6
"""In a precision with a smaller epsilon than this, rounding moves no logit by a hundredth of the scale."""


@reads_no_cache
def reference_is_quiet(program: Program, subject: Subject, judged: Judged) -> Trial:
    """The reference's noise, measured as everywhere, leaves room for telling a bug."""
    if isinstance(subject.tolerance(Judged.ALL), Ratio):
        raise Unsupported("it is judged by the ratio to its own noise")
    oracle, trials = subject.oracle, list[Trial]()
    for index, op in enumerate(program.ops):
        assert isinstance(op, Append)
        row = op.rows[0]
        scale, floor = oracle.row(row, len(row)).abs().max().item(), oracle.floor(row)
        allowed = allowance(Rounding(), scale, floor, oracle.epsilon)
        detail = f"floor {floor:.2g} at a scale of {scale:.3g}"
        if allowed.too_noisy:
            told = f"the reference is too noisy to judge by: {detail}"
            if oracle.epsilon < SINGLE and oracle.precision_gap(row) > TOO_NOISY * scale:
                told += "; its logits in float64 are others: does to(dtype) keep its weights?"
            return _failed(program, Step(index, op, 0), Divergence.UNSTABLE, told, floor)
        trials.append(Trial(program, Verdict.PASSED, detail, difference=floor, allowance=allowed, positions=len(row)))
    return max(trials, key=lambda trial: trial.difference)


def _token_tensors(program: Program) -> Iterator[Tensor]:
    import torch

    return (torch.tensor(op.rows) for op in program.ops if isinstance(op, Append))


def _rows(program: Program) -> set[Row]:
    return {row for history in histories(program) for rows in history.caches.values() for row in rows if row}


QUARTER = 4
"""The first and the last quarter of a run are compared."""
GROWTH = 12.0
"""An error whose median grows by more than this from the first quarter to the last drifts, unless it stays noise."""


def does_not_drift(program: Program, subject: Subject, judged: Judged) -> Trial:
    """Logits are the reference's to the end of a long run, and the error does not grow with the steps."""
    trial = logits_match(program, subject, judged)
    gaps = [gap for _, gap in trial.differences]
    if trial.verdict is not Verdict.PASSED or len(gaps) < 2 * QUARTER or trial.allowance is None:
        return trial
    early, late = median(gaps[: len(gaps) // QUARTER]), median(gaps[-(len(gaps) // QUARTER) :])
    noise = SCALE_ULPS / 8 * subject.oracle.epsilon * trial.allowance.scale
    if late <= max(GROWTH * early, noise):
        return trial
    last = program.ops[-1]
    step = Step(len(program.ops) - 1, last, 0, trial.differences[-1][0])
    detail = f"the error grows: median {early:.3g} in the first quarter, {late:.3g} in the last"
    return _failed(program, step, Divergence.LOGITS, detail, max(gaps))


@cache
def ready_to_count() -> None:
    """Use torch's counter once: its first use imports for seconds."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.inference_mode(), FlopCounterMode(display=False):
        (torch.ones(1, 2, 3) @ torch.ones(3, 4)).softmax(dim=-1)


def reuses_work(program: Program, subject: Subject, judged: Judged) -> Trial:
    """A one-token append on a long cache multiplies no more than twice what it does on a short one."""
    from torch.utils.flop_counter import FlopCounterMode

    appends = [index for index, op in enumerate(program.ops) if isinstance(op, Append) and len(op.rows[0]) == 1]
    counted = {appends[0], appends[-1]} if appends else set[int]()
    single: list[tuple[Step, int]] = []
    steps = _run(program, subject)
    for index in range(len(program.ops)):
        counter = FlopCounterMode(display=False) if index in counted else None
        with counter or nullcontext():
            step = next(steps)
        if step.divergence:
            return _failed(program, step, step.divergence, step.detail)
        if counter:
            counts = counter.get_flop_counts().get("Global", {})
            # Batched products are attention's, which must grow with the length.
            single.append((step, sum(count for name, count in counts.items() if str(name) in PROJECTIONS)))
    if len(single) < 2 or not single[0][1]:
        return Trial(program, Verdict.UNSUPPORTED, "no matrix products can be counted")
    (_, least), (last, most) = single[0], single[-1]
    if most > 2 * least:
        detail = f"a token costs {most:,} multiplications at length {last.past}, {least:,} at length {single[0][0].past}"
        return _failed(program, last, Divergence.WORK, detail, most / least)
    return Trial(program, Verdict.PASSED, positions=len(single))


PROJECTIONS = ("aten.mm", "aten.addmm")
"""Matrix products with weights, as torch counts them."""

"""Judge a trace from any engine: which tolerance applies, what the two files show, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

from ..errors import TraceError
from ..noise import QUIET
from ..oracle import Reference
from ..pool import Pool
from ..program import Program
from ..tolerance import Absolute, Allowance, Band, Ratio, Rounding, Unmeasured, allowance
from ..trial import HALF, Verdict
from .clues import clues, where
from .layout import REFERENCE, Header, Place, places
from .match import Figures, Lines, Pairs, figures, pair_up
from .read import Trace
from .record import Recomputed

STRETCH = 16
"""Positions in a row that are judged by themselves too under a ratio, lest many honest ones hide a few that are not."""


@dataclass(frozen=True)
class Judgement:
    """What `kvconform compare` found. `due_by` names what gave the logits due, where REF says so; `first` is the first bad
    position of the trace, `place` the token it is about.

    The sizes are of positions where GOT is finite. `smallest` is the least `--tolerance` that would have passed, None where
    none would.
    """

    verdict: Verdict
    detail: str
    due_by: str
    judged_by: str
    dtype: str
    compared: int
    total: int
    largest: float
    largest_at: int
    rms: float
    scale: float
    kl_max: float
    kl_mean: float
    agree: int
    not_finite: int
    allowed: float | None
    floor: float | None
    ratio: float | None
    smallest: float | None
    first: int | None = None
    place: Place | None = None
    where: str = ""
    clues: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Basis:
    """What is judged by: a tolerance, the floor or the noise that goes with it, and a sentence on where it is from."""

    tolerance: Absolute | Rounding | Ratio | Unmeasured
    sentence: str
    floor: float | None = None
    noise: Tensor | None = None


def judge_traces(
    ref: Trace, got: Trace, *, positions: str = "", tolerance: float | None = None, reference: Reference | None = None
) -> Judgement:
    """Judge GOT by REF; with a reference, by what it computes for REF's program (or for GOT's, where that goes on from
    REF's), once REF has been found to agree with it. Raises `TraceError` where the two cannot be compared."""
    dtype = _judged_dtype(ref, got)
    due: Lines = ref
    if reference is None:
        pairs = pair_up(ref, got, positions)
        basis = _basis(ref, dtype, pairs, tolerance)
    else:
        source, pairs = _recomputed(reference, ref, got, dtype, positions)
        due = source
        basis = _measured(source, dtype, pairs, tolerance)
    found = figures(due, got, pairs, ref.path)
    due_by = reference.name if reference else ref.header.source
    return _judged(found, pairs, basis, dtype, due, got, due_by)


def _judged_dtype(ref: Trace, got: Trace) -> str:
    """The coarser of what REF was recorded for and what GOT is stored in: an engine may widen its logits to store them."""
    import torch

    names = (ref.header.dtype or ref.dtype, got.header.dtype or got.dtype, got.dtype)
    return max(names, key=lambda name: torch.finfo(getattr(torch, name)).eps)


def _unmeasured(dtype: str) -> Unmeasured:
    return Unmeasured(dtype in HALF)


def _basis(ref: Trace, dtype: str, pairs: Pairs, tolerance: float | None) -> _Basis:
    """Judged by files alone."""
    if tolerance is not None:
        return _Basis(Absolute(tolerance), "--tolerance")
    recorded = ref.header.dtype or ref.dtype
    mend = "give --reference or --tolerance, or a REF made by kvconform record" + (f" --dtype {dtype}" if dtype else "")
    if ref.header.logits_of == REFERENCE and recorded == dtype:
        if dtype in HALF and ref.noise is not None:
            sentence = f"the noise of the reference's own {dtype} pass, measured when REF was recorded"
            return _Basis(Ratio(), sentence, noise=ref.noise[pairs.due])
        if dtype not in HALF and ref.header.floor is not None:
            return _Basis(Rounding(), "the floor measured when REF was recorded", floor=ref.header.floor)
    if ref.header.logits_of == REFERENCE and recorded != dtype:
        return _Basis(_unmeasured(dtype), f"no floor: REF's was measured in {recorded}, and GOT is {dtype}; {mend}")
    return _Basis(_unmeasured(dtype), f"no floor: REF's header has none; {mend}")


def _measured(source: Recomputed, dtype: str, pairs: Pairs, tolerance: float | None) -> _Basis:
    """Judged by a reference at hand."""

    if tolerance is not None:
        return _Basis(Absolute(tolerance), "--tolerance")
    if not source.half:
        return _Basis(Rounding(), "the floor measured on the reference now", floor=source.floor)
    noise = source.noise()[pairs.positions]
    return _Basis(Ratio(), f"the noise of the reference's own {dtype} pass, measured now", noise=noise)


def _recomputed(reference: Reference, ref: Trace, got: Trace, dtype: str, positions: str) -> tuple[Recomputed, Pairs]:
    """The reference on the program, once REF agrees with it in the precision that REF was recorded for."""
    text = ref.header.program
    if not text:
        raise TraceError(f"{ref.path} does not say which program it is of, so --reference cannot compute it; leave it out")
    if reference.vocab_size != ref.vocab:
        raise TraceError(f"the reference has a vocabulary of {reference.vocab_size}, and REF of {ref.vocab}")
    recorded = ref.header.dtype or ref.dtype
    own = Recomputed(reference, recorded, Program.parse(text))
    _agrees(own, ref, recorded)
    longer = got.header.program
    goes_on = bool(longer) and Program.parse(longer).ops[: len(Program.parse(text).ops)] == Program.parse(text).ops
    if goes_on or dtype != recorded:
        text = longer if goes_on else text
        own = Recomputed(reference, dtype, Program.parse(text))
    everything = Trace(ref.path, own, (len(places(Program.parse(text))), ref.vocab), ref.dtype, Header(program=text), None)
    pairs = pair_up(everything, got, positions)
    return own, pairs


def _agrees(own: Recomputed, ref: Trace, dtype: str) -> None:
    """Raises `TraceError` where REF is not what the reference gives."""
    pairs = pair_up(ref, ref, program=ref.header.program)
    found = figures(ref, own, Pairs(pairs.positions, pairs.due, pairs.positions, pairs.total, pairs.vocab, None), ref.path)
    largest = max(found.gaps)
    allowed = allowance(Rounding(), found.scale, own.floor or 0.0, own.oracle.epsilon if own.half else _epsilon(dtype))
    # What is stored in float32 is rounded once more.
    bound = max(allowed.allowed, _epsilon(ref.dtype) * found.scale)
    if not largest <= bound:
        at = pairs.positions[max(range(len(pairs)), key=lambda pair: found.gaps[pair])]
        raise TraceError(
            f"REF is not what --reference gives: max |Δlogit| {largest:.3g} at position {at}, allowed {bound:.3g}; "
            f"it was recorded for another model, or not by a reference"
        )


def _epsilon(dtype: str) -> float:
    import torch

    return torch.finfo(getattr(torch, dtype)).eps


def _judged(found: Figures, pairs: Pairs, basis: _Basis, dtype: str, due: Lines, got: Lines, due_by: str) -> Judgement:
    allowed = None
    ratio = None
    if isinstance(basis.tolerance, Ratio):
        assert basis.noise is not None
        pools = [
            Pool.at(error, noise, divergence, apart) if finite else Pool()
            for error, divergence, finite, (noise, apart) in zip(
                found.squared, found.divergences, found.finite, basis.noise.tolist(), strict=True
            )
        ]
        ratio = reduce(add, pools, Pool()).ratio if any(found.finite) else math.inf
        verdict, detail, first = _by_ratio(pools, basis.tolerance)
        bad = {pair for pair, pool in enumerate(pools) if pool.positions and pool.ratio > basis.tolerance.fails}
    else:
        allowed = allowance(basis.tolerance, found.scale, basis.floor, _epsilon(dtype))
        verdict, detail, first = _by_size(found, pairs, allowed)
        bad = {pair for pair, gap in enumerate(found.gaps) if allowed.band(gap) is not Band.ROUNDING}
    if False in found.finite:
        broken = [pair for pair, finite in enumerate(found.finite) if not finite]
        first = broken[0] if first is None or verdict is not Verdict.FAILED else min(broken[0], first)
        verdict, bad = Verdict.FAILED, bad.union(broken)
        detail = f"{len(broken)} position(s) hold NaN or infinity, the first is {pairs.positions[broken[0]]}"
    largest = max(found.gaps)
    finite = max(1, found.finite.count(True))
    told = ()
    if verdict is not Verdict.PASSED:
        close = max(allowed.allowed if allowed and basis.floor is not None else 0.0, 32 * _epsilon(dtype) * found.scale)
        told = tuple(clues(due, got, pairs, found, bad, min(close, largest / 10)))
    return Judgement(
        verdict=verdict,
        detail=detail,
        due_by=due_by,
        judged_by=basis.sentence,
        dtype=dtype,
        compared=len(pairs),
        total=pairs.total,
        largest=largest,
        largest_at=pairs.positions[found.gaps.index(largest)],
        rms=math.sqrt(sum(found.squared) / (finite * pairs.vocab)),
        scale=found.scale,
        kl_max=max(found.divergences),
        kl_mean=sum(found.divergences) / finite,
        agree=found.finite.count(True) - found.flips,
        not_finite=found.finite.count(False),
        allowed=allowed.allowed if allowed else None,
        floor=basis.floor,
        ratio=ratio,
        smallest=None if False in found.finite else round_up(largest),
        first=None if first is None else pairs.positions[first],
        place=None if first is None else pairs.place(first),
        where=where(pairs, bad) if bad else "",
        clues=told,
    )


def _by_size(found: Figures, pairs: Pairs, allowed: Allowance) -> tuple[Verdict, str, int | None]:
    """The verdict by the largest difference, why, and the first pair that it is about."""
    bands = [allowed.band(gap) for gap in found.gaps]
    told = f"max |Δlogit| {max(found.gaps):.3g}, allowed {allowed.allowed:.3g} ({allowed.tolerance})"
    if Band.BUG in bands and not allowed.too_noisy:
        return Verdict.FAILED, told, bands.index(Band.BUG)
    outside = next((pair for pair, band in enumerate(bands) if band is not Band.ROUNDING), None)
    if outside is None:
        return Verdict.PASSED, told, None
    rms = math.sqrt(sum(found.squared) / (max(1, found.finite.count(True)) * pairs.vocab))
    if isinstance(allowed.tolerance, Unmeasured) and not rms <= QUIET * found.deviation:
        told = f"RMS {rms:.3g} is over a fifth of the logits' standard deviation ({found.deviation:.3g}), which is no noise"
        return Verdict.FAILED, told, outside
    why = "the reference's own noise is too large to tell" if allowed.too_noisy else "above rounding, below a bug"
    if isinstance(allowed.tolerance, Unmeasured):
        why = "noise could be as large, and it was not measured"
    return Verdict.INCONCLUSIVE, f"{told}: {why}", outside


def _by_ratio(pools: list[Pool], bounds: Ratio) -> tuple[Verdict, str, int | None]:
    """The verdict by error ÷ noise, of all positions together and of each stretch of them."""
    whole = reduce(add, pools)
    passes, fails = bounds.bounds(whole.positions)
    told = f"error {whole.ratio:.3g} × the noise over {whole.positions} positions"
    worst = max(range(len(pools)), key=lambda pair: pools[pair].ratio if pools[pair].positions else 0.0)
    first = next((pair for pair, pool in enumerate(pools) if pool.positions and pool.ratio > bounds.program_fails), worst)
    if whole.ratio > fails:
        return Verdict.FAILED, f"{told}, allowed {passes:g} ×", first
    for start, end in pairwise([*range(0, len(pools), STRETCH), len(pools)]):
        part = reduce(add, pools[start:end])
        allowed = bounds.alone(part.positions)
        if part.positions and part.ratio > allowed:
            detail = f"error {part.ratio:.3g} × the noise over {part.positions} positions in a row, allowed {allowed:.3g} ×"
            return Verdict.FAILED, detail, max(first, start) if first < end else start
    if whole.ratio < passes:
        return Verdict.PASSED, f"{told}, allowed {passes:g} ×", None
    return Verdict.INCONCLUSIVE, f"{told}: above {passes:g} ×, below {fails:g} ×", worst


def round_up(size: float, digits: int = 3) -> float:
    """The least number of so many digits that is not below `size`."""
    if not size:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(size)) - digits + 1)
    found = float(f"{math.ceil(size / step) * step:.{digits}g}")
    return found if found >= size else float(f"{found + step:.{digits}g}")

"""What a report says of noise: how large it is, that it is precision, and what is left where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..harness.results import Case
from ..harness.trial import QUIETER, Verdict
from .table import figure
from .text import Written

FINER = ("float64", QUIETER)
"""Precisions in which the same weights are judged before the noisy ones."""


def noises(cases: Sequence[Case], written: Written = str) -> list[str]:
    """A sentence or two for each target and precision whose errors were set against noise; `written` is how names are."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        if case.noise is not None:
            found.setdefault((case.target, case.dtype), []).append(case)
    several = len({target for target, _ in found}) > 1
    return [
        f"{f'{written(target)}: ' if several else ''}{_size(written(dtype), some)}; {_left(cases, target)}"
        for (target, dtype), some in found.items()
    ]


def _size(dtype: str, cases: Sequence[Case]) -> str:
    noise, deviation = (
        math.sqrt(sum((getattr(case, name) or 0.0) ** 2 * case.positions for case in cases) / total)
        if (total := sum(case.positions for case in cases))
        else 0.0
        for name in ("noise", "deviation")
    )
    part = f", {figure(noise / deviation)} of their deviation" if deviation else ""
    return (
        f"noise in {dtype}: without a cache, logits are off by {figure(noise)} RMS{part}. "
        "That is precision, no bug: errors are judged by their ratio to it"
    )


def _left(cases: Sequence[Case], target: str) -> str:
    """What was seen in a precision without that noise."""
    for dtype in FINER:
        finer = [case for case in cases if (case.target, case.dtype) == (target, dtype) and case.positions]
        if not finer:
            continue
        most, mode = figure(max(case.largest for case in finer)), f"the {dtype} mode" if dtype == QUIETER else dtype
        if any(case.verdict is Verdict.FAILED for case in finer):
            return f"in {mode} of the same weights it is gone, and errors of up to {most} are left, which are no noise"
        return f"in {mode} of the same weights it is gone: nothing is off by more than {most}"
    return "it was judged in no mode without it, where smaller bugs would show"

"""The common check of a program: its logits are the reference's."""

from __future__ import annotations

from .noise import ratio_match
from .program import Program
from .runner import execute
from .tolerance import Exact, Ratio
from .trial import Judged, Subject, Trial, judge, longest_rows


def logits_match(program: Program, subject: Subject, judged: Judged) -> Trial:
    """Every judged append gives the logits of the reference on the same history."""
    subject.oracle.prepare(longest_rows(program))
    tolerance = subject.tolerance(judged)
    if isinstance(tolerance, Ratio):
        return ratio_match(program, subject, judged, tolerance)
    exact = isinstance(tolerance, Exact)
    steps = list(execute(program, subject.implementation, subject.oracle, exact=exact))
    return judge(program, steps, tolerance, subject, judged)

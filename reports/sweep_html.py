"""A sweep as one HTML file that works offline: the matrix, the causes, and what was not judged."""

from __future__ import annotations

from collections.abc import Mapping

from ..harness.grouping import reasons
from ..harness.run import Run
from ..harness.trial import Verdict
from .matrix import SIGNS, WORST_FIRST, matrix
from .template import LONGEST, many, template, times

MOST_REASONS = 200
"""Reasons that are shown; the result file has the rest."""


def sweep_page(run: Run, sentences: Mapping[str, str]) -> str:
    """The whole page."""
    found = matrix(run)
    counts = {verdict: sum(cell.verdict is verdict for cell in found.cells.values()) for verdict in WORST_FIRST}
    return template("sweep.html.jinja", {}).render(
        run=run,
        matrix=found,
        counts=counts,
        headline=_headline(run, counts),
        signs=SIGNS,
        sentences=sentences,
        reasons=reasons(run.cases)[:MOST_REASONS],
        times=times,
        longest=LONGEST,
    )


def _headline(run: Run, counts: Mapping[Verdict, int]) -> tuple[Verdict, str]:
    for verdict in WORST_FIRST[:3]:
        if counts[verdict]:
            causes = f", {many(len(run.groups), 'cause')}" if run.groups else ""
            return verdict, f"{counts[verdict]:,} of {many(len(run.cells), 'cell')} {verdict}{causes}"
    if run.problems:
        return Verdict.INCONCLUSIVE, "The sweep is not finished, or its known deviations are not up to date"
    return Verdict.PASSED, f"The contract holds in {many(len(run.cells), 'cell')}"

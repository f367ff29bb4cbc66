"""A sweep as one HTML file that works offline: the matrix, the causes, and what was not judged."""

from __future__ import annotations

from collections.abc import Mapping

from ..harness.grouping import reasons
from ..harness.run import Run
from .headline import cell_counts, headline
from .matrix import matrix
from .template import template, times
from .text import LONGEST
from .verdicts import SIGNS, WORST_FIRST

MOST_REASONS = 200
"""Reasons that are shown; the result file has the rest."""


def sweep_page(run: Run, sentences: Mapping[str, str]) -> str:
    """The whole page."""
    found = matrix(run)
    return template("sweep.html.jinja", {}).render(
        run=run,
        matrix=found,
        counts={verdict: cell_counts(run)[verdict] for verdict in WORST_FIRST},
        headline=headline(run),
        signs=SIGNS,
        sentences=sentences,
        reasons=reasons(run.cases)[:MOST_REASONS],
        times=times,
        longest=LONGEST,
    )

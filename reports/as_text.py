"""A run of any kind as text for the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from ..harness.mutation import Outcome, tried
from ..harness.run import Run
from .headline import counted, untried
from .sweep import sweep_report
from .table import failure_table, mutant_table
from .terminal import check_report, made
from .text import visible

QUIET = (Outcome.CAUGHT, Outcome.PASSED, Outcome.PROVED)
"""Outcomes that are as they should be."""


def as_text(run: Run, sentences: Mapping[str, str], only_failures: bool = False) -> str:
    """A run of any kind. `sentences` are the clauses' by id."""
    if run.rows:
        rows = [row for row in run.rows if not (only_failures and row.as_expected)]
        return "\n\n".join([failure_table(rows), *map(visible, run.problems), f"{counted(run)} ({made(run)})"])
    if run.mutants:
        mutants = [mutant for mutant in run.mutants if not (only_failures and mutant.outcome in QUIET)]
        last = f"{counted(run)} ({made(run)})"
        told = list(map(visible, run.problems))
        could, asked = tried(run.mutants)
        if asked and not could:
            told.append(visible(untried(run.mutants)))
        return "\n\n".join([mutant_table(mutants), *told, last])
    if run.cells:
        return sweep_report(run, only_failures)
    return check_report(run, sentences, only_failures)

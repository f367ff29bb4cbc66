"""The failure table, cases and mutants as columns of text, for the terminal and for markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from tabulate import tabulate

from ..harness.mutation import Mutant, Outcome
from ..harness.results import Case
from ..harness.runner import Divergence
from ..harness.table import TableRow
from .causes import clauses_of, unjudged_together
from .text import Written, cell, visible

Part = Literal["prefill", "incremental"]
FAILURE_COLUMNS = (
    "implementation",
    "first bad token",
    "max |Δ| prefill",
    "max |Δ| incremental",
    "argmax flips",
    "text changed",
    "verdict",
    "diagnosis",
    "danger",
    "caught by",
)


def figure(value: float | None) -> str:
    """A size in three digits; an exact zero as 0, nothing as a dash."""
    if value is None:
        return "—"
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞"
    return "0" if value == 0 else f"{value:.3g}"


WORDS = {Divergence.NOT_FINITE: "NaN"}
"""How a divergence is called where a figure would stand, if not by its own name."""


def size(row: TableRow, part: Part) -> str:
    """max |Δlogit| of a row's prefill or incremental tokens; where there is none, what ended it before there could be."""
    value = row.prefill if part == "prefill" else row.incremental
    if value is not None or not row.ended_by or (part, row.ended_in) == ("prefill", "incremental"):
        return figure(value)
    return WORDS.get(Divergence(row.ended_by), row.ended_by)


STYLES: dict[str, Written] = {"simple": visible, "github": cell}
"""Styles of `tabulate`, and how each writes a text from elsewhere."""


def failure_table(rows: Sequence[TableRow], style: str = "simple") -> str:
    """One line an implementation, with the columns of the failure table."""
    text = STYLES[style]
    lines = [
        (
            text(row.target),
            "—" if row.first_token is None else row.first_token,
            size(row, "prefill"),
            size(row, "incremental"),
            f"{row.flips}/{row.positions}",
            "—" if row.changed is None else f"{row.changed}/{row.generated}",
            row.verdict,
            text(row.diagnosis),
            row.danger,
            text(row.clause or "—"),
        )
        for row in rows
    ]
    align = ("left", "right", "right", "right", "right", "right", "left", "left", "left", "left")
    columns = [column.replace("|", "\\|") if style == "github" else column for column in FAILURE_COLUMNS]
    return tabulate(lines, columns, tablefmt=style, colalign=align if lines else None, disable_numparse=True)


def case_table(cases: Sequence[Case]) -> str:
    """One line a clause and dtype; clauses that could not be judged for the same reason share one."""
    lines = [
        (
            visible(clauses_of(alike)),
            visible(alike[0].dtype),
            alike[0].verdict,
            sum(case.programs for case in alike),
            figure(alike[0].largest) if len(alike) == 1 and alike[0].positions else "—",
            figure(alike[0].allowed if len(alike) == 1 else None),
            visible(alike[0].reason),
        )
        for alike in unjudged_together(cases)
    ]
    columns = ("clause", "dtype", "verdict", "programs", "max |Δ|", "allowed", "what")
    return tabulate(lines, columns, tablefmt="simple", disable_numparse=True)


ORDER = (
    Outcome.SURVIVED,
    Outcome.FLAGGED,
    Outcome.EQUIVALENT,
    Outcome.ERRORED,
    Outcome.CAUGHT,
    Outcome.PASSED,
    Outcome.PROVED,
    Outcome.NOT_APPLICABLE,
)


def mutant_table(mutants: Sequence[Mutant], style: str = "simple") -> str:
    """One line a fault and model, survivors first; what does not apply is left out."""
    shown = sorted(
        (mutant for mutant in mutants if mutant.outcome is not Outcome.NOT_APPLICABLE),
        key=lambda mutant: ORDER.index(mutant.outcome),
    )
    text, named = STYLES[style], any(mutant.named for mutant in mutants)
    lines = [
        (
            text(mutant.fault),
            text(mutant.target),
            mutant.kind,
            mutant.outcome,
            text(mutant.clause or "—"),
            "—" if mutant.examples is None else mutant.examples,
            *([text(mutant.named or "—")] if named else []),
            text(mutant.detail),
        )
        for mutant in shown
    ]
    columns = ("fault", "on", "kind", "outcome", "clause", "programs", *(["named"] if named else []), "what")
    return tabulate(lines, columns, tablefmt=style, disable_numparse=True)

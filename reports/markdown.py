"""A run as markdown for a pull request: the verdict, the counts, what failed, and the details folded away."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate

from tabulate import tabulate

from ..harness.mutation import Outcome
from ..harness.results import Case, Finding
from ..harness.run import Run
from ..harness.sweeps.grouping import Group, reasons
from ..harness.trial import Verdict
from .causes import by_cause, clauses_of, unjudged_together
from .headline import counted, headline
from .matrix import LEGEND, matrix, matrix_table
from .noise import noises
from .table import failure_table, figure, mutant_table
from .text import cell, code, fenced, many, visible
from .verdicts import SIGNS

LARGEST = 65_000
"""Characters that GitHub takes in a comment are 65,536."""
MOST_LINES = 40
"""Lines of a table before the rest is only counted."""
GOOD = (Outcome.CAUGHT, Outcome.PASSED, Outcome.PROVED, Outcome.NOT_APPLICABLE)


def render_markdown(run: Run, sentences: Mapping[str, str]) -> str:
    """The whole report, or as much of it as a comment may hold. `sentences` are the clauses' by id."""
    verdict, line = headline(run)
    page = [f"# {SIGNS[verdict]} {line}", f"{code('kvconform ' + run.header.command)}: {counted(run)}{_judged_by(run)}"]
    if run.problems:
        page.append("\n".join(f"- {code(problem, 400)}" for problem in run.problems[:MOST_LINES]))
    if run.cells:
        tables, details = _sweep(run)
    else:
        page += [] if run.rows else noises(run.cases, code)
        causes = [] if run.rows else by_cause(finding for case in run.cases for finding in case.findings)
        tables = [_causes(causes), "" if run.rows else _unjudged(run.cases)]
        details = [_detail(number, alike, sentences) for number, alike in enumerate(causes, 1)]
    page += [table for table in tables if table]
    parts = [*details, *_tables(run)]
    room = LARGEST - sum(len(part) + 2 for part in page) - len(_made(run)) - 100
    ends = list(accumulate(len(part) + 2 for part in parts))
    page += parts[: bisect(ends, room)]
    if missing := sum(end > room for end in ends):
        page.append(f"{many(missing, 'further part')} had no room here; the result file has everything.")
    return "\n\n".join((*page, _made(run))) + "\n"


def _judged_by(run: Run) -> str:
    return f"; judged by {code(run.header.reference)}" if run.header.reference else ""


def _made(run: Run) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run.header.versions.items())
    return f"Seed {run.header.seed}, profile {code(run.header.profile)}, {run.seconds:.1f} s; {code(versions)}"


def _causes(causes: Sequence[Sequence[Finding]]) -> str:
    """What failed, one line a distinct finding."""
    lines = [
        (
            number,
            cell(alike[0].clause),
            cell(alike[0].target),
            cell(", ".join(dict.fromkeys(finding.dtype for finding in alike))),
            figure(alike[0].difference) if alike[0].divergence == "logits" else cell(alike[0].divergence),
            figure(alike[0].allowed),
            cell(str(alike[0].diagnosis or alike[0].detail)),
        )
        for number, alike in enumerate(causes[:MOST_LINES], 1)
    ]
    columns = ("", "clause", "implementation", "precision", "max \\|Δ\\|", "allowed", "what")
    return _capped(tabulate(lines, columns, tablefmt="github", disable_numparse=True), len(causes)) if lines else ""


def _unjudged(cases: Sequence[Case]) -> str:
    """What errored or could not be told; clauses with the same reason share a line."""
    found = unjudged_together(case for case in cases if case.verdict in (Verdict.ERRORED, Verdict.INCONCLUSIVE))
    lines = [
        (cell(clauses_of(some)), cell(some[0].target), cell(some[0].dtype), str(some[0].verdict), cell(some[0].reason))
        for some in found[:MOST_LINES]
    ]
    columns = ("clause", "implementation", "precision", "verdict", "why")
    return _capped(tabulate(lines, columns, tablefmt="github", disable_numparse=True), len(found)) if lines else ""


def _sweep(run: Run) -> tuple[list[str], list[str]]:
    """The matrix, the causes and what was not judged, a line each; then each cause in detail."""
    found = matrix(run)
    legend = f"{LEGEND}, in the order: {code(', '.join(found.families))}"
    causes = [
        (
            number,
            cell(group.title),
            cell(group.common),
            len(group.cells),
            cell(str(group.finding.diagnosis or group.finding.detail)),
        )
        for number, group in enumerate(run.groups[:MOST_LINES], 1)
    ]
    table = tabulate(causes, ("", "cause", "in common", "cells", "what"), tablefmt="github", disable_numparse=True)
    untold = [(str(one.verdict), cell(one.reason), one.cases) for one in reasons(run.cases)]
    unjudged = tabulate(untold, ("not judged", "why", "cases"), tablefmt="github", disable_numparse=True)
    return (
        [_capped(table, len(run.groups)) if causes else "", _folded("Not judged", unjudged) if untold else ""],
        [*map(_group, range(1, len(run.groups) + 1), run.groups), f"{matrix_table(found, found.rows, 'github')}\n\n{legend}"],
    )


def _group(number: int, group: Group) -> str:
    finding = group.finding
    lines = [
        f"In common: {code(group.common)}; breaks {code(', '.join(group.clauses))}",
        f"Explains failures of: {code(', '.join(group.also))}" if group.also else "",
        f"What happened: {code(finding.detail)} at op {finding.step}, token {finding.token}",
        f"Reproduce with:\n\n{fenced(finding.reproduce, 4000)}",
        f"Cells: {code(', '.join(group.cells), 4000)}",
    ]
    title = f"{number}. <code>{_html(group.title)}</code>"
    return _folded(title, "\n\n".join(line for line in lines if line), opened=number == 1)


def _capped(table: str, total: int) -> str:
    return table if total <= MOST_LINES else f"{table}\n\nThe first {MOST_LINES} of {total}."


def _tables(run: Run) -> Iterator[str]:
    """The failure table and the mutation check: what is not as it should be, then everything, folded."""
    for name, found, bad, table in (
        ("failure table", run.rows, [row for row in run.rows if not row.as_expected], failure_table),
        ("table", run.mutants, [mutant for mutant in run.mutants if mutant.outcome not in GOOD], mutant_table),
    ):
        if bad:
            yield table(bad[:MOST_LINES], "github")  # pyright: ignore[reportArgumentType]
        if found:
            yield _folded(f"The whole {name}", table(found, "github"))  # pyright: ignore[reportArgumentType]


def _detail(number: int, alike: Sequence[Finding], sentences: Mapping[str, str]) -> str:
    finding = alike[0]
    also = [name for name in dict.fromkeys(other.clause for other in alike) if name != finding.clause]
    lines = [
        f"Promised: {sentences.get(finding.clause) or code(finding.clause)}",
        f"What happened: {code(finding.detail)} at op {finding.step}, token {finding.token}",
        f"Diagnosis: {code(str(finding.diagnosis))}" if finding.diagnosis else "",
        f"Located: {code(finding.located)}" if finding.located else "",
        f"Breaks too: {code(', '.join(also))}" if also else "",
        f"Reproduce with:\n\n{fenced(finding.reproduce, 4000)}",
    ]
    title = f"{number}. <code>{_html(finding.clause)}</code> on <code>{_html(finding.target)}</code>"
    return _folded(title, "\n\n".join(line for line in lines if line), opened=number == 1)


def _folded(title: str, body: str, opened: bool = False) -> str:
    return f"<details{' open' * opened}><summary>{title}</summary>\n\n{body}\n\n</details>"


def _html(text: str) -> str:
    return escape(visible(text, longest=200))

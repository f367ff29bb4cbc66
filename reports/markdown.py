"""A run as markdown, for pull requests and for reading."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..harness.grouping import Group, reasons
from ..harness.results import Finding
from ..harness.run import Run
from .matrix import LEGEND, matrix, matrix_table, reason_line
from .table import case_table, failure_table, figure, mutant_table

MOST_FINDINGS = 50


def render_markdown(run: Run, sentences: Mapping[str, str]) -> str:
    """The whole report. `sentences` are the clauses' by id."""
    parts = [f"# kvconform {run.header.command}", _summary(run)]
    if run.problems:
        parts.append("## What is wrong\n\n" + "\n".join(f"- {inline(problem)}" for problem in run.problems))
    if run.cells:
        parts += _sweep(run)
    if run.rows:
        parts.append("## Failure table\n\n" + escaped_table(failure_table(run.rows, "github")))
    findings = [finding for case in run.cases for finding in case.findings]
    if findings and not run.rows and not run.cells:
        parts.append("## Findings")
        parts.extend(_finding(finding, sentences) for finding in findings[:MOST_FINDINGS])
        if len(findings) > MOST_FINDINGS:
            parts.append(f"{len(findings) - MOST_FINDINGS} more findings are in the result file.")
    if run.cases and not run.rows and not run.cells:
        for target in run.header.targets:
            cases = [case for case in run.cases if case.target == target]
            parts.append(f"## {code(target)}\n\n" + escaped_table(case_table(cases, "github")))
    if run.mutants:
        parts.append("## Faults and controls\n\n" + escaped_table(mutant_table(run.mutants, "github")))
    versions = ", ".join(f"{name} {number}" for name, number in run.header.versions.items())
    parts.append(f"Seed {run.header.seed}, profile {run.header.profile}; {versions}.")
    return "\n\n".join(parts) + "\n"


def _summary(run: Run) -> str:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in run.counts.items() if count)
    return f"{len(run.cases)} cases: {counts}." if run.cases else "No clause was asked."


def _sweep(run: Run) -> list[str]:
    """The matrix, the causes, and what was not judged."""
    found = matrix(run)
    order = f"{LEGEND}, in the order: {', '.join(found.families)}."
    parts = ["## Matrix\n\n" + escaped_table(matrix_table(found, found.rows, "github")), order]
    parts += ["## Causes"] if run.groups else []
    parts += [_cause(number, group) for number, group in enumerate(run.groups, 1)]
    told = [f"- {inline(reason_line(one))}" for one in reasons(run.cases)]
    return [*parts, "## Not judged\n\n" + "\n".join(told)] if told else parts


def _cause(number: int, group: Group) -> str:
    finding = group.finding
    sizes = f"size {figure(finding.difference)}, allowed {figure(finding.allowed)}"
    also = f"\n\nIt explains failures of: {', '.join(map(code, group.also))}." if group.also else ""
    return "\n".join(
        (
            f"### {number}. {inline(group.title)}",
            "",
            f"{inline(group.common)}: {len(group.cells)} cells; clauses {', '.join(map(code, group.clauses))}.{also}",
            "",
            f"What happened: {inline(finding.detail)}, at op {finding.step}, token {finding.token} ({sizes}).",
            "",
            f"Reproduce with:\n\n{fenced(finding.reproduce)}",
            "",
            f"<details><summary>Cells</summary>\n\n{', '.join(map(code, group.cells))}\n\n</details>",
        )
    )


def _finding(finding: Finding, sentences: Mapping[str, str]) -> str:
    sizes = f"size {figure(finding.difference)}, allowed {figure(finding.allowed)}"
    return "\n".join(
        (
            f"### {code(finding.clause)} on {code(finding.target)} ({finding.dtype})",
            "",
            f"Promised: {sentences.get(finding.clause, finding.clause)}",
            "",
            f"What happened: {inline(finding.detail)}, at op {finding.step}, token {finding.token} ({sizes}).",
            "",
            f"Reproduce with:\n\n{fenced(finding.reproduce)}",
        )
    )


def inline(text: str) -> str:
    """Text from elsewhere as plain markdown text, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~])", r"\\\1", " ".join(_printable(text).split()))


def code(text: str) -> str:
    """Text from elsewhere as a code span."""
    clean = " ".join(_printable(text).split())
    longest = max((len(run) for run in re.findall(r"`+", clean)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if clean.startswith("`") or clean.endswith("`") else ""
    return f"{ticks}{pad}{clean}{pad}{ticks}"


def fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{_printable(text)}\n{fence}"


def escaped_table(table: str) -> str:
    """A table that tabulate made: angle brackets and backticks of its cells may not become markup."""
    return _printable(table).replace("<", "&lt;").replace(">", "&gt;").replace("`", "&#96;")


def _printable(text: str) -> str:
    """Control and direction-changing characters shown as what they are."""
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\u{ord(c):04x}" for c in text)

"""A sweep as text: causes first, then what could not be judged, the matrix, and one last line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..harness.run import Run
from ..harness.sweeps.grouping import Group, reasons
from ..harness.trial import Verdict
from .headline import counted
from .matrix import LEGEND, matrix, matrix_table, reason_line
from .table import figure
from .terminal import LONGEST_LINE, made, short
from .text import many, visible

MOST_CELLS = 4
"""Cells of a group that are named in the terminal; the report names all."""


def sweep_report(run: Run, only_failures: bool = False) -> str:
    """The whole sweep for the terminal."""
    parts = [group_block(number, group) for number, group in enumerate(run.groups, 1)]
    told = [one for one in reasons(run.cases) if one.verdict is not Verdict.UNSUPPORTED or not only_failures]
    parts += ["Not judged:\n" + "\n".join(map(reason_line, told))] if told else []
    shown = matrix(run)
    rows = [row for row in shown.rows if not only_failures or row.failed]
    if rows:
        parts.append(f"{matrix_table(shown, rows)}\n\n{LEGEND}, in the order: {visible(', '.join(shown.families))}")
    return "\n\n".join([*parts, *map(visible, run.problems), last_line(run)])


def group_block(number: int, group: Group) -> str:
    """One cause: where, what, the smallest program and how to see it again."""
    finding = group.finding
    lines = [
        f"{number}. {group.title}",
        f"  where:     {many(len(group.cells), 'cell')}, {group.common}: {_some(group.cells)}",
        f"  happened:  {finding.detail}",
        f"  program:   {short(finding.program)}",
        f"  bad at:    op {finding.step} ({finding.op}), token {finding.token}, size {figure(finding.difference)}",
    ]
    if finding.diagnosis:
        lines.append(f"  diagnosis: {finding.diagnosis}")
    if len(group.clauses) > 1:
        lines.append(f"  breaks:    {', '.join(group.clauses)}")
    if group.also:
        lines.append(f"  explains:  {', '.join(group.also)}")
    lines += ["  Reproduce with:", f"    {finding.reproduce}"]
    return "\n".join(visible(line, longest=LONGEST_LINE) for line in lines)


def last_line(run: Run) -> str:
    """What became of the cells, with counts that add up."""
    causes = f"; {many(len(run.groups), 'cause')}" if run.groups else ""
    programs = sum(case.programs for case in run.cases)
    return f"{counted(run)}{causes} ({len(run.cases):,} cases, {programs:,} programs; {made(run)})"


def _some(cells: Sequence[str]) -> str:
    shown = [shlex.quote(cell.rpartition(" ")[0]) for cell in cells[:MOST_CELLS]]
    return ", ".join(shown) + (f" and {len(cells) - MOST_CELLS} more" if len(cells) > MOST_CELLS else "")

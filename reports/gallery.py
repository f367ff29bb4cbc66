"""The gallery: each published fault with its row of the failure table, its plot, and the override that is the bug.

`python -m kvconform.reports.gallery RESULT FOLDER` makes it from the result file of `kvconform table`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ..harness import registry
from ..harness.fault import Fault, Kind
from ..harness.results import Finding
from ..harness.run import Run
from ..harness.table import TableRow
from . import result_file
from .plot import plot
from .table import failure_table
from .template import template
from .text import code, fenced

HEAD = """# Gallery of published bugs

Each of these was reported in public, or stands in published code. The catalogue has it as a deliberate fault: the same class
as the correct cache but for one override. The row is that of the failure table; the plot shows max |Δlogit| at each token of
a program that fails, against what was allowed, on a logarithmic scale with a line of its own for exact zeros.

This page is generated: `make gallery`.
"""


def gallery(run: Run, faults: Mapping[str, Fault]) -> dict[str, str]:
    """The files of the gallery by path: a page, and a drawing for each fault that has a curve."""
    rows = {row.target.rpartition("/")[2]: row for row in reversed(run.rows)}
    findings = {finding.target: finding for case in reversed(run.cases) for finding in case.findings}
    drawn = template("chart.svg.jinja", {})
    files: dict[str, str] = {}
    parts = [HEAD]
    for fault in faults.values():
        row = rows.get(fault.name)
        if fault.kind is not Kind.FAULT or not fault.reports or row is None:
            continue
        found = findings.get(row.target)
        laid_out = plot(found.curve, found.allowed, found.floor, found.landmarks) if found else None
        if laid_out:
            files[f"gallery/{fault.name}.svg"] = drawn.render(p=laid_out)
        parts.append(_entry(fault, row, found, bool(laid_out)))
    return {"gallery.md": "\n".join(parts), **files}


def _entry(fault: Fault, row: TableRow, found: Finding | None, has_plot: bool) -> str:
    parts = [
        f"## {fault.name}",
        f"{fault.sentence} It shows {fault.shows}. Reported in: {', '.join(fault.reports)}.",
        failure_table([row], "github"),
    ]
    if has_plot:
        parts.append(f"![max |Δlogit| by token: {fault.name}](gallery/{fault.name}.svg)")
    elif found:
        parts.append(f"There is no curve: {code(found.detail)}")
    if found:
        parts.append(f"See it:\n\n{fenced(found.reproduce, 4000, 'sh')}")
    if fault.override:
        parts.append(f"The bug:\n\n{fenced(fault.override, 4000, 'python')}")
    return "\n\n".join(parts) + "\n"


def main(result: Path, folder: Path) -> None:
    for name, text in gallery(result_file.read(result), registry.faults()).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""A sweep as a matrix: a row a model, a column a combination of options, in each cell a sign for each family of clauses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tabulate import tabulate

from ..harness.results import Case, Cell
from ..harness.run import Run
from ..harness.sweeps.grouping import Reason
from ..harness.trial import Verdict
from .table import STYLES
from .text import many, visible
from .verdicts import SIGNS, worst

LEGEND = " ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items()) + "; a sign a family of clauses"
FEW = 3
"""Cells that are named where a reason is told in one line."""


@dataclass(frozen=True)
class SweptCell:
    """One cell: a verdict for each family, and the cases behind it."""

    cell: Cell
    cases: Sequence[Case]
    families: Mapping[str, Verdict]
    causes: Sequence[int] = ()
    """Numbers of the groups that it is in."""

    @property
    def verdict(self) -> Verdict:
        return worst(self.families.values())

    @property
    def signs(self) -> str:
        return "".join(SIGNS[verdict] for verdict in self.families.values())

    @property
    def reasons(self) -> list[tuple[str, list[str]]]:
        """Each reason of what did not pass, and the clauses that have it."""
        found: dict[str, list[str]] = {}
        for case in self.cases:
            if case.verdict is not Verdict.PASSED:
                found.setdefault(f"{case.verdict}: {case.reason}", []).append(case.clause)
        return list(found.items())


@dataclass(frozen=True)
class Row:
    """A model, with what became of it in each column; None where it was not asked."""

    model: str
    cells: Sequence[SweptCell | None]

    @property
    def failed(self) -> bool:
        return any(cell and cell.verdict not in (Verdict.PASSED, Verdict.UNSUPPORTED) for cell in self.cells)


@dataclass(frozen=True)
class Matrix:
    """Rows by model, columns by options; `families` in the order of the signs."""

    families: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Row] = field(default=())

    @cached_property
    def cells(self) -> dict[str, SweptCell]:
        return {cell.cell.key: cell for row in self.rows for cell in row.cells if cell}


def matrix(run: Run) -> Matrix:
    """The matrix of a sweep."""
    cases: dict[str, list[Case]] = {}
    for case in run.cases:
        cases.setdefault(f"{case.target} {case.dtype}", []).append(case)
    families = list(dict.fromkeys(_family(case) for case in run.cases))
    causes: dict[str, list[int]] = {}
    for number, group in enumerate(run.groups, 1):
        for key in group.cells:
            causes.setdefault(key, []).append(number)
    varied = _varied(run.cells)
    columns = list(dict.fromkeys(_column(cell, varied) for cell in run.cells))
    rows: dict[str, dict[str, SweptCell]] = {}
    for cell in run.cells:
        asked = cases.get(cell.key, [])
        by_family = {name: worst(case.verdict for case in asked if _family(case) == name) for name in families}
        rows.setdefault(cell.model, {})[_column(cell, varied)] = SweptCell(cell, asked, by_family, causes.get(cell.key, ()))
    return Matrix(families, columns, [Row(model, [some.get(column) for column in columns]) for model, some in rows.items()])


def matrix_table(found: Matrix, rows: Sequence[Row], style: str = "simple") -> str:
    """The matrix as columns of text."""
    text = STYLES[style]
    lines = [(text(row.model), *(cell.signs if cell else "" for cell in row.cells)) for row in rows]
    return tabulate(lines, ("model", *map(text, found.columns)), tablefmt=style, disable_numparse=True)


def reason_line(reason: Reason) -> str:
    """Why cases were not judged, and how many."""
    clauses = reason.clauses[0] if len(reason.clauses) == 1 else many(len(reason.clauses), "clause")
    where = ", ".join(reason.cells) if len(reason.cells) <= FEW else many(len(reason.cells), "cell")
    return visible(f"  {reason.verdict}: {reason.reason or 'no reason was given'} ({clauses}, {where})")


def _family(case: Case) -> str:
    return case.clause.partition(".")[0]


def _varied(cells: Sequence[Cell]) -> list[str]:
    """Options that are not the same in every cell; the dtype where there is no other."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.options))
    varied = [name for name in names if len({cell.options.get(name) for cell in cells}) > 1]
    return varied or ["dtype"]


def _column(cell: Cell, varied: Sequence[str]) -> str:
    return " ".join(cell.options[name] for name in varied if name in cell.options) or "as it is"

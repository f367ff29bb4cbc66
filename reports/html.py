"""A run as one HTML file that works offline: what the page shows, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ..harness.fault import Kind
from ..harness.results import Case, Finding
from ..harness.run import Run
from ..harness.trial import Verdict
from .causes import by_cause
from .headline import counted, headline
from .matrix import matrix as sweep_matrix
from .noise import noises
from .plot import plot
from .table import ORDER, size
from .template import template, times
from .text import LONGEST
from .timeline import timeline
from .verdicts import OF_OUTCOME, SIGNS, WORST_FIRST, worst

MOST = 200
"""Distinct findings, and reasons, that are shown."""
LEVELS = ((MOST, True), (100, True), (100, False), (50, False), (20, False), (5, False))
"""How much is shown, the first with which the page is not too large: findings, and whether a passed cell says its figures."""
LARGEST = 1_500_000
"""Bytes of a page that still opens at once."""


@dataclass(frozen=True)
class Cell:
    """Cases that are shown together: one clause on one implementation, or all that share a reason."""

    cases: Sequence[Case]
    link: str = ""

    @property
    def verdict(self) -> Verdict:
        return worst(case.verdict for case in self.cases)

    @property
    def dtypes(self) -> str:
        """The dtypes that have this verdict, in short, where others have another."""
        mixed = len({case.verdict for case in self.cases}) > 1
        these = [case.dtype for case in self.cases if case.verdict is self.verdict]
        return " ".join(dtype.replace("float", "f") for dtype in these) if mixed else ""


def render_html(run: Run, sentences: Mapping[str, str] | None = None) -> str:
    """The whole report. `sentences` are the clauses' by id."""
    page = ""
    for most, told in LEVELS:
        page = _page(run, sentences or {}, most, told)
        if len(page.encode()) <= LARGEST:
            break
    return page


def _page(run: Run, sentences: Mapping[str, str], most: int, told: bool) -> str:
    causes = by_cause(finding for case in run.cases for finding in case.findings)
    clauses = _by_family(case.clause for case in run.cases)
    reasons = _reasons(run.cases)
    links = {(case.target, case.clause): cell.link for cell in reasons[:most] for case in cell.cases}
    for number, alike in reversed(list(enumerate(causes[:most], 1))):
        links |= {(finding.target, finding.clause): f"#finding-{number}" for finding in alike}
    matrix = _matrix(run.cases, links)
    shown = {case.verdict for case in run.cases} | {OF_OUTCOME[mutant.outcome] for mutant in run.mutants}
    return template("report.html.jinja", {"family": _family}).render(
        run=run,
        headline=headline(run),
        counted=counted(run),
        signs=SIGNS,
        sentences=sentences,
        causes=causes,
        overrides={row.target: row.override for row in run.rows if row.kind is Kind.FAULT},
        blamed=_blamed(matrix),
        clauses=clauses,
        families=[(name, len(list(members))) for name, members in groupby(clauses, key=_family)],
        asked=dict.fromkeys((*map(_family, clauses), *(mutant.family for mutant in run.mutants))),
        statuses=[verdict for verdict in SIGNS if verdict in shown],
        outcome_status=OF_OUTCOME,
        matrix=matrix,
        noises=[] if run.cells or run.rows else noises(run.cases),
        swept=sweep_matrix(run) if run.cells else None,
        told=told,
        reasons=reasons,
        links=links,
        mutants=sorted(run.mutants, key=lambda mutant: ORDER.index(mutant.outcome)),
        outcomes=[(outcome, sum(mutant.outcome is outcome for mutant in run.mutants)) for outcome in ORDER],
        most=most,
        plot=plot,
        timeline=timeline,
        size=size,
        times=times,
        longest=LONGEST,
    )  # fmt: skip


def _family(clause: str) -> str:
    return clause.partition(".")[0]


def _by_family(clauses: Iterable[str]) -> list[str]:
    """Each clause once, families together, in the order of their first appearance."""
    found = list(dict.fromkeys(clauses))
    families = list(dict.fromkeys(map(_family, found)))
    return sorted(found, key=lambda clause: families.index(_family(clause)))


def _blamed(matrix: Mapping[str, Mapping[str, Cell]]) -> list[tuple[str, int, int, Finding | None]]:
    """For each implementation that fails: clauses failed, clauses asked, and the finding that says most in least."""
    found: list[tuple[str, int, int, Finding | None]] = []
    for target, row in matrix.items():
        failed = [cell for cell in row.values() if cell.verdict is Verdict.FAILED]
        shown = [finding for cell in failed for case in cell.cases for finding in case.findings]
        best = min(shown, key=lambda finding: (not finding.diagnosis, len(finding.program)), default=None)
        if failed:
            found.append((target, len(failed), len(row), best))
    return found


def _matrix(cases: Iterable[Case], links: Mapping[tuple[str, str], str]) -> dict[str, dict[str, Cell]]:
    """Cells by implementation and clause; one that was not asked is not there."""
    together: dict[str, dict[str, list[Case]]] = {}
    for case in cases:
        together.setdefault(case.target, {}).setdefault(case.clause, []).append(case)
    return {
        target: {clause: Cell(some, links.get((target, clause), "")) for clause, some in row.items()}
        for target, row in together.items()
    }


def _reasons(cases: Iterable[Case]) -> list[Cell]:
    """What could not be judged, everything with the same reason together."""
    alike: dict[tuple[int, str], list[Case]] = {}
    for case in cases:
        if case.verdict not in (Verdict.PASSED, Verdict.FAILED):
            alike.setdefault((WORST_FIRST.index(case.verdict), case.reason), []).append(case)
    ordered = sorted(alike.items(), key=lambda entry: entry[0][0])
    return [Cell(some, f"#reason-{number}") for number, (_, some) in enumerate(ordered, 1)]

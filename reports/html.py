"""A run as one HTML file that works offline. Whatever comes from a target is shown as text, and never obeyed."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..harness.mutation import exit_code as mutation_exit
from ..harness.results import Case, Finding
from ..harness.results import exit_code as cases_exit
from ..harness.run import Run
from ..harness.trial import Verdict
from .plot import plot
from .table import ORDER, figure
from .timeline import timeline

MOST = (200, 100, 50, 20)
"""Findings, and reasons, that are shown: the first of these numbers with which the page is not too large."""
LARGEST = 1_500_000
"""Bytes of a page that still opens at once."""
LONGEST = 1500
"""Characters that are shown of one text."""
WORST_FIRST = (Verdict.FAILED, Verdict.ERRORED, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.UNSUPPORTED)


@dataclass(frozen=True)
class Cell:
    """Cases that are shown together: one clause on one implementation, or all that share a reason."""

    cases: Sequence[Case]
    link: str = ""

    @property
    def verdict(self) -> Verdict:
        return min((case.verdict for case in self.cases), key=WORST_FIRST.index)

    @property
    def dtypes(self) -> str:
        """The dtypes that have this verdict, where others have another."""
        mixed = len({case.verdict for case in self.cases}) > 1
        return " ".join(case.dtype for case in self.cases if case.verdict is self.verdict) if mixed else ""


def render_html(run: Run, sentences: Mapping[str, str] | None = None) -> str:
    """The whole report. `sentences` are the clauses' by id."""
    for most in MOST:
        page = _page(run, sentences or {}, most)
        if len(page.encode()) <= LARGEST:
            break
    return page


def _page(run: Run, sentences: Mapping[str, str], most: int) -> str:
    findings = [finding for case in run.cases for finding in case.findings]
    clauses = _by_family(case.clause for case in run.cases)
    reasons = _reasons(run.cases)
    links = {(case.target, case.clause): cell.link for cell in reasons[:most] for case in cell.cases}
    for number, finding in reversed(list(enumerate(findings[:most], 1))):
        links[finding.target, finding.clause] = f"#finding-{number}"
    matrix = _matrix(run.cases, links)
    return _environment().get_template("report.html.jinja").render(
        run=run,
        headline=_headline(run),
        sentences=sentences,
        findings=findings,
        blamed=_blamed(matrix),
        clauses=clauses,
        families=[(name, len(list(members))) for name, members in groupby(clauses, key=_family)],
        matrix=matrix,
        reasons=reasons,
        links=links,
        mutants=sorted(run.mutants, key=lambda mutant: ORDER.index(mutant.outcome)),
        outcomes=[(outcome, sum(mutant.outcome is outcome for mutant in run.mutants)) for outcome in ORDER],
        most=most,
        longest=LONGEST,
    )  # fmt: skip


def _headline(run: Run) -> tuple[Verdict, str]:
    """The one line that everybody reads, and the verdict that colours it."""
    counts, odd = run.counts, sum(not row.as_expected for row in run.rows)
    code = mutation_exit(run.mutants) if run.mutants else 0 if run.rows else cases_exit(run.cases)
    if run.problems:
        return Verdict.FAILED, f"{_many(len(run.problems), 'problem')} with the check itself"
    if odd:
        return Verdict.FAILED, f"{odd} of {_many(len(run.rows), 'implementation')} not as expected"
    if run.mutants or run.rows:
        good = (Verdict.PASSED, "Every fault is caught, and everything correct passes")
        return (good, (Verdict.FAILED, "A fault survives"), (Verdict.ERRORED, "Not every fault could be judged"))[code]
    if code == 0:
        return Verdict.PASSED, f"The contract holds: {_many(counts['passed'], 'case')} passed"
    for verdict in WORST_FIRST[:3]:
        if counts[verdict]:
            return verdict, f"{counts[verdict]:,} of {_many(len(run.cases), 'case')} {verdict}"
    return Verdict.INCONCLUSIVE, "Nothing was judged"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' * (count != 1)}"


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


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"block": _block, "beside": _beside, "digest": _digest, "family": _family, "many": _many}
    environment.globals |= {"plot": plot, "timeline": timeline, "times": _times}
    return environment


def _shown(value: Any) -> Any:
    """Everything that the template prints passes here, before it is escaped: no text can bring more than its letters."""
    if value is None or isinstance(value, float):
        return figure(value)
    return value if not isinstance(value, str) or isinstance(value, Markup) else _visible(value)


def _visible(text: str, kept: str = "") -> str:
    """A text of bearable length in which characters that steer, hide or turn others are written out."""
    signs = (
        c if c in kept or c.isprintable() or unicodedata.category(c) == "Zs" else "⏎" if c == "\n" else f"\\u{ord(c):04x}"
        for c in text[:LONGEST]
    )
    more = f" … {_many(len(text) - LONGEST, 'character')} more" if len(text) > LONGEST else ""
    return "".join(signs) + more


def _block(text: str) -> Markup:
    """A text that keeps its lines."""
    return Markup(escape(_visible(text, kept="\n")))


def _beside(text: str, other: str) -> list[tuple[bool, str]]:
    """A text in runs of characters that are, or are not, at the same place in another text."""
    changed = [at >= len(other) or other[at] != sign for at, sign in enumerate(text)]
    pairs = groupby(zip(changed, text, strict=True), key=lambda pair: pair[0])
    return [(differs, "".join(sign for _, sign in run)) for differs, run in pairs]


def _times(size: float | None, allowed: float | None) -> str:
    """How many times what was allowed; nothing where that cannot be said."""
    if not size or not allowed or not math.isfinite(size):
        return ""
    ratio = size / allowed
    return f"{ratio:,.0f}" if 10 <= ratio < 1e6 else f"{ratio:.2g}".replace("e+", "e")


def _digest(script: str) -> str:
    """For the page's policy: this script may run, and none that a target might smuggle in."""
    return b64encode(hashlib.sha256(script.encode()).digest()).decode()

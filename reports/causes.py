"""Distinct failures: one bug shows in several clauses and precisions, and is told once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..harness.results import Case, Finding
from ..harness.trial import Verdict


def by_cause(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings of one target that show the same divergence by the same smallest program are one cause."""
    causes: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        causes.setdefault((finding.target, finding.divergence, finding.program), []).append(finding)
    return list(causes.values())


FEW = 3
"""Cases with one reason that still have a line each."""


def unjudged_together(cases: Iterable[Case]) -> list[list[Case]]:
    """Cases as they are told, a line for each list: those of one target and dtype that could not be judged, all for the same
    reason, share one where they are more than a few. Each case is in one of them."""
    lines: dict[object, list[Case]] = {}
    for number, case in enumerate(cases):
        alike = case.verdict in (Verdict.ERRORED, Verdict.INCONCLUSIVE)
        lines.setdefault((case.target, case.dtype, case.verdict, case.reason) if alike else number, []).append(case)
    return [part for some in lines.values() for part in ([some] if len(some) > FEW else [[case] for case in some])]


def clauses_of(cases: Sequence[Case]) -> str:
    """The clause of a line, or how many there are."""
    return cases[0].clause if len(cases) == 1 else f"{len(cases)} clauses"

"""Distinct failures: one bug shows in several clauses and precisions, and is told once."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.results import Finding


def by_cause(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Findings of one target that show the same divergence by the same smallest program are one cause."""
    causes: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        causes.setdefault((finding.target, finding.divergence, finding.program), []).append(finding)
    return list(causes.values())

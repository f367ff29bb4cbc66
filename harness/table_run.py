"""The failure table over targets: loads them, shares an oracle a model, and says what is not as it should be."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Sequence

from . import registry
from .errors import KvconformError, TargetError
from .fault import Fault
from .judging import Profile
from .oracle import Oracle
from .results import Case
from .run import Run, header
from .table import TableRow, table_rows
from .target import Listed, Sample
from .trial import Subject


def listed(patterns: Sequence[str]) -> list[Listed]:
    """Targets that can be named in advance and match a shell pattern, in their order."""
    known = [one for scheme in registry.schemes().values() for one in scheme.listing()]
    found: list[Listed] = []
    for pattern in patterns:
        matching = [one for one in known if fnmatch.fnmatchcase(one.target, pattern)]
        if not matching:
            raise TargetError(f"no built-in target matches {pattern!r}; `kvconform list targets` shows them all")
        found += [one for one in matching if one not in found]
    return found


def run_table(chosen: Sequence[Listed], profile: Profile, began: Callable[[str], None] | None = None) -> Run:
    """The table of these targets, in the implementations' own precision."""
    from dataclasses import replace

    started = time.monotonic()
    oracles: dict[str, Oracle] = {}
    subjects: list[tuple[str, Fault, Subject, Sample]] = []
    for one in chosen:
        resolved = registry.resolve(one.target)
        if resolved.fault is None or resolved.sample is None:
            raise KvconformError(f"{one.target} brings no sample text, which the table is made with")
        if resolved.model not in oracles:
            oracles[resolved.model] = Oracle(resolved.reference, resolved.implementation.dtype)
        subject = Subject(resolved.implementation, oracles[resolved.model])
        subjects.append((one.target, resolved.fault, subject, resolved.sample))
    quick = replace(profile, shrink=False, stop_at_failure=True)
    rows: list[TableRow] = []
    cases: list[Case] = []
    for row, asked in table_rows(subjects, registry.clauses(), quick, began):
        rows.append(row)
        cases += asked
    return Run(
        header("table", [one.target for one in chosen], profile.name, profile.seed),
        cases=tuple(cases),
        rows=tuple(rows),
        problems=tuple(problem(row) for row in rows if not row.as_expected),
        seconds=time.monotonic() - started,
    )


def problem(row: TableRow) -> str:
    """Why a row is not as expected."""
    if row.kind == "fault":
        return f"{row.target} is a fault, and it was not caught: {row.verdict}"
    return f"{row.target} is right, and it {row.verdict}" + (f" ({row.clause})" if row.clause else "")

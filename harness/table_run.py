"""The failure table over targets: loads them, shares an oracle a model, and says what is not as it should be."""

from __future__ import annotations

import fnmatch
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

from . import registry
from .diagnosis.diagnose import Diagnoser
from .errors import KvconformError, TargetError
from .judging import Profile
from .oracle import Oracle
from .results import Case
from .run import Run, header
from .sources import reference_of
from .table import TableRow, table_row
from .target import Listed, Resolved
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


PROGRAMS = 3
"""A clause's own programs that a row's verdict rests on; `check` asks them all."""
CONFIRMING = 6
"""Programs by which a row's diagnosis is confirmed; `check` asks more."""
PROCESSES = 2
"""Rows are made in so many processes."""


def run_table(chosen: Sequence[Listed], profile: Profile, began: Callable[[str], None] | None = None) -> Run:
    """The table of these targets, in the implementations' own precision."""
    started = time.monotonic()
    quick = replace(profile, shrink=False, stop_at_failure=True, fixed=PROGRAMS)
    rows: list[TableRow] = []
    cases: list[Case] = []
    for row, asked in _made([one.target for one in chosen], quick, began):
        rows.append(row)
        cases += asked
    return Run(
        header("table", [one.target for one in chosen], profile.name, profile.seed),
        cases=tuple(cases),
        rows=tuple(rows),
        problems=tuple(problem(row) for row in rows if not row.as_expected),
        seconds=time.monotonic() - started,
    )


Made = tuple[TableRow, list[Case]]


def _made(targets: list[str], profile: Profile, began: Callable[[str], None] | None) -> Iterator[Made]:
    """Rows in the order of the targets, made side by side where processes can be forked and it is worth it."""
    if len(targets) < 8 or "fork" not in multiprocessing.get_all_start_methods():
        for target in targets:
            if began:
                began(target)
            yield _row_of(target, profile)
        return
    # Forked, so that torch is imported once; nothing has been computed yet that a fork could break.
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("fork"), _one_thread) as pool:
        for target, made in zip(targets, pool.map(partial(_row_of, profile=profile), targets), strict=True):
            if began:
                began(target)
            yield made


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


_oracles: dict[str, Oracle] = {}
"""By model, one a process: rows of one model share what the reference gave."""


def _row_of(target: str, profile: Profile) -> Made:
    resolved = registry.resolve(target)
    if resolved.fault is None or resolved.sample is None:
        raise KvconformError(f"{target} brings no sample text, which the table is made with")
    model = resolved.model if resolved.model and resolved.fault.spoil is None else target
    if model not in _oracles:
        _oracles[model] = Oracle(reference_of(resolved), resolved.implementation.dtype)
    subject = Subject(resolved.implementation, _oracles[model])
    diagnoser = Diagnoser(resolved, _widest(resolved, model), asked=CONFIRMING, quick=True)
    return table_row(target, resolved.fault, subject, resolved.sample, registry.clauses(), profile, diagnoser)


def _widest(resolved: Resolved, model: str) -> Subject:
    """The implementation in float64 where it can be, in which one bug is not taken for another."""
    import torch

    if "to" not in resolved.implementation.capabilities:
        return Subject(resolved.implementation, _oracles[model])
    wide = f"{model} in float64"
    if wide not in _oracles:
        _oracles[wide] = Oracle(reference_of(resolved), torch.float64)
    return Subject(resolved.implementation.to(torch.float64), _oracles[wide])


def problem(row: TableRow) -> str:
    """Why a row is not as expected."""
    if row.kind == "fault":
        return f"{row.target} is a fault, and it was not caught: {row.verdict}"
    return f"{row.target} is right, and it {row.verdict}" + (f" ({row.clause})" if row.clause else "")

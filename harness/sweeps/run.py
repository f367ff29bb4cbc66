"""A whole sweep: what is left of it is judged, failures are grouped, and one of each group is shrunk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from .. import registry
from ..apart import process
from ..clause import Clause
from ..judging import Profile
from ..results import Finding
from ..run import Run, header
from .bench import Asked
from .grouping import Group, grouped, merged
from .sweep import Limits, Swept, shrunk, sweep

SHRINKING = 20.0
"""Seconds that shrinking one group's example may take."""


class Journal(Protocol):
    """Where what is finished is kept as it goes, and what was kept before."""

    @property
    def finished(self) -> Mapping[str, Swept]: ...

    @property
    def shrunk(self) -> Mapping[str, Finding]: ...

    def keep(self, swept: Swept) -> None: ...

    def keep_shrunk(self, of: str, finding: Finding) -> None: ...


@dataclass(frozen=True)
class Plan:
    """What a sweep asks, and how."""

    cells: Sequence[Asked]
    clauses: Sequence[Clause]
    profile: Profile
    programs: int
    limits: Limits
    processes: int
    shrinking: float = SHRINKING


@dataclass
class Progress:
    """What is told as it goes: a cell that is finished, how many groups are to be shrunk, and one that is."""

    cell: Callable[[Swept], None] = lambda swept: None
    groups: Callable[[int], None] = lambda count: None
    group: Callable[[], None] = lambda: None


def run_sweep(command: str, plan: Plan, journal: Journal, progress: Progress) -> Run:
    """Judge every cell that the journal does not hold. What the budget leaves unasked is a problem of the run."""
    started = time.monotonic()
    schemes = {asked.target.partition(":")[0] for asked in plan.cells}
    process.preload(module for name, scheme in registry.schemes().items() if name in schemes for module in scheme.preload)
    finished = {asked.key: journal.finished[asked.key] for asked in plan.cells if asked.key in journal.finished}
    left = [asked for asked in plan.cells if asked.key not in finished]
    for swept in sweep(left, plan.clauses, plan.profile, plan.programs, plan.limits, plan.processes):
        journal.keep(swept)
        finished[swept.key] = swept
        progress.cell(swept)
    inside = [finished[asked.key] for asked in plan.cells if asked.key in finished]
    cells, cases = [swept.cell for swept in inside], [case for swept in inside for case in swept.cases]
    groups = _with_smallest(grouped(cells, cases), plan, journal, progress)
    unasked = len(plan.cells) - len(inside)
    problems = [f"{unasked} of {len(plan.cells)} cells were not asked, for the budget was over; run it again to go on"]
    return Run(
        header(command, [asked.target for asked in plan.cells], plan.profile.name, plan.profile.seed),
        cases=tuple(cases),
        cells=tuple(cells),
        groups=tuple(groups),
        problems=tuple(problems) if unasked else (),
        seconds=time.monotonic() - started,
    )


def _with_smallest(groups: list[Group], plan: Plan, journal: Journal, progress: Progress) -> list[Group]:
    """Groups with their examples shrunk, those that turn out to be one merged."""
    asked = {cell.key: cell for cell in plan.cells}
    smaller = {group.id: journal.shrunk[group.id] for group in groups if group.id in journal.shrunk}
    left = [group for group in groups if group.id not in smaller]
    progress.groups(len(left))
    given = [(group.id, asked[f"{group.finding.target} {group.finding.dtype}"], group.finding) for group in left]
    for of, finding in shrunk(given, plan.profile, plan.shrinking, plan.limits, plan.processes):
        journal.keep_shrunk(of, finding)
        smaller[of] = finding
        progress.group()
    return merged(replace(group, finding=smaller.get(group.id, group.finding)) for group in groups)

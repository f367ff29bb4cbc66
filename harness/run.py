"""A run's head and foot: what it was made with, and what it counted."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from .mutation import Mutant
from .results import Case, Cell, tally
from .sweeps.grouping import Group
from .table import TableRow

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Header:
    """How a run was made, so that it can be made again."""

    command: str
    targets: tuple[str, ...]
    profile: str
    seed: int
    schema: int = SCHEMA_VERSION
    reference: str = ""
    """In words, what was judged by, where that is not what a target brings."""
    versions: dict[str, str] = field(default_factory=lambda: versions())


@dataclass(frozen=True)
class Run:
    """Everything that one command found: the source of every report."""

    header: Header
    cases: tuple[Case, ...] = ()
    rows: tuple[TableRow, ...] = ()
    mutants: tuple[Mutant, ...] = ()
    cells: tuple[Cell, ...] = ()
    groups: tuple[Group, ...] = ()
    problems: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Verdicts of the cases; they add up to what ran."""
        return {str(verdict): count for verdict, count in tally(self.cases).items()}


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    found = {"python": platform.python_version(), "platform": f"{platform.system()} {platform.machine()}"}
    for package in ("kvconform", "torch", "transformers", "hypothesis", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def header(command: str, targets: Sequence[str], profile: str, seed: int, reference: str = "") -> Header:
    return Header(command, tuple(targets), profile, seed, reference=reference)

"""Progress on a terminal, silence in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..harness.sweeps.run import Progress
    from ..harness.sweeps.sweep import Swept

EVERY = 60.0
"""Seconds between two lines about a sweep where there is no terminal to draw on."""


@contextmanager
def progress(title: str, total: int | None = None) -> Generator[Callable[[str], None]]:
    """A function to call with what is about to be done. It draws to standard error, and only where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda doing: None
        return
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[doing]}", markup=False), console=console, transient=True) as bar:
        task = bar.add_task(title, total=total, doing="")
        begun = 0

        def began(doing: str) -> None:
            nonlocal begun
            bar.update(task, completed=begun, doing=doing)
            begun += 1

        yield began


@contextmanager
def sweep_progress(cells: int, done: int) -> Generator[Progress]:
    """What a sweep tells as it goes: a bar with an estimate of the time left on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    from ..harness.sweeps.run import Progress

    told = _Told(cells - done)
    console = Console(stderr=True)
    if not console.is_terminal:

        def cell(swept: Swept) -> None:
            told.count(swept)
            if told.due:
                print(f"sweep: {done + told.finished} of {cells} cells, {told}", file=sys.stderr, flush=True)

        yield Progress(cell)
        return
    columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, TextColumn("{task.fields[doing]}", markup=False), console=console, transient=True) as bar:
        task = bar.add_task("sweep", total=cells, completed=done, doing="")
        groups = bar.add_task("shrinking", total=None, doing="", visible=False)

        def cell(swept: Swept) -> None:
            told.count(swept)
            bar.update(task, advance=1, doing=str(told))

        def to_shrink(count: int) -> None:
            bar.update(groups, total=count, visible=count > 0)

        yield Progress(cell, to_shrink, lambda: bar.update(groups, advance=1))


class _Told:
    """Counts finished cells and those that failed, and guesses how long the rest takes from how long these took."""

    def __init__(self, cells: int) -> None:
        self.cells, self.finished, self.failed = cells, 0, 0
        self.began = self.last = time.monotonic()

    def count(self, swept: Swept) -> None:
        self.finished += 1
        self.failed += any(case.verdict in ("failed", "errored") for case in swept.cases)

    @property
    def due(self) -> bool:
        """Is it time for another line?"""
        if time.monotonic() - self.last < EVERY:
            return False
        self.last = time.monotonic()
        return True

    def __str__(self) -> str:
        passed = time.monotonic() - self.began
        left = passed / max(self.finished, 1) * (self.cells - self.finished)
        return f"{self.failed} not as they should be, about {duration(left)} left"


def duration(seconds: float) -> str:
    """A time for people."""
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"

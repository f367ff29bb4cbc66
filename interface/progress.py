"""Progress on a terminal, silence in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager


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

"""What a command leaves: text or the result file on standard output, and report files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..harness.run import Run


def show(run: Run, text: str, as_json: bool, out: Path | None) -> None:
    """Text or the result file on standard output; report files, and where they are on standard error."""
    from ..reports import result_file

    paths: Sequence[Path] = ()
    if out:
        from ..reports.folder import write_reports
        from .api import sentences

        paths = write_reports(run, out, sentences())
    if as_json:
        result_file.write(run, sys.stdout)
    else:
        typer.echo(text)
    if paths:
        typer.echo(f"reports: {', '.join(map(str, paths))}", err=True)

"""What a command leaves: text or the result file on standard output, report files, and the CI's summary."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..harness.run import Run


def show(run: Run, text: str, as_json: bool, out: Path | None, junit: Path | None = None) -> None:
    """Text or the result file on standard output; report files, and where they are on standard error.

    The run's head says the whole command, as it works when it is pasted.
    """
    from ..reports import result_file
    from ..reports.markdown import render_markdown
    from ..reports.summary import append_summary
    from .api import sentences

    run = replace(run, header=replace(run.header, command=shlex.join(sys.argv[1:])))
    paths = write_files(run, out, junit)
    if as_json:
        result_file.write(run, sys.stdout)
    else:
        typer.echo(text)
    if paths:
        typer.echo(f"reports: {', '.join(map(str, paths))}", err=True)
    if complaint := append_summary(render_markdown(run, sentences())):
        typer.echo(complaint, err=True)


def write_files(run: Run, out: Path | None, junit: Path | None) -> list[Path]:
    """Report files in a folder, and JUnit XML; where they are."""
    from ..reports.folder import write_junit, write_reports
    from .api import sentences

    paths = write_reports(run, out, sentences()) if out else []
    return [*paths, write_junit(run, junit)] if junit else paths

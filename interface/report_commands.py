"""`kvconform report` and `kvconform diff`: result files shown in any form, and compared. Nothing here loads torch."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from .output import write_files

if TYPE_CHECKING:
    from ..harness.run import Run


class Form(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    JUNIT = "junit"


class Lines(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"


def report(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A result file, as result.jsonl.")],
    form: Annotated[Form, typer.Option("--format", help="What is printed.")] = Form.TEXT,
    only_failures: options.OnlyFailures = False,
    out: options.Out = None,
    junit: options.Junit = None,
) -> None:
    """Show a result file as text, markdown, HTML or JUnit XML. Exit code 0, whatever the result says."""
    from ..reports import result_file
    from ..reports.folder import writable
    from .api import sentences

    run = result_file.read(result)
    if out:
        writable(out)
    text = rendered(run, form, sentences(), only_failures)
    paths = write_files(run, out, junit)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    if paths:
        typer.echo(f"reports: {', '.join(map(str, paths))}", err=True)


def rendered(run: Run, form: Form, sentences: dict[str, str], only_failures: bool = False) -> str:
    """A run in one form."""
    match form:
        case Form.MARKDOWN:
            from ..reports.markdown import render_markdown

            return render_markdown(run, sentences)
        case Form.HTML:
            from ..reports.html import render_html

            return render_html(run, sentences)
        case Form.JUNIT:
            from ..reports.junit import render_junit

            return render_junit(run)
        case Form.TEXT:
            from ..reports.as_text import as_text

            return as_text(run, sentences, only_failures)


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The result file of an earlier run.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The result file of a later run.")],
    form: Annotated[Lines, typer.Option("--format", help="What is printed.")] = Lines.TEXT,
) -> None:
    """Compare two result files: new, fixed, still failing, changed in size, gone. Exit code 1: something is newly wrong."""
    from ..reports import result_file
    from ..reports.difference import changes, regressed, render_changes
    from ..reports.summary import append_summary
    from ..reports.text import code, visible

    before, after = result_file.read(old), result_file.read(new)
    markdown = render_changes(before, after, code, "- ")
    typer.echo(markdown if form is Lines.MARKDOWN else render_changes(before, after, visible))
    append_summary("## kvconform diff\n\n" + markdown)
    raise typer.Exit(int(regressed(changes(before, after))))

"""A run's report files in one folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile

from ..harness.errors import ResultError
from ..harness.run import Run
from . import result_file
from .html import render_html
from .junit import render_junit
from .markdown import render_markdown


def writable(folder: Path) -> None:
    """Make a folder for reports. Raises `ResultError` where it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise ResultError(f"cannot write report files to {folder}: {error.strerror}; give another --out") from None


def write_junit(run: Run, path: Path) -> Path:
    """Write JUnit XML; its folder is made. Raises `ResultError` where it cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_junit(run), encoding="utf-8")
    except OSError as error:
        raise ResultError(f"cannot write JUnit XML to {path}: {error.strerror}; give another --junit") from None
    return path


def write_reports(run: Run, folder: Path, sentences: Mapping[str, str]) -> list[Path]:
    """Write result.jsonl, report.md and report.html; the folder is made. Raises `ResultError` where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / name for name in ("result.jsonl", "report.md", "report.html")]
        with paths[0].open("w", encoding="utf-8") as stream:
            result_file.write(run, stream)
        paths[1].write_text(render_markdown(run, sentences), encoding="utf-8")
        paths[2].write_text(render_html(run, sentences), encoding="utf-8")
    except OSError as error:
        raise ResultError(f"cannot write report files to {folder}: {error.strerror}; give another --out") from None
    return paths

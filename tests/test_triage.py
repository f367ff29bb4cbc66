"""The triage page: every command runs and shows its symptom, and each row leads to the clause and the fault it names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from kvconform.harness import registry
from kvconform.harness.fault import Kind
from kvconform.interface.cli import app
from kvconform.reports.catalogue import render_faults

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "triage.md").read_text(encoding="utf-8")
COMMAND = re.compile(r"`(kvconform (?:replay|check|explain) [^`]*[:\"][^`]*)`")
ROWS = [line for line in PAGE.splitlines() if COMMAND.search(line)]


def commands(text: str) -> list[str]:
    """The commands of a text, as they are pasted: within a table a bar is escaped."""
    return [found.replace(r"\|", "|") for found in COMMAND.findall(text)]


def faults_of(row: str) -> list[str]:
    return re.findall(r"\]\((?:gallery|faults)\.md#(\w+)\)", row)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: shlex.split(commands(row)[0])[2][:40])
def test_a_row_shows_its_symptom(row: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (command,) = commands(row)
    words, faults = shlex.split(command)[1:], registry.faults()
    try:
        code = app(words, standalone_mode=False)
    except SystemExit as ended:
        code = ended.code
    broken = words[0] != "explain" and faults[words[1].partition("/")[2]].kind is Kind.FAULT
    assert (code or 0) == int(broken), command
    assert faults_of(row) or not broken, "a row names the fault that shows it"
    if broken:
        assert words[1].partition("/")[2] in faults_of(row)


def test_rows_lead_to_clauses_and_faults_that_are_there() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| what you see")]
    assert rows == ROWS, "every row has its command"
    contract, gallery, faults = (
        (DOCS / "contract.md").read_text("utf-8"),
        (DOCS / "gallery.md").read_text("utf-8"),
        render_faults(),
    )
    for row in rows:
        ((clause, anchor),) = re.findall(r"\[([\w.]+)\]\(contract\.md#(\w+)\)", row)
        assert f"\n### {clause}\n" in contract
        assert anchor == clause.replace(".", "")
        for page, text in (("gallery", gallery), ("faults", faults)):
            for name in re.findall(rf"\]\({page}\.md#(\w+)\)", row):
                assert re.search(rf"^###? {name}$", text, re.MULTILINE), name
                assert registry.faults()[name].clause == clause

"""The markdown report: tables are tables, and nothing from a target becomes markup."""

from __future__ import annotations

import re

import pytest
from kvconform.harness.judging import Profile
from kvconform.harness.table_run import listed, run_table
from kvconform.interface.api import check, sentences
from kvconform.reports.markdown import code, inline, render_markdown


def columns(line: str) -> int:
    """Cells of a table's line: bars that are not escaped, less one."""
    return len(re.findall(r"(?<!\\)\|", line)) - 1


@pytest.fixture(scope="module")
def pages() -> list[str]:
    table = run_table(listed(["builtin:gpt/no_mask", "builtin:gpt/concat"]), Profile("few", examples=0))
    failed = check("builtin:gpt/select_keys_only", clause="branch.select", profile="quick", quiet=True)
    return [render_markdown(run, sentences()) for run in (table, failed)]


def test_every_line_of_a_table_has_as_many_cells_as_its_rule(pages: list[str]) -> None:
    for page in pages:
        tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
        assert tables
        for table in tables:
            assert len({columns(line) for line in table.splitlines()}) == 1, table


def test_the_failure_table_has_the_columns_of_the_terminal(pages: list[str]) -> None:
    for column in (
        "first bad token",
        "prefill",
        "incremental",
        "argmax flips",
        "text changed",
        "verdict",
        "diagnosis",
        "danger",
    ):
        assert column in pages[0]


def test_a_finding_says_what_was_promised_what_happened_and_how_to_see_it_again(pages: list[str]) -> None:
    assert "Promised: After rows are reordered" in pages[1]
    assert "What happened:" in pages[1]
    assert "kvconform replay builtin:gpt/select_keys_only" in pages[1]


@pytest.mark.parametrize("text", ["<b>x</b>", "`x`", "a\nb", "[x](y)", "\u202edrawkcab", "a | b", "*x*", "\x00"])
def test_text_from_a_target_stays_text(text: str) -> None:
    for shown in (inline(text), code(text)):
        assert "\n" not in shown
        assert "\u202e" not in shown
        assert "\x00" not in shown
    assert not re.search(r"(?<!\\)[<`*\[]", inline(text))

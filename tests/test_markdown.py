"""The markdown report: short, within GitHub's limit, and nothing from a target becomes markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness import registry
from kvconform.harness.results import Cell
from kvconform.harness.sweeps.grouping import Group
from kvconform.harness.trial import Verdict
from kvconform.reports.as_text import as_text
from kvconform.reports.difference import render_changes
from kvconform.reports.gallery import gallery
from kvconform.reports.headline import headline
from kvconform.reports.markdown import LARGEST, render_markdown
from kvconform.reports.table import FAILURE_COLUMNS
from kvconform.reports.text import cell, code, fenced, visible
from markdown_it import MarkdownIt
from report_runs import FAILED, FINDING, PASSED, ROW, RUNS, many_findings, run, told

SENTENCES = {"decode.incremental": "Every step gives the right logits."}
OURS = {"h1", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code", "pre", "details", "summary"}
TEXT = st.text(st.characters() | st.sampled_from("`|\\<>*_[]()~#@!&\n\r\t \x00\x1b\u202e\u2066\u200f"), max_size=40)


class Rendered(HTMLParser):
    """What a reader sees: tags, and text cell by cell."""

    def __init__(self, markdown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.code: list[str] = []
        self.text = ""
        self._inside = 0
        self.feed(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "code":
            self._inside += 1
            self.code.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag == "code"

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._inside:
            self.code[-1] += data


def hostile(text: str) -> dict[str, str]:
    """The markdown report of a check, a table and a sweep, a comparison and the gallery, with this text all over them."""
    finding = replace(FINDING, target=text, clause=text, dtype=text, detail=text, diagnosis=told(text), program=text)
    failed = replace(FAILED, target=text, clause=text, dtype=text, reason=text, findings=(finding,))
    unclear = replace(failed, verdict=Verdict.ERRORED, findings=())
    row = replace(ROW, target=text, diagnosis=text, clause=text, verdict=Verdict.PASSED)
    checked = replace(run(failed, unclear), problems=(text,))
    cell_of = Cell(text, text)
    group = Group(finding, text, (cell_of.key,), (text,), (text,))
    of_fault = replace(finding, target=f"{text}/x", curve=())
    shown = replace(failed, target=of_fault.target, findings=(of_fault,))
    fault = replace(registry.faults()["pos_zero"], name="x", override=text, reports=("keras",))
    return {
        "check": render_markdown(checked, SENTENCES),
        "table": render_markdown(run(rows=(row,)), SENTENCES),
        "sweep": render_markdown(replace(checked, cells=(cell_of,), groups=(group,)), SENTENCES),
        "diff": render_changes(run(), checked, code, "- "),
        "gallery": gallery(run(shown, rows=(replace(row, target=shown.target),)), {fault.name: fault})["gallery.md"],
    }


@given(TEXT)
@settings(max_examples=30, deadline=None)
def test_nothing_from_a_target_becomes_markup(text: str) -> None:
    for kind, page in hostile(text).items():
        page.encode()
        shown = Rendered(page)
        assert shown.tags <= OURS, kind
        assert shown.attributes <= {"style", "class", "open"}
        assert not re.search("[\x00-\x08\x0b-\x1f\u200e\u200f\u202a-\u202e\u2066-\u2069]", page)


@given(TEXT)
@settings(max_examples=200, deadline=None)
def test_a_code_span_shows_the_whole_text(text: str) -> None:
    wanted = visible(text).strip()
    for page in (f"x {code(text)} y", f"| a | b |\n|---|---|\n| {cell(text)} | y |"):
        shown = Rendered(page)
        if wanted in ("", "—"):
            continue
        (found,) = shown.code
        assert found.strip().replace("│", "|") == wanted.replace("│", "|")
        assert shown.text.strip().endswith("y")
    (block,) = Rendered(fenced(text)).code
    assert block == visible(text, kept="\n").replace("\r", "\\u000d") + "\n"


@given(TEXT)
@settings(max_examples=60, deadline=None)
def test_nothing_from_a_target_steers_the_terminal(text: str) -> None:
    finding = replace(FINDING, target=text, clause=text, dtype=text, detail=text, diagnosis=told(text), program=text, op=text)
    failed = replace(
        FAILED, target=text, clause=text, dtype=text, reason=text, findings=(finding,), replayed=((text, "FIXED"),)
    )
    about = replace(run().header, profile=text, targets=(text,))
    for one in (
        replace(run(failed), header=about),
        replace(run(rows=(replace(ROW, target=text, diagnosis=text),), problems=(text,)), header=about),
        RUNS["hostile"],
        RUNS["hostile sweep"],
    ):
        shown = f"{as_text(one, SENTENCES)}\n{render_changes(run(), one, visible)}"
        shown.encode()
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", shown)


def test_the_verdict_comes_first_then_what_failed_then_details_folded_away() -> None:
    page = render_markdown(RUNS["check"], SENTENCES)
    lines = page.splitlines()
    assert lines[0] == "# ✗ 1 of 3 cases failed"
    assert lines[2] == "`kvconform check`: 3 cases: 1 passed, 1 failed, 1 unsupported"
    assert lines[4].startswith("|    | clause")
    assert "`decode.incremental`" in lines[6]
    assert "branch.crop" not in page  # what passed, or was not asked, is only counted
    folded = page[page.index("<details open>") :]  # the first is open: a reader sees the command at once
    for part in (
        "Every step gives the right logits.",
        FINDING.detail,
        str(FINDING.diagnosis),
        f"```\n{FINDING.reproduce}\n```",
    ):
        assert part in folded
    assert page.endswith("Seed 7, profile `quick`, 1.2 s; `kvconform 0.1.0, torch 2.15.0`\n")


def test_what_could_not_be_told_is_a_table_too() -> None:
    page = render_markdown(run(replace(PASSED, verdict=Verdict.INCONCLUSIVE, reason="too noisy")), SENTENCES)
    assert page.startswith("# ? 1 of 1 case inconclusive")
    assert "| `too noisy` |" in page


def test_the_table_shows_what_is_not_as_expected_and_folds_the_rest() -> None:
    page = render_markdown(run(rows=(ROW, replace(ROW, target="overlooked", verdict=Verdict.PASSED))), SENTENCES)
    shown, _, folded = page.partition("<details>")
    assert "1 of 2 faults caught" in shown
    assert "`overlooked`" in shown
    assert ROW.target not in shown
    assert ROW.target in folded
    for column in FAILURE_COLUMNS:
        assert column.replace("|", "\\|") in folded


@pytest.mark.parametrize("kind", RUNS)
def test_every_line_of_a_table_has_as_many_cells_as_its_rule(kind: str) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", render_markdown(RUNS[kind], SENTENCES), re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table


def test_a_comment_on_github_can_hold_it() -> None:
    page = render_markdown(many_findings(targets=40, clauses=9, each=6), SENTENCES)
    assert len(page) < LARGEST < 65_536
    assert len(page) > LARGEST * 0.9
    assert "further parts had no room here; the result file has everything." in page
    assert "The first 40 of 960." in page
    assert page.count("<details>") + page.count("<details open>") == page.count("</details>")
    longest = replace(FINDING, **dict.fromkeys(("target", "detail", "program"), "x" * 100_000), diagnosis=told("x" * 100_000))
    assert len(render_markdown(run(replace(FAILED, findings=(longest,) * 3)), SENTENCES)) < LARGEST


def test_the_headline_of_every_kind_of_run() -> None:
    assert headline(RUNS["table"]) == (Verdict.PASSED, "Every fault is caught, and everything correct passes")
    assert headline(RUNS["empty"]) == (Verdict.INCONCLUSIVE, "Nothing was judged")

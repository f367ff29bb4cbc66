"""The documentation: what it tells to run runs, it builds without a warning, and the gallery is complete."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
from kvconform.harness import registry
from kvconform.harness.fault import Kind
from kvconform.harness.known import load
from kvconform.harness.program import Program
from kvconform.interface.cli import app
from kvconform.reports.catalogue import render_faults
from kvconform.reports.gallery import gallery
from report_runs import FAILED, FINDING, ROW, run

DOCS = Path(__file__).parent.parent / "docs"
README = DOCS.parent / "README.md"
MARKED = re.compile(r"<!-- (runs|file)(?:: ([^ ]+))? -->\n```(\w+)\n(.*?)```", re.DOTALL)
"""A block behind `<!-- runs -->` is run, and ends with exit code 0; behind `<!-- runs: 1 -->`, with 1. A block behind
`<!-- file: engine.py -->` is that file. The blocks of a page run in its order, in one folder."""
PAGES = [page for page in (README, *sorted(DOCS.glob("*.md"))) if "<!-- runs" in page.read_text(encoding="utf-8")]


def blocks(page: Path) -> Iterator[tuple[str, str, str, str]]:
    for found in MARKED.finditer(page.read_text(encoding="utf-8")):
        yield found[1], found[2] or "", found[3], found[4]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_tells_to_run_runs(page: Path, tmp_path: Path) -> None:
    marks = len(re.findall(r"^<!-- (?:runs|file)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert marks == len(list(blocks(page))), "a mark stands right before a block of code"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("KVCONFORM", "GITHUB"))}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}", "OMP_NUM_THREADS": "1"}
    for what, argument, language, text in blocks(page):
        if what == "file":
            (tmp_path / argument).write_text(text, encoding="utf-8")
            continue
        words = {"sh": ["bash", "-ec", text], "python": [sys.executable, "-c", text]}[language]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, encoding="utf-8", timeout=300)
        assert done.returncode == int(argument or 0), f"{text}\n{done.stdout}\n{done.stderr}"


def commands(text: str) -> Iterator[list[str]]:
    """The calls of kvconform in the blocks of a page, as words behind the program's name."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words: list[str] = []
            for word in (*lexer, ";"):
                if set(word) <= set(";|&<>()"):
                    if words and Path(words[0]).name == "kvconform":
                        yield words[1:]
                    words = []
                else:
                    words.append(word)


def test_every_command_that_is_told_is_one() -> None:
    """Those of pages that do not run too: the command, its options and its program are what the command line takes."""
    known: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    told = [
        (page.name, *words) for page in (README, *sorted(DOCS.rglob("*.md"))) for words in commands(page.read_text("utf-8"))
    ]
    assert len(told) > 60
    for page, name, *rest in told:
        context = known[name].make_context(name, list(rest))  # raises where an option or an argument is not as it should be
        if name == "replay":
            assert Program.parse(context.params["program"]).ops, (page, rest)


@pytest.mark.parametrize("wrong", ["chek x", "check x --no-such-option", "diff one.jsonl", "report x --format paper"])
def test_a_command_that_is_none_would_be_noticed(wrong: str) -> None:
    (words,) = commands(f"```sh\nkvconform {wrong}  # a comment\n```\n")
    with pytest.raises(Exception, match=r"."):
        vars(typer.main.get_command(app))["commands"][words[0]].make_context(words[0], words[1:])


def test_the_list_of_known_deviations_that_is_told_is_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", (DOCS / "sweep.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "known.toml").write_text(text, encoding="utf-8")
    assert load(tmp_path / "known.toml")


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", tmp_path / "trees", DOCS, tmp_path / "site"]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    start = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert (tmp_path / "site" / f"{page.stem}.html").is_file()
        assert page.stem == "index" or f'href="{page.stem}.html"' in start, "every page is in the navigation"
    assert "kvconform-diff" in (tmp_path / "site" / "cli.html").read_text(encoding="utf-8")


def test_the_gallery_shows_each_published_fault() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    published = [fault for fault in registry.faults().values() if fault.kind is Kind.FAULT and fault.reports]
    entries = dict(zip(re.findall(r"^## (\w+)$", page, re.MULTILINE), page.split("\n## ")[1:], strict=True))
    assert set(entries) == {fault.name for fault in published}, "run make gallery"
    for fault in published:
        assert fault.sentence in entries[fault.name]
        assert "| `builtin:" in entries[fault.name]
        drawn = re.findall(r"\]\((gallery/.*?\.svg)\)", entries[fault.name])
        assert drawn or "There is no curve: `" in entries[fault.name]
        for path in drawn:
            assert ElementTree.parse(DOCS / path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list((DOCS / "gallery").iterdir())) == page.count(".svg)")


def test_a_gallery_is_made_from_a_table() -> None:
    fault = replace(registry.faults()["pos_zero"], reports=("keras",))
    row = replace(ROW, target=FINDING.target)
    drawn = gallery(run(FAILED, rows=(row,)), {"pos_zero": fault, "other": replace(fault, name="other")})
    assert set(drawn) == {"gallery.md", "gallery/pos_zero.svg"}
    for part in ("## pos_zero", fault.sentence, "keras", FINDING.reproduce, fault.override):
        assert part in drawn["gallery.md"]
    raised = replace(FINDING, curve=(), detail="IndexError: out of range")
    bare = gallery(run(replace(FAILED, findings=(raised,)), rows=(row,)), {"pos_zero": fault})
    assert set(bare) == {"gallery.md"}
    assert "There is no curve: `IndexError: out of range`" in bare["gallery.md"]


def test_the_catalogue_names_every_fault() -> None:
    page = render_faults()
    for fault in registry.faults().values():
        assert (f"### {fault.name}\n" in page) == (fault.kind is Kind.FAULT)

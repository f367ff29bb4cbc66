"""The page of deviations that were found: each of its scripts shows what it claims, with transformers and torch alone."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kvconform.harness.known import load

FOLDER = Path(__file__).parent.parent / "docs" / "found"
SCRIPTS = sorted(FOLDER.glob("*.py"))
PAGE = FOLDER.with_suffix(".md")
RUN_ALL = """
import contextlib, io, json, runpy, sys, traceback
import torch, transformers
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
told = {}
for path in sys.argv[1:]:
    text, code = io.StringIO(), None
    with contextlib.redirect_stdout(text):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            text.write(traceback.format_exc())
    told[path] = [code, text.getvalue()]
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told() -> dict[str, list[object]]:
    """Exit code and output of each script, all run in one process: importing transformers takes longer than all of them."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, *map(str, SCRIPTS)], capture_output=True, encoding="utf-8", timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_shows_its_deviation(script: Path, told: dict[str, list[object]]) -> None:
    code, text = told[str(script)]
    assert code == 0, f"the deviation is gone, or the script broke:\n{text}"
    assert text


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_short_and_stands_alone(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 25
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "." for node in nodes if isinstance(node, ast.ImportFrom)]
    roots = {name.partition(".")[0] for name in names}
    assert roots <= {"torch", "transformers"} | sys.stdlib_module_names


def test_the_page_links_each_script_and_no_other() -> None:
    linked = set(re.findall(r"\]\(found/([\w.]+\.py)\)", PAGE.read_text(encoding="utf-8")))
    assert linked == {script.name for script in SCRIPTS}


def test_known_deviations_are_those_of_the_page() -> None:
    known = (FOLDER.parent / "known-transformers.toml").read_text(encoding="utf-8")
    load(FOLDER.parent / "known-transformers.toml")
    anchors = set(re.findall(r"^#+ (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"^# (.+)$", known, re.MULTILINE)) <= anchors

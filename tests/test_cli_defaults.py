"""Defaults of the command line from pyproject.toml."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from command_line import CONCAT, counts, kvconform, last_line, refused
from kvconform.harness import registry
from kvconform.harness.scope import Scope
from kvconform.reports import result_file

# Defaults from pyproject.toml


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(dedent(text), encoding="utf-8")
    return folder


def test_defaults_are_taken_from_the_nearest_pyproject(tmp_path: Path) -> None:
    project(
        tmp_path,
        """
        [tool.kvconform]
        target = "builtin:gpt/no_mask"
        clause = "prefill.*"
        profile = "quick"
        max-examples = 0
        seed = 11
        dtype = "float64"
        budget = "5m"
        only-failures = true
        out = "reports"
        """,
    )
    below = tmp_path / "src" / "below"
    below.mkdir(parents=True)
    done = kvconform("check", "--max-examples", "1", cwd=below)  # what is written on the command line comes first
    assert done.returncode == 1
    verdict, each, rest = counts(last_line(done))
    assert (verdict, each) == ("failed", {"failed": 2})
    assert (rest["target"], rest["seed"], rest["profile"]) == ("builtin:gpt/no_mask", "11", "quick")
    assert "float32" not in done.stdout
    cases = result_file.read(below / "reports" / "result.jsonl").cases
    fixed = [clause for clause in registry.clauses() if clause.family == "prefill"]
    scope = Scope(vocab_size=1200, max_length=64)
    assert [case.programs for case in cases] == [len(list(clause.fixed(scope))) + 1 for clause in fixed]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[tool.kvconform]\nsed = 1\n", "sed"),
        ("[tool.kvconform]\nmax_examples = 1\n", "max_examples"),
        ('[tool.kvconform]\nseed = "x"\n', "seed"),
        ("[tool.kvconform]\nmax-examples = -1\n", "max-examples"),
        ('[tool.kvconform]\nprofile = "lazy"\n', "lazy"),
        ("[tool.kvconform\n", "pyproject.toml"),
        ("[tool]\nkvconform = 5\n", "tool.kvconform"),
        ("tool = 5\n", "pyproject.toml"),
    ],
    ids=ascii,
)
def test_a_pyproject_that_is_wrong_is_told_in_one_line(text: str, named: str, tmp_path: Path) -> None:
    assert named in refused(kvconform("check", CONCAT, cwd=project(tmp_path, text)))


def test_another_tools_pyproject_is_none_of_ours(tmp_path: Path) -> None:
    project(tmp_path, '[project]\nname = "mine"\n[tool.other]\nseed = "x"\n')
    assert kvconform("list", "clauses", cwd=tmp_path).returncode == 0

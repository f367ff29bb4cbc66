"""Known deviations: what a file may say, what it excuses, and what is told of entries that are out of date."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from kvconform.harness.errors import KvconformError
from kvconform.harness.known import Known, Seen, load, stale

COMMAND = Path(sys.executable).with_name("kvconform")
ENTRY = '[[known]]\ntarget = "builtin:gpt/*"\nclause = "branch.*"\nreason = "why"\n'


def read(text: str, tmp_path: Path) -> tuple[Known, ...]:
    (tmp_path / "known.toml").write_text(text, encoding="utf-8")
    return load(tmp_path / "known.toml")


def test_a_file_of_entries(tmp_path: Path) -> None:
    more = ENTRY + 'link = "https://example.org/1"\nop = "crop"\ndtype = "float32"\n'
    one, other = read(ENTRY + more, tmp_path)
    assert one.excuses("builtin:gpt/concat", "branch.crop", "float64", "append")
    assert not one.excuses("builtin:llama/concat", "branch.crop", "float64", "append")
    assert not one.excuses("builtin:gpt/concat", "decode.incremental", "float64", "append")
    assert other.excuses("builtin:gpt/concat", "branch.crop", "float32", "crop")
    assert not other.excuses("builtin:gpt/concat", "branch.crop", "float32", "append")
    assert other.told == "why (https://example.org/1)"


def test_an_entry_with_lists_stands_for_each_of_them(tmp_path: Path) -> None:
    found = read('[[known]]\ntarget = ["x:a", "x:b"]\nclause = ["branch.*", "any.pair"]\nreason = "why"\n', tmp_path)
    pairs = [("x:a", "branch.*"), ("x:a", "any.pair"), ("x:b", "branch.*"), ("x:b", "any.pair")]
    assert [(entry.target, entry.clause) for entry in found] == pairs
    assert {entry.place for entry in found} == {f"{tmp_path / 'known.toml'} entry 1"}


@pytest.mark.parametrize(("asked", "there"), [("<", 0), (">=", 1), ("==", 1)])
def test_an_entry_for_another_version_is_left_out(asked: str, there: int, tmp_path: Path) -> None:
    assert len(read(f'{ENTRY}version = "torch{asked}{version("torch").partition("+")[0]}"\n', tmp_path)) == there


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("known = 3", "holds entries of the form"),
        ("[[knwon]]", "It also has 'knwon'"),
        ("[[known]", "is no valid TOML"),
        ('[[known]]\ntarget = "x"\nclause = "y"\n', "entry 1 has no reason"),
        (ENTRY + "reasn = 1\n", "entry 1 has 'reasn'; an entry takes target, clause, reason, link, version, op, dtype"),
        (ENTRY.replace('"why"', '""'), "entry 1: reason must be a text that is not empty"),
        (
            '[[known]]\ntarget = []\nclause = "y"\nreason = "why"\n',
            "entry 1: target must be a text that is not empty, or a list",
        ),
        ('[[known]]\ntarget = ["x", 3]\nclause = "y"\nreason = "why"\n', "entry 1: target must be a text that is not empty"),
        (ENTRY + "link = 3\n", "entry 1: link must be a text"),
        (ENTRY + 'version = "torch is new"\n', "is no requirement; write transformers<5.25"),
        (ENTRY + 'version = "nosuchpackage<3"\n', "'nosuchpackage', which is not installed"),
    ],
)
def test_a_file_that_is_wrong_is_told_in_one_line(text: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(KvconformError) as told:
        read(text, tmp_path)
    assert line in str(told.value)
    assert "known.toml" in str(told.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KvconformError, match="cannot read the known deviations"):
        load(tmp_path / "nosuch.toml")


CROP = Known("x:a", "branch.*", "why", op="append", place="k")


@pytest.mark.parametrize(
    ("entry", "seen", "line"),
    [
        (CROP, [Seen("x:a", "branch.crop", "float64", "known", ("append",))], []),
        (CROP, [Seen("x:a", "branch.crop", "float64", "failed", ("append", "crop"))], []),
        (CROP, [Seen("x:a", "branch.crop", "float64", "passed")], ["k: x:a branch.* no longer fails: take it out"]),
        (CROP, [Seen("x:a", "branch.crop", "float64", "failed", ("crop",))], ["k: x:a branch.* no longer fails: take it out"]),
        (CROP, [Seen("x:a", "branch.crop", "float64", "errored")], []),
        (CROP, [Seen("x:a", "branch.crop", "float64", "unsupported")], ["k: x:a branch.* matches only what is unsupported"]),
        (CROP, [Seen("x:a", "decode.incremental", "float64", "passed")], ["k: x:a branch.* matches nothing that was asked"]),
        (CROP, [Seen("x:b", "branch.crop", "float64", "passed")], ["k: x:a branch.* matches nothing that was asked"]),
    ],
)
def test_what_is_told_of_an_entry(entry: Known, seen: list[Seen], line: list[str]) -> None:
    assert stale([entry], seen) == line


def test_an_entry_for_other_targets_that_exist_is_left_alone() -> None:
    assert stale([CROP], [Seen("x:b", "branch.crop", "float64", "passed")], elsewhere=["x:a", "x:b"]) == []
    other = replace(CROP, target="x:a[?]*cache=static*")
    assert stale([other], [Seen("x:b?cache=static", "branch.crop", "float64", "passed")], elsewhere=["x:a", "x:b"]) == []
    assert stale([other], [Seen("x:a?cache=dynamic", "branch.crop", "float64", "passed")], elsewhere=["x:a", "x:b"]) == []
    gone = stale([other], [Seen("x:b?cache=static", "branch.crop", "float64", "passed")], elsewhere=["x:b"])
    assert gone == ["k: x:a[?]*cache=static* branch.* matches nothing that was asked"]


# The command line and the plugin

KNOWN = """
[[known]]
target = "builtin:gpt/pos_not_cropped"
clause = "branch.crop"
reason = "the counter stays"
"""
GONE = '[[known]]\ntarget = "builtin:gpt/*"\nclause = "prefill.identity"\nreason = "it was once"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.kvconform]\nknown = "known.toml"\n', encoding="utf-8")
    (tmp_path / "known.toml").write_text(KNOWN, encoding="utf-8")
    return tmp_path


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    asked = [
        "check",
        "builtin:gpt/pos_not_cropped",
        "--clause",
        "[bp]r*.[ci][rd]*",
        "--dtype",
        "float64",
        "--max-examples",
        "3",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [COMMAND, *asked, *words], cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=300
    )


def test_a_check_with_a_known_deviation_passes_and_says_so(folder: Path) -> None:
    done = check(folder, "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    cases = {record["clause"]: record for record in records if record["type"] == "case"}
    assert done.returncode == 0, done.stdout + done.stderr
    assert cases["prefill.identity"]["verdict"] == "passed"
    assert (cases["branch.crop"]["verdict"], cases["branch.crop"]["reason"]) == ("known", "the counter stays")
    assert records[-1]["counts"] == {
        "passed": 1, "failed": 0, "errored": 0, "unsupported": 0, "inconclusive": 0, "known": 1,
    }  # fmt: skip
    (found,) = cases["branch.crop"]["findings"]
    assert (found["known"], found["program"]) == ("the counter stays", found["found_in"])
    assert not (folder / ".kvconform").exists()


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--strict",), 1)])
def test_an_entry_that_no_longer_fails_is_told(folder: Path, words: tuple[str, ...], code: int) -> None:
    (folder / "known.toml").write_text(KNOWN + GONE, encoding="utf-8")
    done = check(folder, *words)
    assert "entry 2: builtin:gpt/* prefill.identity no longer fails: take it out" in done.stdout
    assert done.returncode == code, done.stdout + done.stderr


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--kvconform-strict",), 1)])
def test_the_plugin_counts_it_as_xfailed(pytester: pytest.Pytester, words: tuple[str, ...], code: int) -> None:
    pytester.makefile(".toml", known=KNOWN + GONE)
    asked = ["--kvconform-target", "builtin:gpt/pos_not_cropped", "--kvconform-clause", "[bp]r*.[ci][rd]*"]
    done = pytester.runpytest_subprocess(*asked, "--kvconform-max-examples=3", "--kvconform-known", "known.toml", *words)
    done.assert_outcomes(passed=1, xfailed=1)
    done.stdout.fnmatch_lines(["*known deviation *entry 2: builtin:gpt/[*] prefill.identity no longer fails: take it out"])
    assert done.ret == code

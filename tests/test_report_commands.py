"""`kvconform report` and `kvconform diff`, JUnit files and the CI's summary, as their users meet them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from kvconform.reports import result_file
from kvconform.reports.html import render_html
from kvconform.reports.junit import render_junit
from kvconform.reports.markdown import render_markdown
from kvconform.reports.summary import VARIABLE, append_summary
from report_runs import FAILED, FINDING, PASSED, RUNS, run

BIN = Path(sys.executable).parent
README = Path(__file__).parent.parent / "README.md"
DOC = README.parent / "docs" / "ci.md"
Done = subprocess.CompletedProcess[str]


def shell(command: str, cwd: Path, **extra: str) -> Done:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KVCONFORM", "GITHUB"))}
    env = {**kept, "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}", "OMP_NUM_THREADS": "1", **extra}
    return subprocess.run(["bash", "-ec", command], cwd=cwd, env=env, capture_output=True, encoding="utf-8", timeout=300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a result file of every kind, and one that was cut off."""
    for name, one in RUNS.items():
        with (tmp_path / f"{name}.jsonl").open("w", encoding="utf-8") as stream:
            result_file.write(one, stream)
    whole = (tmp_path / "check.jsonl").read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(whole[: len(whole) // 2])
    with (tmp_path / "passed.jsonl").open("w", encoding="utf-8") as stream:
        result_file.write(run(replace(PASSED, target=FAILED.target), PASSED), stream)
    return tmp_path


def test_a_result_file_is_shown_in_every_form(folder: Path) -> None:
    from kvconform.interface.api import sentences

    read = result_file.read(folder / "check.jsonl")
    wanted = {
        "markdown": render_markdown(read, sentences()),
        "html": render_html(read, sentences()),
        "junit": render_junit(read),
    }
    for form, text in wanted.items():
        done = shell(f"kvconform report check.jsonl --format {form}", folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == text if text.endswith("\n") else text + "\n"
    shown = shell("kvconform report check.jsonl --only-failures", folder).stdout
    assert "FAILED decode.incremental (float32)" in shown
    assert FINDING.reproduce in shown
    assert "branch.crop" not in shown


@pytest.mark.parametrize("kind", ["table", "mutate", "hostile", "empty"])
def test_every_kind_of_run_is_shown_in_the_terminal(kind: str, folder: Path) -> None:
    done = shell(f"kvconform report {kind}.jsonl", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "seed" in done.stdout.splitlines()[-1]


def test_report_files_are_made_from_a_result_file(folder: Path) -> None:
    done = shell("kvconform report check.jsonl --out again --junit deep/down/junit.xml", folder)
    assert done.returncode == 0
    assert done.stderr == "reports: again/result.jsonl, again/report.md, again/report.html, deep/down/junit.xml\n"
    assert (folder / "again" / "result.jsonl").read_bytes() == (folder / "check.jsonl").read_bytes()
    assert ElementTree.parse(folder / "deep" / "down" / "junit.xml").getroot().attrib["failures"] == "1"


def test_rendering_and_comparing_load_no_torch(folder: Path) -> None:
    script = (
        "import sys, kvconform.interface.cli as cli\n"
        "for words in (['report', 'check.jsonl', '--out', 'x'], ['diff', 'check.jsonl', 'check.jsonl']):\n"
        "    sys.argv = ['kvconform', *words]\n"
        "    try:\n        cli.main()\n    except SystemExit:\n        pass\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "last"),
    [
        ("check.jsonl check.jsonl", 0, "no regression: 0 new, 0 changed in size, 1 still failing, 0 fixed, 0 gone"),
        ("passed.jsonl check.jsonl", 1, "regressed: 1 new, 0 changed in size, 0 still failing, 0 fixed, 0 gone"),
        ("check.jsonl passed.jsonl", 0, "no regression: 0 new, 0 changed in size, 0 still failing, 1 fixed, 0 gone"),
        ("check.jsonl mutate.jsonl", 0, "no regression: 0 new, 0 changed in size, 0 still failing, 0 fixed, 2 gone"),
        ("mutate.jsonl check.jsonl", 1, "regressed: 1 new, 0 changed in size, 0 still failing, 0 fixed, 1 gone"),
    ],
)
def test_the_exit_code_of_a_comparison(words: str, code: int, last: str, folder: Path) -> None:
    done = shell(f"kvconform diff {words}", folder)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.splitlines()[-1] == last


def test_a_comparison_in_markdown_stands_in_the_summary_too(folder: Path) -> None:
    summary = folder / "summary.md"
    done = shell("kvconform diff passed.jsonl check.jsonl --format markdown", folder, GITHUB_STEP_SUMMARY=str(summary))
    assert "New:\n\n- `builtin:gpt/pos_zero decode.incremental (float32)`: `max |Δlogit| 1.62" in done.stdout
    assert summary.read_text(encoding="utf-8") == f"## kvconform diff\n\n{done.stdout}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("report cut.jsonl", "cut.jsonl"),
        ("report nothing.jsonl", "nothing.jsonl"),
        ("diff cut.jsonl check.jsonl", "cut.jsonl"),
        ("diff check.jsonl cut.jsonl", "cut.jsonl"),
        ("diff other.jsonl check.jsonl", "other.jsonl has schema 99"),
        ("report check.jsonl --format paper", "paper"),
        ("report check.jsonl --junit check.jsonl/junit.xml", "cannot write"),
        ("diff check.jsonl", "NEW"),
    ],
)
def test_what_cannot_be_shown_or_compared_is_told_in_one_line(words: str, said: str, folder: Path) -> None:
    text = (folder / "check.jsonl").read_text(encoding="utf-8").replace('"schema": 1', '"schema": 99')
    (folder / "other.jsonl").write_text(text, encoding="utf-8")
    done = shell(f"kvconform {words}", folder)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert said in line
    assert "defect" not in line


def workflow_commands() -> list[str]:
    """The commands of the workflow that the page tells to paste, but for the installation of what is installed."""
    (text,) = [
        block for block in re.findall(r"```yaml\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL) if "jobs:" in block
    ]
    workflow: Any = yaml.safe_load(text)
    (job,) = workflow["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step and step["name"] != "Install"]


def test_the_workflow_works_as_pasted(tmp_path: Path) -> None:
    """As pasted; that only one family of clauses is asked is a default of the project, which the command line takes."""
    (tmp_path / "pyproject.toml").write_text('[tool.kvconform]\nclause = "decode.*"\n', encoding="utf-8")
    commands = workflow_commands()
    assert [command.split()[0] for command in commands] == ["kvconform", "if"]
    summary = tmp_path / "summary.md"
    summary.write_text("from another step\n", encoding="utf-8")
    done = shell(commands[0], tmp_path, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"result.jsonl", "report.md", "report.html", "junit.xml"}
    suites = ElementTree.parse(tmp_path / "report" / "junit.xml").getroot().attrib
    assert (suites["failures"], suites["errors"]) == ("0", "0")
    assert suites["tests"] == "6"
    report = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert summary.read_text(encoding="utf-8") == f"from another step\n{report}\n"

    assert shell(commands[1], tmp_path).returncode == 0  # there is no accepted state yet
    (tmp_path / "kvconform-baseline.jsonl").write_bytes((tmp_path / "report" / "result.jsonl").read_bytes())
    done = shell(commands[1], tmp_path)
    assert done.stdout.startswith("no regression: 0 new")
    record = [json.loads(line) for line in (tmp_path / "report" / "result.jsonl").read_text(encoding="utf-8").splitlines()]
    assert ["kvconform", *shlex.split(record[0]["command"])] == shlex.split(commands[0])


def test_the_other_commands_of_the_page_work_too(tmp_path: Path) -> None:
    """GitLab's are GitHub's; the accepted state has nothing newly wrong beside itself; pytest passes."""
    text = DOC.read_text(encoding="utf-8")
    (gitlab,) = [found for found in map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)) if "cache" in found]
    assert gitlab["cache"]["script"][1:] == workflow_commands()[:1]
    assert {"report", "report/junit.xml"} == {
        *gitlab["cache"]["artifacts"]["paths"],
        gitlab["cache"]["artifacts"]["reports"]["junit"],
    }
    shells = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert shells[0].strip() == workflow_commands()[0]
    (tmp_path / "pyproject.toml").write_text('[tool.kvconform]\nclause = "prefill.identity"\n', encoding="utf-8")
    done = shell(shells[1], tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        "no regression: 0 new, 0 changed in size, 2 still failing, 0 fixed, 0 gone",
    )
    done = shell(shells[2], tmp_path)
    assert done.returncode == 0, done.stdout
    assert ElementTree.parse(tmp_path / "junit.xml").getroot()[0].attrib["errors"] == "0"


def test_a_bug_that_is_mended_is_fixed_and_one_that_is_made_is_new(tmp_path: Path) -> None:
    """Two real runs of the README's engine: its `crop` keeps a token too many, and then does not."""
    (text,) = re.findall(r"<!-- file: engine.py -->\n```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    right = text.partition("class Faulty")[0]
    for name, source in (("wrong", right.replace("[:, :length]", "[:, : length + 1]")), ("right", right)):
        (tmp_path / "engine.py").write_text(source, encoding="utf-8")
        shell(f"kvconform check py:engine.py:Mine --clause branch.crop --profile quick --dtype float32 --out {name}", tmp_path)
    mended = shell("kvconform diff wrong/result.jsonl right/result.jsonl", tmp_path)
    assert (mended.returncode, mended.stderr) == (0, "")
    assert re.search(r"^Fixed:\n  py:engine.py:Mine branch.crop \(float32\): max \|Δlogit\| ", mended.stdout, re.MULTILINE)
    broken = shell("kvconform diff right/result.jsonl wrong/result.jsonl", tmp_path)
    assert broken.returncode == 1
    assert broken.stdout.splitlines()[-1].startswith("regressed: 1 new, ")


def test_a_summary_that_cannot_be_written_is_complained_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert append_summary("text") == ""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert append_summary("text") == f"kvconform: cannot write the summary that {VARIABLE} names: Is a directory"

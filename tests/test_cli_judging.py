"""The commands that judge: check, replay and the table, their reports and their exit codes."""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape
from pathlib import Path

import pytest
from command_line import Done, Ran, counts, environment, kvconform, last_line
from kvconform.interface import api
from kvconform.reports import result_file
from syrupy.assertion import SnapshotAssertion

# Judging one target


SMALL = ("--profile", "quick", "--max-examples", "1")
PREFILL = ("check", "builtin:gpt/no_mask", "--clause", "prefill", "--max-examples", "0")


def test_what_holds_the_contract_exits_0(ran: Ran) -> None:
    done = ran("check", "builtin:gpt/concat", *SMALL, "--seed", "7", "--dtype", "float32", "--only-failures")
    assert (done.returncode, done.stderr) == (0, "")
    verdict, each, rest = counts(last_line(done))
    assert verdict == "passed"
    assert set(each) <= {"passed", "unsupported"}
    assert each["passed"] >= 20
    assert (rest["target"], rest["seed"], rest["profile"]) == ("builtin:gpt/concat", "7", "quick")
    assert "FAILED" not in done.stdout
    assert "prefill.identity" not in done.stdout  # no table of what passes


def test_what_breaks_the_contract_exits_1(ran: Ran) -> None:
    done = ran(*PREFILL)
    assert (done.returncode, done.stderr) == (1, "")
    verdict, each, _ = counts(last_line(done))
    assert (verdict, each) == ("failed", {"failed": 4})
    (block,) = blocks(done)
    assert block.startswith("FAILED prefill.identity (float64, float32)")
    for line in (
        r"  where:     op 0 \(append\), token 0, size \d",
        r"  program:   append a 1 2$",
        r"  breaks too: prefill.chunked$",
    ):
        assert re.search(line, block, re.MULTILINE)


def test_reports_say_the_whole_command_and_what_it_was_judged_by(tmp_path: Path) -> None:
    """It works when it is pasted, and does the same again."""
    asked = ("--clause", "prefill.id*", "--max-examples", "0", "--reference", "builtin:llama/concat", "--dtype", "float64")
    done = kvconform("check", "builtin:gpt/concat", *asked, "--out", "my report", cwd=tmp_path)
    assert done.returncode == 2  # another model: nothing is told of the cache
    folder = tmp_path / "my report"
    run = result_file.read(folder / "result.jsonl")
    assert run.header.reference == "builtin:llama/concat"
    command = f"kvconform {run.header.command}"
    for name in ("report.md", "report.html"):
        text = unescape((folder / name).read_text(encoding="utf-8"))
        assert command in text
        assert re.search(r"[Jj]udged by (`|<b><bdi>)builtin:llama/concat", text)
    before = (folder / "report.md").read_text(encoding="utf-8")
    again = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, timeout=300)
    assert again.returncode == 2
    after = (folder / "report.md").read_text(encoding="utf-8")
    assert re.sub(r"[\d.]+ s;", "", after) == re.sub(r"[\d.]+ s;", "", before)


def blocks(done: Done) -> list[str]:
    return [part for part in done.stdout.split("\n\n") if part.startswith("FAILED ")]


def plain(text: str) -> str:
    """The measured noise differs from machine to machine, and how many simulations there are from week to week; everything
    else of a float64 run does not."""
    text = re.sub(r"the next best of \d+", "the next best of …", text)
    text = re.sub(r"allowed [0-9.e-]+ \(rounding", "allowed … (rounding", text)
    return re.sub(r"size \d\S*e-1\d", "size …", text)


SHOWN = {
    "logits": PREFILL,
    "raised": ("check", "builtin:gpt/pos_plus_100", "--clause", "decode.incremental", "--max-examples", "0"),
    "accepted": ("check", "builtin:gpt/limit_wraps", "--clause", "limit.refuses", "--max-examples", "0"),
}
"""A fault for each kind of divergence that a user meets."""


@pytest.mark.parametrize("kind", SHOWN)
def test_the_failure_block(kind: str, ran: Ran, snapshot: SnapshotAssertion) -> None:
    done = ran(*SHOWN[kind])
    assert done.returncode == 1
    assert [plain(block) for block in blocks(done)] == snapshot


@pytest.mark.parametrize("kind", ["logits", "accepted"])
def test_the_command_of_a_block_fails_again_when_it_is_pasted(kind: str, ran: Ran, tmp_path: Path) -> None:
    for block in blocks(ran(*SHOWN[kind])):
        command = block.partition("  Reproduce with:\n")[2]
        again = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, encoding="utf-8", timeout=300
        )
        assert (again.returncode, again.stderr) == (1, "")
        detail = re.search(r"happened:  (.*)", block)
        assert detail
        assert last_line(again).endswith(detail[1])


def test_a_replay_step_by_step(ran: Ran, snapshot: SnapshotAssertion) -> None:
    done = ran("replay", "builtin:gpt/no_mask", "append a 1 2; fork a b; append b! 5000; append a 3")
    assert done.returncode == 1
    assert done.stdout == snapshot


@pytest.mark.parametrize(
    ("program", "code", "verdict"),
    [
        ("append a 5 9 3; append a 7", 0, "passed: max |Δlogit| "),
        ("append a 5 5000", 2, "unsupported: its vocabulary has 1200 tokens"),
    ],
)
def test_the_exit_code_of_a_replay(program: str, code: int, verdict: str, ran: Ran) -> None:
    done = ran("replay", "builtin:gpt/concat", program)
    assert (done.returncode, done.stderr) == (code, "")
    assert last_line(done).startswith(f"builtin:gpt/concat in float32: {verdict}")


def test_a_budget_ends_the_run_early(ran: Ran) -> None:
    done = ran("check", "builtin:gpt/concat", "--profile", "thorough", "--budget", "1s", "--dtype", "float64")
    verdict, _, rest = counts(last_line(done))
    assert verdict in ("passed", "inconclusive")
    assert int(rest["programs"].replace(",", "")) < 2000
    assert float(rest["seconds"]) < 30


# The result file and the report files


DECODE = ("check", "builtin:gpt/no_mask", "--clause", "decode.incremental", "--profile", "quick", "--dtype", "float64")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """A check that prints its result file and writes report files into a folder that was not there."""
    folder = tmp_path_factory.mktemp("reported")
    return kvconform(*DECODE, "--seed", "3", "--json", "--out", "deep/down", cwd=folder), folder / "deep" / "down"


def test_json_and_report_files(reported: tuple[Done, Path]) -> None:
    done, folder = reported
    assert done.returncode == 1
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["type"] for record in records] == ["header", "case", "footer"]
    assert records[-1]["counts"]["failed"] == 1

    names = ("result.jsonl", "report.md", "report.html")
    assert done.stderr == f"reports: {', '.join(f'deep/down/{name}' for name in names)}\n"
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert (folder / "result.jsonl").read_text(encoding="utf-8") == done.stdout
    assert len(result_file.read(folder / "result.jsonl").cases) == 1
    assert "builtin:gpt/no_mask" in (folder / "report.md").read_text(encoding="utf-8")
    assert (folder / "report.html").read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")


def test_the_seed_decides_which_programs_are_drawn(reported: tuple[Done, Path]) -> None:
    def drawn(seed: int) -> list[tuple[float, int]]:
        run = api.check(
            "builtin:gpt/no_mask", clause="decode.incremental", profile="quick", dtypes=["float64"], seed=seed, quiet=True
        )
        return [(case.largest, case.positions) for case in run.cases]

    run = result_file.read(reported[1] / "result.jsonl")
    assert run.header.seed == 3
    assert [(case.largest, case.positions) for case in run.cases] == drawn(3)
    assert drawn(3) != drawn(4)


# The failure table


def test_the_table_shows_only_rows_that_are_not_as_expected(tmp_path: Path) -> None:
    done = kvconform("table", "builtin:gpt/concat", "builtin:gpt/pos_z*", "--only-failures", "--seed", "5", cwd=tmp_path)
    assert done.returncode == 0
    assert "builtin:" not in done.stdout
    assert last_line(done).startswith("1 of 1 faults caught, 1 of 1 correct implementations and controls passed (seed 5, ")
    assert (tmp_path / "kvconform-report" / "report.html").is_file()
    rows = result_file.read(tmp_path / "kvconform-report" / "result.jsonl").rows
    assert [row.target for row in rows] == ["builtin:gpt/concat", "builtin:gpt/pos_zero"]

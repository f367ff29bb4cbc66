"""The sweep as its users meet it: cells side by side, one that hangs or dies, a kill in the middle, and what is told."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from kvconform.harness.errors import TargetError
from kvconform.harness.sweeps.sweep import expanded
from kvconform.interface.cli import main
from kvconform.reports import result_file
from kvconform.reports.html import render_html
from kvconform.reports.markdown import render_markdown
from syrupy.assertion import SnapshotAssertion

COMMAND = Path(sys.executable).with_name("kvconform")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("KVCONFORM", "PYTHON", "COLUMNS"))}

ODD = """
import os, signal, time
import torch
from kvconform import Implementation

class Right(Implementation):
    vocab_size, dtype = 50, torch.float64

    def __init__(self):
        self.calls = 0
        self.table = torch.linspace(-4, 4, 64 * 50, dtype=torch.float64).sin().view(64, 50)

    def new_cache(self, rows=1):
        return [torch.zeros(rows, 0, dtype=torch.int64)]

    def append(self, cache, tokens, lengths=None):
        self.calls += 1
        if cache[0].shape[1]:
            self.odd()
        cache[0] = torch.cat([cache[0], tokens], dim=1)
        return self.full(cache[0])[:, -tokens.shape[1]:]

    def full(self, tokens):
        return self.table[(tokens * 7).cumsum(-1) % 64]

    def odd(self):
        pass

class Dies(Right):
    def odd(self):
        print("the last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

class Hangs(Right):
    def odd(self):
        time.sleep(600)

class Unbuilt(Right):
    def __init__(self):
        raise OSError("no weights here")
"""

PATIENT = ("--limit", "600")
"""On a machine that is busy with other things a cell may need more than its usual time, and would be errored, not failed."""

Done = subprocess.CompletedProcess[str]


def kvconform(*words: str, cwd: Path) -> Done:
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    return subprocess.run([COMMAND, *words], cwd=cwd, env=environment, capture_output=True, encoding="utf-8", timeout=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("sweep")
    (found / "odd.py").write_text(ODD, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def done(folder: Path) -> Done:
    """One sweep over right, wrong and odd cells."""
    odd = [f"py:odd.py:{name}" for name in ("Right", "Dies", "Unbuilt")]
    faulty = ["builtin:gpt/pos_zero", "builtin:gpt/pos_per_call", "builtin:llama/pos_zero"]
    asked = ["builtin:gpt/concat", *faulty, *odd, "--clause", "prefill", "--processes", "2", *PATIENT]
    return kvconform("sweep", *asked, cwd=folder)


def test_the_summary(done: Done, snapshot: SnapshotAssertion) -> None:
    assert done.returncode == 1
    text = re.sub(r"\d+\.\d s\)", "T s)", done.stdout)
    assert re.sub(r"odd\.py:\d+", "odd.py:N", text) == snapshot


def test_a_cell_that_is_lost_costs_itself_only(done: Done, folder: Path) -> None:
    run = result_file.read(folder / "kvconform-sweep" / "result.jsonl")
    verdicts = {
        cell.target: {case.clause: str(case.verdict) for case in run.cases if case.target == cell.target} for cell in run.cells
    }
    assert verdicts["py:odd.py:Right"] == {"prefill.identity": "passed", "prefill.chunked": "passed"}
    for name in ("Dies", "Unbuilt"):
        assert set(verdicts[f"py:odd.py:{name}"].values()) == {"errored"}
    assert sum(run.counts.values()) == len(run.cases) == 2 * 7
    assert (folder / "kvconform-sweep" / "report.md").read_text(encoding="utf-8") == render_markdown(run, _sentences())
    assert (folder / "kvconform-sweep" / "report.html").read_text(encoding="utf-8") == render_html(run, _sentences())


def test_a_cell_that_hangs_is_ended(folder: Path) -> None:
    done = kvconform("sweep", "py:odd.py:Hangs", "--clause", "prefill", "--limit", "3", "--out", "hangs", cwd=folder)
    assert done.returncode == 2
    assert "errored: no answer within the time limit of 3 s" in done.stdout
    assert "errored: not asked, for the cell's time of 3 s was over at prefill.identity" in done.stdout


def test_one_of_each_group_is_shrunk_and_fails_when_pasted(done: Done, folder: Path) -> None:
    run = result_file.read(folder / "kvconform-sweep" / "result.jsonl")
    for group in run.groups:
        assert len(group.finding.program.split(";")) <= 2
        assert not re.search(r"[3-9]\d", group.finding.program)
    first = run.groups[0].finding
    words = ["replay", first.target, first.program, "--clause", first.clause, "--dtype", first.dtype]
    assert kvconform(*words, cwd=folder).returncode == 1


def _sentences() -> dict[str, str]:
    from kvconform.interface.api import sentences

    return sentences()


KILLED = [f"builtin:gpt/{name}" for name in ("concat", "pos_zero", "pos_per_call", "no_mask", "preallocated", "pos_plus_100")]


def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    words = ["sweep", *KILLED, "--clause", "prefill", "--processes", "1", "--out", "out", *PATIENT]
    path = tmp_path / "out" / "journal.jsonl"
    environment = {**ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([COMMAND, *words], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 280
        while len(_finished(path)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    before = _finished(path)
    assert 2 <= len(before) < len(KILLED)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"type": "case", "target": "builtin:gpt')

    done = kvconform(*words, cwd=tmp_path)
    assert f"sweep goes on: {len(before)} of {len(KILLED)} cells are finished" in done.stderr
    assert path.read_bytes().startswith(whole)
    assert Counter(_finished(path)) == Counter(KILLED)
    run = result_file.read(tmp_path / "out" / "result.jsonl")
    assert [cell.target for cell in run.cells] == KILLED
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)

    other = kvconform(*words, "--max-examples", "0", "--clause", "prefill.identity", cwd=tmp_path)
    assert "sweep begins afresh, for profile is sweep with 0 examples" in other.stderr
    assert (tmp_path / "out" / "journal.old.jsonl").read_bytes().startswith(whole)


def _finished(path: Path) -> list[str]:
    """Targets of the cells that a journal closes."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    records = [json.loads(line) for line in lines]
    return [record["target"] for record in records if record["type"] == "cell"]


Outcome = tuple[int, str, str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """The command in this process, for calls that start no worker."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["kvconform", "sweep", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return run


def test_a_budget_ends_a_sweep_between_cells(here: Callable[..., Outcome]) -> None:
    code, out, _ = here(*KILLED, "--clause", "prefill", "--budget", "0.001s")
    assert code == 2
    assert f"{len(KILLED)} of {len(KILLED)} cells were not asked, for the budget was over; run it again to go on" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["builtin:gpt/nosuch*"], "no target that can be named in advance matches 'builtin:gpt/nosuch*'"),
        (["builtin:gpt/concat", "--cache", "static"], "none of these targets takes cache; leave --cache out"),
        (["builtin:gpt/concat", "--clause", "nosuch"], "no clause matches 'nosuch'"),
        (["builtin:gpt/concat", "--known", "nosuch.toml"], "cannot read the known deviations nosuch.toml"),
    ],
    ids=lambda words: words[-1] if isinstance(words, list) else "",
)
def test_what_is_wrong_is_one_line(words: list[str], line: str, here: Callable[..., Outcome]) -> None:
    code, out, told = here(*words)
    assert (code, out) == (2, "")
    assert told.startswith("kvconform: ")
    assert line in told
    assert len(told.splitlines()) == 1


# Which cells a sweep asks


def test_a_pattern_stands_for_what_the_schemes_list_times_their_options() -> None:
    cells = expanded(["arch:llama?attn=sdpa", "builtin:gpt/pos_*"], {"cache": ["static"]}, ["float64", "float32"])
    assert [cell.key for cell in cells[:2]] == [f"arch:llama?attn=sdpa&cache=static {name}" for name in ("float64", "float32")]
    assert all(cell.target.startswith("builtin:gpt/pos_") for cell in cells[2:])
    assert len({cell.key for cell in cells}) == len(cells)


def test_cells_of_one_model_share_it_and_are_asked_once() -> None:
    cells = expanded(["arch:gpt2", "arch:gpt2", "arch:gpt*2"], {}, ["float64"])
    assert [cell.target.partition("?")[2] for cell in cells if cell.target.startswith("arch:gpt2?")] == [
        f"cache={cache}&attn={attn}" for cache in ("dynamic", "static") for attn in ("eager", "sdpa")
    ]
    assert len({cell.share for cell in cells if cell.target.startswith("arch:gpt2?")}) == 1


def test_what_has_no_name_in_advance_is_taken_as_it_is() -> None:
    (cell,) = expanded(["py:engine.py:Mine"], {}, ["float32"])
    assert cell.target == "py:engine.py:Mine"
    with pytest.raises(TargetError, match="is no target"):
        expanded(["nosuch:thing"], {}, ["float32"])

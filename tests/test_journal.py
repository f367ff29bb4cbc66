"""The journal: wherever it was torn, what was finished is there, and nothing that was not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvconform.harness.errors import ResultError
from kvconform.harness.results import Case, Cell, Finding
from kvconform.harness.sweeps.sweep import Swept
from kvconform.harness.trial import Verdict
from kvconform.reports import journal
from kvconform.reports.journal import Journal

HEAD = {"profile": "sweep", "torch": "2"}


def finding(number: int) -> Finding:
    return Finding(
        id="0" * 10, target=f"x:{number}", clause="a.b", dtype="float64", divergence="logits", op="append",
        program="append a 1", found_in="append a 1", step=0, token=0, detail="wrong\nand \u2028 long", difference=float("inf"),
        allowed=1e-9, floor=None, tolerance="", curve=((0, 1.5),), occurrences=2,
    )  # fmt: skip


def swept(number: int) -> Swept:
    cases = tuple(
        Case(f"x:{number}", clause, "float64", Verdict.FAILED, "no", findings=(finding(number),)) for clause in ("a.b", "a.c")
    )
    return Swept(Cell(f"x:{number}", "float64", {"cache": "static"}, 0.5), cases)


CELLS = [swept(number) for number in range(4)]


def written(path: Path) -> bytes:
    kept = Journal(path, HEAD)
    for one in CELLS[:3]:
        kept.keep(one)
    kept.keep_shrunk("abc", finding(7))
    kept.keep(CELLS[3])
    return path.read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("journal") / "journal.jsonl")


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    written(tmp_path / "journal.jsonl")
    again = Journal(tmp_path / "journal.jsonl", HEAD)
    assert list(again.finished.values()) == CELLS
    assert again.shrunk == {"abc": finding(7)}
    assert again.changed == ""


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_torn_anywhere_it_goes_on_without_loss(data: st.DataObject, whole: bytes, tmp_path: Path) -> None:
    cut = data.draw(st.integers(0, len(whole)))
    junk = data.draw(st.binary(max_size=20).filter(lambda some: b"\n" not in some))
    path = tmp_path / "journal.jsonl"
    path.write_bytes(whole[:cut] + junk)
    kept = Journal(path, HEAD)
    ends = [place + 1 for place in range(cut) if whole[place : place + 1] == b"\n"]
    closed = sum(b'{"type": "cell"' in line for line in whole[: max(ends, default=0)].split(b"\n"))
    assert list(kept.finished.values()) == CELLS[:closed]
    for one in CELLS[closed:]:
        kept.keep(one)
    assert list(Journal(path, HEAD).finished.values()) == CELLS


@pytest.mark.parametrize("other", [{"profile": "sweep", "torch": "3"}, {"profile": "sweep"}, {**HEAD, "known": ["x"]}])
def test_another_version_begins_afresh_and_keeps_what_was_there(other: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    before = written(path)
    begun = Journal(path, other)
    assert not begun.finished
    assert begun.changed
    assert (tmp_path / "journal.old.jsonl").read_bytes() == before
    begun.keep(CELLS[0])
    assert list(Journal(path, other).finished.values()) == CELLS[:1]


def test_fresh_forgets(tmp_path: Path) -> None:
    written(tmp_path / "journal.jsonl")
    assert not Journal(tmp_path / "journal.jsonl", HEAD, fresh=True).finished


def test_a_journal_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(ResultError, match="cannot read the journal"):
        Journal(tmp_path / "journal.jsonl", HEAD)
    with pytest.raises(ResultError, match="give another --out"):
        Journal(tmp_path / "none" / "journal.jsonl", HEAD)


def test_nothing_is_read_where_there_is_none(tmp_path: Path) -> None:
    assert journal.read(tmp_path / "journal.jsonl").finished == {}

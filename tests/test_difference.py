"""Two runs compared: what is new, what is fixed, and what nobody asks any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kvconform.harness.mutation import Outcome
from kvconform.harness.results import Case
from kvconform.harness.run import Run
from kvconform.harness.trial import Verdict
from kvconform.reports import result_file
from kvconform.reports.difference import MUCH, Kind, changes, counted_changes, made_differently, regressed
from report_runs import CAUGHT, FAILED, FINDING, PASSED, ROW, RUNS, run

FIXED = replace(PASSED, target=FAILED.target)
"""The case of `FAILED`, passed."""
OTHER = replace(FINDING, id="0123456789", divergence="raised", detail="IndexError: index out of range")
ERRORED = replace(FIXED, verdict=Verdict.ERRORED, reason="it died")


def kinds(old: Run, new: Run) -> list[str]:
    return [str(change.kind) for change in changes(old, new)]


@pytest.mark.parametrize(
    ("before", "after", "found", "worse"),
    [
        ((FIXED,), (FIXED,), [], False),
        ((FIXED,), (FAILED,), [Kind.NEW], True),
        ((FAILED,), (FIXED,), [Kind.FIXED], False),
        ((FAILED,), (FAILED,), [Kind.STILL], False),
        ((), (FAILED,), [Kind.NEW], True),
        ((), (FIXED,), [], False),
        ((FAILED,), (), [Kind.GONE], False),
        ((FIXED,), (), [Kind.GONE], False),
        ((FIXED,), (replace(FIXED, verdict=Verdict.UNSUPPORTED),), [Kind.GONE], False),
        ((FAILED,), (replace(FIXED, verdict=Verdict.UNSUPPORTED),), [Kind.GONE], False),
        ((FIXED,), (ERRORED,), [Kind.NEW], True),
        ((ERRORED,), (ERRORED,), [Kind.STILL], False),
        ((FAILED,), (ERRORED,), [Kind.NEW], True),  # nobody knows whether it is fixed
        ((ERRORED,), (FAILED,), [Kind.NEW], True),
        ((FAILED,), (replace(FAILED, findings=(FINDING, OTHER)),), [Kind.NEW, Kind.STILL], True),
        ((replace(FAILED, findings=(FINDING, OTHER)),), (FAILED,), [Kind.STILL, Kind.FIXED], False),
        ((FAILED,), (replace(FAILED, findings=(OTHER,)),), [Kind.NEW, Kind.FIXED], True),
    ],
)
def test_cases(before: tuple[Case, ...], after: tuple[Case, ...], found: list[Kind], worse: bool) -> None:
    old, new = run(*before), run(*after)
    assert kinds(old, new) == found
    assert regressed(changes(old, new)) == worse


@pytest.mark.parametrize(
    ("size", "kind"),
    [
        (FINDING.difference, Kind.STILL),
        (FINDING.difference * MUCH * 0.9, Kind.STILL),
        (FINDING.difference * MUCH, Kind.CHANGED),
        (FINDING.difference / MUCH, Kind.CHANGED),
        (float("nan"), Kind.CHANGED),
        (float("inf"), Kind.CHANGED),
        (0.0, Kind.CHANGED),
    ],
)
def test_a_deviation_that_is_much_larger_or_smaller_is_told(size: float, kind: Kind) -> None:
    (change,) = changes(run(FAILED), run(replace(FAILED, findings=(replace(FINDING, difference=size),))))
    assert change.kind is kind
    assert ("was 1.62" in change.what) == (kind is Kind.CHANGED)


def test_what_is_not_finite_is_like_itself() -> None:
    endless = replace(FAILED, findings=(replace(FINDING, difference=float("nan")),))
    assert kinds(run(endless), run(endless)) == [Kind.STILL]


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_beside_itself_has_not_regressed(kind: str) -> None:
    assert not {Kind.NEW, Kind.FIXED, Kind.GONE, Kind.CHANGED} & set(kinds(RUNS[kind], RUNS[kind]))


def test_rows_of_the_table_are_joined_by_target_and_their_faults_are_meant_to_fail() -> None:
    caught, overlooked = run(FAILED, rows=(ROW,)), run(rows=(replace(ROW, verdict=Verdict.PASSED),))
    assert kinds(caught, overlooked) == [Kind.NEW]
    assert kinds(overlooked, caught) == [Kind.FIXED]
    assert kinds(caught, run(rows=(replace(ROW, target="another"),))) == [Kind.GONE]


def test_mutants_and_problems() -> None:
    caught, survived = (run(mutants=(replace(CAUGHT, outcome=outcome),)) for outcome in (Outcome.CAUGHT, Outcome.SURVIVED))
    assert kinds(caught, survived) == [Kind.NEW]
    assert kinds(survived, caught) == [Kind.FIXED]
    assert kinds(survived, run()) == [Kind.GONE]
    assert kinds(run(), run(problems=("no fault was found",))) == [Kind.NEW]
    assert kinds(run(problems=("no fault was found",)), run()) == [Kind.FIXED]


def test_the_counts_and_how_the_runs_were_made() -> None:
    old = run(FAILED, PASSED)
    header = replace(old.header, seed=8, versions={"kvconform": "0.2.0", "numpy": "2.4"})
    assert made_differently(old, replace(old, header=header)) == [
        "seed 7 → 8",
        "kvconform 0.1.0 → 0.2.0",
        "torch 2.15.0 → none",
        "numpy none → 2.4",
    ]
    found = changes(old, run(FAILED, replace(FAILED, target="new", findings=(replace(FINDING, id="1" * 10, target="new"),))))
    assert counted_changes(found) == "regressed: 1 new, 0 changed in size, 1 still failing, 0 fixed, 1 gone"


def test_where_a_result_goes_is_no_difference_and_what_judged_it_is_one() -> None:
    old = run(FAILED)

    def made(command: str, reference: str = "") -> Run:
        return replace(old, header=replace(old.header, command=command, reference=reference))

    shown = made("check py:mine.py:Mine --out 'last week' --junit=a.xml --json --seed 3")
    assert made_differently(shown, made("check py:mine.py:Mine --seed 3")) == []
    assert made_differently(made("check a 'open"), made("check a")) == ["command check a 'open → check a"]
    assert made_differently(made("check a"), made("check a --reference hf:b", "hf:b")) == [
        "command check a → check a --reference hf:b",
        "judged by  → hf:b",
    ]


def test_a_file_of_a_version_that_knew_less_is_read(tmp_path: Path) -> None:
    path = tmp_path / "result.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        result_file.write(run(FAILED), stream)
    older = path.read_text(encoding="utf-8").replace(', "landmarks": []', "")
    assert "landmarks" not in older
    path.write_text(older, encoding="utf-8")
    assert kinds(result_file.read(path), run(FAILED)) == [Kind.STILL]

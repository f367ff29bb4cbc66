"""Programs that failed are kept, and run first the next time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from kvconform.harness import registry, saved
from kvconform.harness.conformance import conform
from kvconform.harness.errors import KvconformError
from kvconform.harness.judging import PROFILES
from kvconform.harness.saved import Saved
from kvconform.harness.sources import judged_by

CLAUSES = [clause for clause in registry.clauses() if clause.id == "branch.crop"]
PROGRAM = "append a 1; crop a 0; append a 2"


def cases(target: str, kept: list[Saved], reference: str | None = None):
    profile = replace(PROFILES["quick"], examples=0, saved=tuple(kept))
    return list(conform(target, judged_by(registry.resolve(target), reference), CLAUSES, profile, ["float32"]))


def test_a_failure_is_kept_by_its_shrunk_program(tmp_path: Path) -> None:
    saved.keep([], cases("builtin:gpt/crop_ignored", []), folder=tmp_path)
    assert saved.load(tmp_path) == [Saved("builtin:gpt/crop_ignored", "branch.crop", "float32", PROGRAM)]


def test_what_still_fails_is_told_and_kept(tmp_path: Path) -> None:
    kept = [Saved("builtin:gpt/crop_ignored", "branch.crop", "float32", PROGRAM)]
    ran = cases("builtin:gpt/crop_ignored", kept)
    assert ran[0].replayed == ((PROGRAM, "FAILED"),)
    saved.keep(kept, ran, folder=tmp_path)
    assert saved.load(tmp_path) == kept


def test_what_was_fixed_is_told_and_forgotten(tmp_path: Path) -> None:
    kept = [Saved("builtin:gpt/concat", "branch.crop", "float32", PROGRAM)]
    ran = cases("builtin:gpt/concat", kept)
    assert ran[0].replayed == ((PROGRAM, "FIXED"),)
    saved.keep(kept, ran, folder=tmp_path)
    assert saved.load(tmp_path) == []


def test_a_program_that_cannot_run_any_more_is_told_as_that_and_stays(tmp_path: Path) -> None:
    kept = [Saved("builtin:gpt/concat", "branch.crop", "float32", "append a 5000; crop a 0; append a 2")]
    ran = cases("builtin:gpt/concat", kept)
    assert [outcome for _, outcome in ran[0].replayed] == ["UNSUPPORTED"]
    saved.keep(kept, ran, folder=tmp_path)
    assert saved.load(tmp_path) == kept


def test_failures_of_other_targets_are_left_alone(tmp_path: Path) -> None:
    other = Saved("builtin:llama/crop_ignored", "branch.crop", "float32", PROGRAM)
    saved.keep([other], cases("builtin:gpt/concat", [other]), folder=tmp_path)
    assert saved.load(tmp_path) == [other]


def test_a_failure_is_of_the_reference_that_it_was_found_with(tmp_path: Path) -> None:
    """One judged by another model, which everything fails against, is no failure by its own."""
    other = Saved("builtin:gpt/concat", "branch.crop", "float32", PROGRAM, "builtin:llama/concat")
    by_own, by_other = cases(other.target, [other]), cases(other.target, [other], other.reference)
    assert (by_own[0].replayed, by_other[0].replayed) == ((), ((PROGRAM, "FAILED"),))
    saved.keep([other], by_own, folder=tmp_path)
    assert saved.load(tmp_path) == [other]
    saved.keep([], by_other, other.reference, folder=tmp_path)
    assert {(one.target, one.reference) for one in saved.load(tmp_path)} == {(other.target, other.reference)}


def test_nothing_is_written_where_nothing_failed(tmp_path: Path) -> None:
    saved.keep([], cases("builtin:gpt/concat", []), folder=tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["{", '{"target": 1}', '{"target":"a","clause":"b","dtype":"c","program":"appendix"}'])
def test_a_damaged_file_is_one_line_with_the_mend(tmp_path: Path, text: str) -> None:
    (tmp_path / saved.FILE).write_text(text + "\n")
    with pytest.raises(KvconformError, match="is damaged; delete it") as error:
        saved.load(tmp_path)
    assert "\n" not in str(error.value)

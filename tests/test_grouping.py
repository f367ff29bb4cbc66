"""Failures by cause: what explains what in a cell, and what failing cells have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness.results import Case, Cell, Finding
from kvconform.harness.sweeps.grouping import Group, grouped, merged, plain, reasons
from kvconform.harness.trial import Verdict


def failed(clause: str, program: str, step: int, token: int, divergence: str = "logits", detail: str = "off by 1.5") -> Finding:
    return Finding(
        id=clause, target="", clause=clause, dtype="float64", divergence=divergence, op="append", program=program,
        found_in=program, step=step, token=token, detail=detail, difference=1.5, allowed=1e-9, floor=None, tolerance="",
        curve=(), occurrences=1,
    )  # fmt: skip


CLAUSES = ("prefill.chunked", "decode.incremental", "branch.crop", "branch.select")
STEP = failed("decode.incremental", "append a 1 2; append a 3", 1, 2)
CROP = failed("branch.crop", "append a 1 2 3; crop a 2; append a 4", 2, 2)
CHUNK = failed("prefill.chunked", "append a 1 2; append a 3 4", 1, 2)
RAISED = failed("branch.select", "append a 1; select a 0", 1, 0, "raised", "IndexError: index 4 is out of bounds for 3")


def asked(target: str, *findings: Finding, **tags: str) -> tuple[Cell, list[Case]]:
    by_clause = {finding.clause: finding for finding in findings}
    cases = [
        Case(target, clause, "float64", Verdict.FAILED if clause in by_clause else Verdict.PASSED, findings=tuple(
            found for name, found in by_clause.items() if name == clause
        ))
        for clause in CLAUSES
    ]  # fmt: skip
    return Cell(target, "float64", tags, seconds=len(target)), cases


def groups(*given: tuple[Cell, list[Case]]) -> list[Group]:
    return grouped([cell for cell, _ in given], [case for _, cases in given for case in cases])


def told(found: Iterable[Group]) -> list[tuple[str, str, int]]:
    return [(group.finding.clause, group.common, len(group.cells)) for group in found]


def test_a_failure_that_needs_more_is_explained_by_one_that_needs_less() -> None:
    (group,) = groups(asked("x:m", STEP, CROP))
    assert (group.clauses, group.also) == (("decode.incremental",), ("branch.crop",))


@pytest.mark.parametrize(
    "other",
    [
        CHUNK,
        RAISED,
        failed("branch.crop", "append a 1; crop a 0; append a 2; append a 3", 3, 1),
    ],
    ids=["another kind of call", "another divergence", "it shows earlier"],
)
def test_a_failure_of_another_kind_stands_for_itself(other: Finding) -> None:
    assert len(groups(asked("x:m", STEP, other))) == 2


def test_the_clause_that_is_about_what_fails_comes_first() -> None:
    padded = "append a 1 2 | 3; append a 4 | 5"
    restore, padding = (failed(clause, padded, 1, 2) for clause in ("branch.crop", "decode.incremental"))
    cell, cases = asked("x:m", restore, padding)
    (group,) = groups((cell, sorted(cases, key=lambda case: case.clause)))
    assert (group.finding.clause, group.also) == ("decode.incremental", ("branch.crop",))


def test_what_nearly_all_cells_with_a_tag_show_is_one_group() -> None:
    static = [asked(f"x:{name}?cache=static", CROP) for name in "abcd"]
    dynamic = [asked(f"x:{name}?cache=dynamic") for name in "abcd"]
    assert told(groups(*static, *dynamic)) == [("branch.crop", "cache static", 4)]


def test_what_the_target_says_of_itself_sets_cells_apart() -> None:
    sliding = [asked(f"x:{name}", CROP, layers="sliding") for name in "abc"]
    full = [asked(f"x:{name}", layers="full") for name in "defg"]
    assert told(groups(*sliding, *full)) == [("branch.crop", "layers sliding", 3)]


def test_what_only_some_cells_could_show_is_named_by_what_they_share() -> None:
    static = [asked(f"x:{name}?cache=static", CROP) for name in "abcd"]
    other = [
        (cell, [replace(case, verdict=Verdict.UNSUPPORTED) if case.clause == "branch.crop" else case for case in cases])
        for cell, cases in (asked(f"x:{name}?cache=dynamic") for name in "abcd")
    ]
    assert told(groups(*static, *other)) == [("branch.crop", "cache static", 4)]


def test_two_options_together_set_cells_apart() -> None:
    cells = [
        asked(f"x:{name}?cache={cache}&attn={attn}", *([CROP] if (cache, attn) == ("static", "sdpa") else []))
        for name in "abcd"
        for cache in ("dynamic", "static")
        for attn in ("eager", "sdpa")
    ]
    assert told(groups(*cells)) == [("branch.crop", "cache static, attn sdpa", 4)]


def test_models_that_share_nothing_are_causes_of_their_own() -> None:
    cells = [asked(f"x:{name}?cache={cache}", *([CROP] if name in "ab" else [])) for name in "abcdefgh" for cache in "yz"]
    assert told(groups(*cells)) == [("branch.crop", "x:a", 2), ("branch.crop", "x:b", 2)]


def test_errors_are_alike_but_for_their_numbers() -> None:
    other = failed(
        "branch.crop", "append a 1 2; crop a 1; append a 2", 2, 0, "raised", "IndexError: index 9 is out of bounds for 8"
    )
    (group,) = groups(*(asked(f"x:{name}", RAISED if name in "ab" else other) for name in "abc"))
    assert len(group.cells) == 3
    assert (
        plain("BroadcastError: cannot broadcast [2, 3] to 0x7f00ab, 1.5e-7")
        == "BroadcastError: cannot broadcast [#, #] to #, #"
    )


def test_the_example_is_of_the_cheapest_cell() -> None:
    (group,) = groups(*(asked(target, CROP) for target in ("x:longest", "x:s", "x:long")))
    assert group.finding.clause == "branch.crop"
    assert group.cells == ("x:longest float64", "x:s float64", "x:long float64")


def test_groups_that_shrink_to_the_same_are_one() -> None:
    smallest = "append a 1; append a 2"
    one, other = (
        Group(failed(clause, smallest, 1, 1), "x:m", ("x:m float64",), (clause,))
        for clause in ("decode.incremental", "branch.fork")
    )
    (group,) = merged([one, other])
    assert group.clauses == ("decode.incremental", "branch.fork")


def test_known_failures_make_no_group() -> None:
    cell, cases = asked("x:m", CROP)
    known = [Case(case.target, case.clause, case.dtype, Verdict.KNOWN, "why") if case.findings else case for case in cases]
    assert grouped([cell], known) == []
    assert [(one.verdict, one.reason, one.cases) for one in reasons(known)] == [(Verdict.KNOWN, "why", 1)]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("yz"), st.sets(st.sampled_from([STEP, CROP, CHUNK, RAISED]))))
)
def test_every_failing_cell_is_in_a_group_and_no_other(drawn: list[tuple[str, str, set[Finding]]]) -> None:
    cells = {f"x:{name}?cache={cache}": found for name, cache, found in drawn}
    found = groups(*(asked(target, *some) for target, some in cells.items()))
    assert {key for group in found for key in group.cells} == {f"{target} float64" for target, some in cells.items() if some}

"""Shrinking finds the program that a reader would have written, and stays on the bug that it was given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness import registry
from kvconform.harness.generate import Mix, programs
from kvconform.harness.history import histories
from kvconform.harness.judging import PROFILES, judge_clause
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Append, Crop, Fork, Program, Select
from kvconform.harness.results import Finding
from kvconform.harness.scope import Scope, unsupported
from kvconform.harness.shrink import ATTEMPTS, shrink
from kvconform.harness.trial import Subject

ABLE = frozenset({"fork", "crop", "reset", "select", "join", "restore", "reset_rows"})
SCOPE = Scope(vocab_size=100, capabilities=ABLE, max_length=16)

Shows = Callable[[Program], bool]


def several_behind_a_crop(program: Program) -> bool:
    """Does an append of two tokens or more follow a crop of its cache?"""
    cropped: set[str] = set()
    for op in program.ops:
        if op.cache in cropped and isinstance(op, Append) and not op.refused and len(op.rows[0]) > 1:
            return True
        cropped = cropped | {op.cache} if isinstance(op, Crop) else cropped - {op.cache}
    return False


def seven_to_a_branch(program: Program) -> bool:
    """Are seven tokens or more fed to a cache that a fork made?"""
    fed: dict[str, int] = {}
    for op in program.ops:
        if isinstance(op, Fork) and not op.refused:
            fed[op.target] = 0
        elif isinstance(op, Append) and not op.refused and op.cache in fed:
            fed[op.cache] += len(op.rows[0])
    return any(count >= 7 for count in fed.values())


def a_row_beyond_the_first(program: Program) -> bool:
    return any(isinstance(op, Append) and len(op.rows) > 1 for op in program.ops)


def a_row_taken_twice(program: Program) -> bool:
    return any(isinstance(op, Select) and len(set(op.rows)) < len(op.rows) for op in program.ops)


def a_call_behind_a_refused_one(program: Program) -> bool:
    refused = False
    for op in program.ops:
        if refused and isinstance(op, Append) and not op.refused:
            return True
        refused = refused or op.refused
    return False


def a_crop_to_three_or_more(program: Program) -> bool:
    return any(isinstance(op, Crop) and op.length >= 3 for op in program.ops)


def a_crop_that_takes_nothing_away(program: Program) -> bool:
    pairs = zip(program.ops, histories(program), strict=False)
    return any(isinstance(op, Crop) and op.length == before.length(op.cache) > 0 for op, before in pairs)


LONG = (
    "append a 4 8 15 16 23 42; append b 42 4; append a 31; fork a c; crop a 3; append a 41 59 26; append a 5; append c 53; "
    "reset b; append b 58 97 93 23; drop c; restore a; append b 84"
)
BRANCHES = (
    "append a 31 41 59; append a 26; fork a b; append b 53 58 97 93 23 84 62 64 33; append a 83 27; crop a 4; append b 95; "
    "fork a c; append c 28; drop a"
)
BATCH = "append a 31 41 59 | 26 53 58 | 97 93 23; select a 2 0 0 1; append a 84 | 62 | 64 | 33; crop a 2; restore a"
REFUSED = "append a 31 41 59; append b 26 53; append a! 58 200; append a 97 93; append b! ; append b 23 84; reset a"

MINIMAL: dict[str, tuple[Shows, str, str]] = {
    "a crop and several tokens": (several_behind_a_crop, LONG, "append a 1; crop a 0; append a 2 3"),
    "seven tokens on a branch": (seven_to_a_branch, BRANCHES, "append a 1; fork a b; append b 2 3 4 5 6 7 8"),
    "a second row": (a_row_beyond_the_first, BATCH, "append a 1 | 2"),
    "a row taken twice": (a_row_taken_twice, BATCH, "append a 1; select a 0 0"),
    "a call behind a refused one": (a_call_behind_a_refused_one, REFUSED, "append a!; append a 1"),
    "a crop to three": (a_crop_to_three_or_more, LONG, "append a 1 2 3; crop a 3"),
    "a crop of nothing": (
        a_crop_that_takes_nothing_away,
        "append a 31 41 59; append a 26 53; append a 58; crop a 6; append a 97",
        "append a 1; crop a 1",
    ),
    "anything at all": (lambda program: True, LONG, "append a 1"),
}


@pytest.mark.parametrize("name", MINIMAL)
def test_the_smallest_program_is_found(name: str) -> None:
    shows, start, smallest = MINIMAL[name]
    assert shows(Program.parse(start))
    assert str(shrink(Program.parse(start), shows, SCOPE)) == smallest


@pytest.mark.parametrize("name", MINIMAL)
def test_the_smallest_program_does_not_shrink_further(name: str) -> None:
    shows, _, smallest = MINIMAL[name]
    assert str(shrink(Program.parse(smallest), shows, SCOPE)) == smallest


def test_where_no_smaller_program_shows_it_the_program_stays() -> None:
    program = Program.parse(LONG)
    assert shrink(program, lambda smaller: False, SCOPE) == program


def must_all_be_refused(program: Program, scope: Scope) -> bool:
    pairs = zip(program.ops, histories(program), strict=False)
    return all(scope.must_refuse(op, before) for op, before in pairs if op.refused)


def test_a_call_past_the_limit_stays_past_the_limit() -> None:
    program = Program.parse("append a 1 2 3 4 5 6 7 8 9 10; append a 11 12; append a! 13 14 15 16 17 18 19; append a 20")
    smallest = shrink(program, a_call_behind_a_refused_one, SCOPE)
    assert must_all_be_refused(smallest, SCOPE)
    *_, refused, last = smallest.ops
    assert refused.refused
    assert isinstance(refused, Append)
    assert isinstance(last, Append)
    fed = sum(len(op.rows[0]) for op in smallest.ops[:-2] if isinstance(op, Append))
    assert fed + len(refused.rows[0]) == 17
    assert len(last.rows[0]) == 1


EVERYTHING = Mix(
    ops=(
        ("append", 4),
        ("fork", 1),
        ("crop", 2),
        ("reset", 1),
        ("select", 1),
        ("join", 1),
        ("restore", 1),
        ("drop", 1),
    ),
    rows=3,
    caches=3,
    steps=(2, 9),
)
PREDICATES: list[Shows] = [
    several_behind_a_crop,
    seven_to_a_branch,
    a_row_beyond_the_first,
    a_row_taken_twice,
    lambda program: len(program) % 3 == 0,
    lambda program: program.tokens >= 9,
]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(SCOPE, EVERYTHING), st.sampled_from(PREDICATES))
def test_what_is_tried_can_be_run_and_what_is_found_shows_it(program: Program, shows: Shows) -> None:
    tried: list[Program] = []

    def same(smaller: Program) -> bool:
        tried.append(smaller)
        return shows(smaller)

    found = shrink(program, same, SCOPE)
    assert all(unsupported(smaller, SCOPE) is None and smaller.ops for smaller in tried)
    assert len(tried) == len(set(tried)) <= ATTEMPTS
    assert program not in tried
    assert found == program or (shows(found) and found in tried)
    assert len(found) <= len(program)
    assert found.tokens <= program.tokens


@settings(max_examples=60, deadline=None, derandomize=True)
@given(programs(SCOPE, replace(EVERYTHING, rows=1)))
def test_a_drawn_program_becomes_as_small_as_one_written_by_hand(program: Program) -> None:
    if several_behind_a_crop(program):
        found = shrink(program, several_behind_a_crop, SCOPE)
        assert found.tokens == 3
        assert len(found) <= 4


@pytest.mark.parametrize("attempts", [0, 1, 7])
def test_no_more_is_run_than_was_allowed(attempts: int) -> None:
    tried: list[Program] = []
    shrink(Program.parse(LONG), lambda smaller: bool(tried.append(smaller)) or several_behind_a_crop(smaller), SCOPE, attempts)
    assert len(tried) == attempts


def test_refused_ops_that_may_not_be_refused_any_longer_are_not_tried() -> None:
    scope = replace(SCOPE, max_length=4)
    program = Program.parse("append a 1 2 3; append a! 4 5; append a 6; append a! 7")
    tried: list[Program] = []
    shrink(program, lambda smaller: bool(tried.append(smaller)) or a_call_behind_a_refused_one(smaller), scope)
    assert tried
    assert all(must_all_be_refused(smaller, scope) for smaller in tried)


def findings(target: str) -> list[Finding]:
    """What the clause finds that must catch a fault."""
    resolved = registry.resolve(target)
    assert resolved.fault
    clause = next(clause for clause in registry.clauses() if clause.id == resolved.fault.clause)
    subject = Subject(resolved.implementation, Oracle(resolved.reference, torch.float32))
    return list(judge_clause(clause, subject, target, replace(PROFILES["quick"], examples=8)).findings)


SHORTEST = {
    "pos_zero": "append a 1; append a 2",
    "no_mask": "append a 1 2",
    "crop_ignored": "append a 1; crop a 0; append a 2",
    # One branch writes, the other writes over it, and only then the first looks back: it takes all five.
    "fork_shares_buffer": "append a 1; fork a b; append a 2; append b 3; append a 4",
}


@pytest.mark.parametrize("fault", SHORTEST)
def test_real_faults_are_shown_by_the_shortest_program_there_is(fault: str) -> None:
    (finding,) = findings(f"builtin:gpt/{fault}")
    assert finding.program == SHORTEST[fault]
    assert len(Program.parse(finding.found_in)) >= len(Program.parse(finding.program))


def test_shrinking_does_not_slide_from_one_bug_to_another() -> None:
    found = {(finding.divergence, finding.op): finding for finding in findings("builtin:gpt/reuse_without_reset")}
    assert {("logits", "append")} <= found.keys()
    for (divergence, _), finding in found.items():
        program = Program.parse(finding.program)
        assert "reset" in {op.kind for op in program.ops}
        assert len(program) == 3
        assert (finding.difference > 1) == (divergence == "logits")

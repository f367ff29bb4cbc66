"""Drawn programs: always legal, always within what the implementation can do, and often where cache bugs live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from kvconform.harness import registry
from kvconform.harness.clause import Clause
from kvconform.harness.generate import Mix, feed, programs, some_tokens
from kvconform.harness.history import histories
from kvconform.harness.judging import PROFILES, draw_until
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Append, Fork, Op, Program, Row
from kvconform.harness.scope import Scope, unsupported
from kvconform.harness.trial import Subject

ABLE = frozenset({"fork", "crop", "reset", "select", "join", "restore", "reset_rows"})
OPEN = Scope(vocab_size=1200, capabilities=ABLE)
EVERY_KIND = Mix(
    ops=(
        ("append", 4),
        ("fork", 1),
        ("crop", 1),
        ("reset", 1),
        ("select", 1),
        ("join", 1),
        ("restore", 1),
        ("drop", 1),
    ),
    rows=3,
    caches=4,
    steps=(2, 10),
    ragged=True,
)


def last_four(lengths: Sequence[int]) -> int:
    """The least length of a window that keeps the last four tokens."""
    return max(max(lengths, default=0) - 4, 0)


SCOPES = {
    "open": OPEN,
    "ragged": replace(OPEN, ragged="left"),
    "append only": replace(OPEN, capabilities=frozenset[str]()),
    "no fork": replace(OPEN, capabilities=ABLE - {"fork"}),
    "rows kept by a reset": replace(OPEN, capabilities=ABLE - {"reset_rows"}),
    "one cache": replace(OPEN, max_caches=1),
    "two caches": replace(OPEN, max_caches=2),
    "one row": replace(OPEN, max_rows=1),
    "two rows": replace(OPEN, max_rows=2),
    "one token at a time": replace(OPEN, max_append=1),
    "three tokens at a time": replace(OPEN, max_append=3),
    "one position": replace(OPEN, max_length=1),
    "six positions": replace(OPEN, max_length=6),
    "landmarks": replace(OPEN, landmarks=(7, 16)),
    "a landmark beyond the limit": replace(OPEN, landmarks=(7, 16), max_length=15),
    "a short rollback": replace(OPEN, crop_floor=last_four),
    "two tokens": replace(OPEN, vocab_size=2),
    "everything small": Scope(
        vocab_size=3,
        capabilities=frozenset({"crop", "reset"}),
        max_length=9,
        max_rows=1,
        max_append=1,
        max_caches=1,
        landmarks=(4,),
        crop_floor=last_four,
    ),
}


def drawn(scope: Scope, mix: Mix, count: int, seed: int = 0) -> list[Program]:
    """So many programs, drawn as a run draws them."""
    found: list[Program] = []
    chosen = settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(NoSuchExample):
        find(programs(scope, mix), lambda program: bool(found.append(program)), settings=chosen, random=Random(seed))
    return found


@pytest.mark.parametrize("name", SCOPES)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_program_is_legal_and_can_be_run(name: str, data: st.DataObject) -> None:
    program = data.draw(programs(SCOPES[name], EVERY_KIND))
    assert program.ops
    assert unsupported(program, SCOPES[name]) is None
    assert not any(op.refused for op in program.ops)


@pytest.mark.parametrize("clause", [clause for clause in registry.clauses() if clause.mix], ids=lambda clause: clause.id)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_so_is_every_program_of_the_contract(clause: Clause, data: st.DataObject) -> None:
    assert clause.mix
    scope = SCOPES[data.draw(st.sampled_from(sorted(SCOPES)))]
    if scope.missing(clause.needs) is None:
        assert unsupported(data.draw(programs(scope, clause.mix)), scope) is None


@pytest.mark.parametrize("name", [name for name, scope in SCOPES.items() if (scope.max_length or 64) > 8])
def test_so_is_every_fixed_program_of_the_contract(name: str) -> None:
    scope = SCOPES[name]
    for clause in registry.clauses():
        for program in clause.fixed(scope) if scope.missing(clause.needs) is None else ():
            histories(program)


def test_every_kind_of_op_is_drawn() -> None:
    kinds = Counter(op.kind for program in drawn(SCOPES["ragged"], EVERY_KIND, 80) for op in program.ops)
    assert kinds.keys() == {kind for kind, _ in EVERY_KIND.ops}


def test_a_mix_is_no_larger_than_it_says() -> None:
    mix = Mix(ops=(("append", 1), ("fork", 1)), rows=2, caches=3, steps=(1, 4), reach=20)
    for program in drawn(OPEN, mix, 100):
        after = histories(program)[-1]
        assert {op.kind for op in program.ops} <= {"append", "fork"}
        assert len(after.caches) <= 3
        assert max(len(rows) for rows in after.caches.values()) <= 2
        assert max(map(after.length, after.caches)) <= 20 + 2 * len(program)
        assert not any(len(set(map(len, rows))) > 1 for rows in after.caches.values())


def test_single_steps_follow_one_prompt() -> None:
    mix = Mix(ops=(("append", 1),), caches=2, steps=(2, 6), single=True)
    for program in drawn(OPEN, mix, 50):
        for op, before in zip(program.ops, histories(program), strict=False):
            assert isinstance(op, Append)
            assert before.length(op.cache) == 0 or len(op.rows[0]) == 1


def subject() -> Subject:
    resolved = registry.resolve("builtin:gpt/concat")
    return Subject(resolved.implementation, Oracle(resolved.reference, torch.float32))


def drawn_in_a_run(clause: Clause, seed: int) -> list[str]:
    found: list[str] = []
    draw_until(lambda program: bool(found.append(str(program))), clause, subject(), replace(PROFILES["quick"], seed=seed))
    return found


def test_the_same_seed_draws_the_same_programs() -> None:
    clause = next(clause for clause in registry.clauses() if clause.id == "branch.fork")
    first = drawn_in_a_run(clause, seed=5)
    assert len(set(first)) > 5
    assert drawn_in_a_run(clause, seed=5) == first
    assert drawn_in_a_run(clause, seed=6) != first


def test_clauses_do_not_draw_alike() -> None:
    mix = Mix(ops=(("append", 1),))
    one, other = (Clause(id=name, sentence="", why="", mix=mix) for name in ("some.thing", "some.other"))
    assert drawn_in_a_run(one, seed=0) != drawn_in_a_run(other, seed=0)


@pytest.mark.parametrize(("marks", "limit"), [((16,), None), ((7, 20), 40)])
def test_landmarks_are_hit_and_their_neighbours_and_twice(marks: tuple[int, ...], limit: int | None) -> None:
    scope = replace(OPEN, landmarks=marks, max_length=limit)
    lengths: Counter[int] = Counter()
    for program in drawn(scope, Mix(ops=(("append", 1),), steps=(1, 5)), 300):
        before = histories(program)[1:]
        lengths.update({after.length(op.cache) for op, after in zip(program.ops, before, strict=True)})
    for mark in marks:
        for near in (mark - 1, mark, mark + 1, 2 * mark):
            assert lengths[near] >= 15, f"{near} was reached {lengths[near]} times in 300 programs"


def test_rollbacks_go_to_landmarks_and_their_neighbours() -> None:
    scope = replace(OPEN, landmarks=(9,))
    crops = Counter(
        getattr(op, "length", None)
        for program in drawn(scope, Mix(ops=(("append", 1), ("crop", 1)), caches=1, steps=(1, 5)), 300)
        for op in program.ops
    )
    assert all(crops[length] >= 6 for length in (0, 8, 9, 10)), crops


def first_prompts(program: Program) -> list[Row]:
    """What is fed to caches that hold nothing, in order."""
    pairs = zip(program.ops, histories(program), strict=False)
    return [row for op, before in pairs if isinstance(op, Append) and not before.length(op.cache) for row in op.rows]


def test_prompts_come_again_whole_and_in_part() -> None:
    whole = part = programs_with_two = 0
    mix = Mix(ops=(("append", 2), ("reset", 1)), caches=3, steps=(3, 6))
    for program in drawn(OPEN, mix, 150):
        prompts = first_prompts(program)
        pairs = [(earlier, later) for at, later in enumerate(prompts) for earlier in prompts[:at]]
        programs_with_two += bool(pairs)
        whole += any(later[: len(earlier)] == earlier for earlier, later in pairs if len(earlier) > 1)
        part += any(later[0] == earlier[0] and later[:2] != earlier[:2] for earlier, later in pairs)
    assert whole >= programs_with_two // 40
    assert part >= programs_with_two // 20


def kinds(ops: Sequence[Op]) -> list[str]:
    return [op.kind for op in ops]


@pytest.mark.parametrize("kind", ["crop", "reset", "select", "restore"])
def test_two_appends_follow_an_op(kind: str) -> None:
    for program in drawn(OPEN, Mix(ops=((kind, 1),), rows=2, steps=(1, 1)), 30):
        assert kinds(program.ops) == ["append", kind, "append", "append"]
        last = program.ops[-1]
        assert isinstance(last, Append)
        assert {len(row) for row in last.rows} == {1}


def test_two_appends_follow_on_each_branch_of_a_fork() -> None:
    for program in drawn(OPEN, Mix(ops=(("fork", 1),), steps=(1, 1)), 30):
        first, fork, *rest = program.ops
        assert isinstance(first, Append)
        assert isinstance(fork, Fork)
        assert kinds(rest) == ["append"] * 4
        assert Counter(op.cache for op in rest) == {fork.cache: 2, fork.target: 2}


def test_no_cache_with_room_is_left_as_an_op_made_it() -> None:
    scope = replace(SCOPES["ragged"], max_length=30)
    for program in drawn(scope, EVERY_KIND, 80):
        after = histories(program)[-1]
        last = {name: op.kind for op in program.ops for name in {op.cache, getattr(op, "target", op.cache)}}
        assert all(last[name] == "append" for name in after.caches if after.length(name) < 30)


def test_tokens_of_fixed_programs_are_the_same_in_every_run_and_never_padding() -> None:
    assert some_tokens(OPEN, 5, seed=3) == some_tokens(OPEN, 5, seed=3) != some_tokens(OPEN, 5, seed=4)
    assert {0} | set(some_tokens(replace(OPEN, vocab_size=4), 100)) == {0, 1, 2, 3}
    assert min(some_tokens(replace(OPEN, vocab_size=4), 100)) == 1


@pytest.mark.parametrize(
    ("sizes", "most", "text"),
    [
        ((), None, "append a 1 2 3 4 5 6 7"),
        ((3, 1), None, "append a 1 2 3; append a 4; append a 5; append a 6; append a 7"),
        ((5,), None, "append a 1 2 3 4 5; append a 6 7"),
        ((), 3, "append a 1 2 3; append a 4 5 6; append a 7"),
        ((6, 1), 4, "append a 1 2 3 4; append a 5; append a 6; append a 7"),
    ],
)
def test_tokens_are_fed_in_calls_of_the_sizes_given(sizes: tuple[int, ...], most: int | None, text: str) -> None:
    fed = feed("a", (1, 2, 3, 4, 5, 6, 7), *sizes, scope=replace(OPEN, max_append=most))
    assert str(Program(fed)) == text

"""What an implementation can be given: its limits and capabilities, and the reason where it cannot."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from kvconform.harness.errors import ProgramError
from kvconform.harness.history import History, histories
from kvconform.harness.implementation import Implementation
from kvconform.harness.program import Program, parse_op
from kvconform.harness.scope import Scope, unsupported

ABLE = frozenset({"fork", "crop", "reset", "select", "join", "restore", "reset_rows"})
OPEN = Scope(vocab_size=10, capabilities=ABLE)
EVERY_KIND = "append a 1 2; fork a b; crop b 1; reset b; append b 3 | 4; select b 0; append b 5; join a b; restore a; drop a"


def limited(**limits: object) -> Scope:
    return Scope(**{"vocab_size": 10, "capabilities": ABLE, **limits})  # type: ignore[arg-type]


def without(capability: str) -> Scope:
    return limited(capabilities=ABLE - {capability})


def test_without_limits_every_op_can_be_given() -> None:
    assert unsupported(Program.parse(EVERY_KIND), limited(ragged="left")) is None


WITHIN = [
    (limited(max_length=4), "append a 1 2 3; append a 4"),
    (limited(max_length=4), "append a 1 2 3 4; crop a 2; append a 5 6"),
    (limited(max_length=4), "append a 1 2 3 4; append b 1 2 3 4"),
    (limited(max_append=2), "append a 1 2; append a 3 4"),
    (limited(max_rows=2), "append a 1 | 2; select a 1 1"),
    (limited(max_caches=2), "append a 1; fork a b; drop a; fork b a"),
    (limited(max_caches=1), "append a 1; drop a; append b 1"),
    (limited(ragged="right"), "append a 1 2 | 3; append a 1 | 2 3"),
    (without("reset_rows"), "append a 1 | 2; reset a; append a 3 | 4"),
    (without("reset_rows"), "append a 1 | 2; drop a; append a 3"),
    (OPEN, "append a 0 9"),
]


@pytest.mark.parametrize(("scope", "text"), WITHIN, ids=[text for _, text in WITHIN])
def test_what_lies_within_the_limits(scope: Scope, text: str) -> None:
    assert unsupported(Program.parse(text), scope) is None


BEYOND = [
    (without("fork"), "append a 1; fork a b", "it has no fork"),
    (without("crop"), "append a 1; crop a 0", "it has no crop"),
    (without("reset"), "append a 1; reset a", "it has no reset"),
    (without("select"), "append a 1; select a 0", "it has no select"),
    (without("join"), "append a 1; append b 2; join a b", "it has no join"),
    (without("restore"), "append a 1; restore a", "it has no restore"),
    (limited(max_length=4), "append a 1 2 3; append a 4 5", "it holds at most 4 positions"),
    (limited(max_append=2), "append a 1 2; append a 3 4 5", "it takes at most 2 token(s) in one call"),
    (limited(max_rows=2), "append a 1 | 2 | 3", "its caches have at most 2 row(s)"),
    (limited(max_rows=2), "append a 1 | 2; select a 0 0 1", "its caches have at most 2 row(s)"),
    (limited(max_rows=2), "append a 1 | 2; append b 3; join a b", "its caches have at most 2 row(s)"),
    (limited(max_caches=1), "append a 1; append b 2", "it keeps 1 cache(s) alive at once"),
    (limited(max_caches=1), "append a 1; fork a b", "it keeps 1 cache(s) alive at once"),
    (OPEN, "append a 10", "its vocabulary has 10 tokens"),
    (OPEN, "append a 1 2 | 3", "its rows must be of one length"),
    (OPEN, "append a 1 2; append b 3; join a b", "its rows must be of one length"),
    (
        without("reset_rows"),
        "append a 1 | 2; reset a; append a 3",
        "it has no reset_rows: an emptied cache keeps its number of rows",
    ),
]


@pytest.mark.parametrize(("scope", "text", "reason"), BEYOND, ids=[text for _, text, _ in BEYOND])
def test_what_lies_beyond_them_and_why(scope: Scope, text: str, reason: str) -> None:
    program = Program.parse(text)
    assert unsupported(Program(program.ops[:-1]), scope) is None
    assert unsupported(program, scope) == reason


@pytest.mark.parametrize(("scope", "text", "reason"), BEYOND, ids=[text for _, text, _ in BEYOND])
def test_what_lies_beyond_them_must_be_refused(scope: Scope, text: str, reason: str) -> None:
    *before, last = Program.parse(text).ops
    history = histories(Program(tuple(before)))[-1]
    assert scope.must_refuse(last, history)
    assert not limited(ragged="left", vocab_size=11).must_refuse(last, history)


@pytest.mark.parametrize("text", ["append a!", "append a! 1 |", "append a! 10", "crop a! 3", "select a! 1", "append a! 1 | 2"])
def test_what_every_implementation_must_refuse(text: str) -> None:
    before = histories(Program.parse("append a 1 2"))[-1]
    assert OPEN.must_refuse(parse_op(text), before)


@pytest.mark.parametrize("text", ["append a! 3", "crop a! 2", "crop a! 0", "select a! 0 0", "reset a!", "restore a!"])
def test_what_none_may_refuse(text: str) -> None:
    before = histories(Program.parse("append a 1 2"))[-1]
    assert not OPEN.must_refuse(parse_op(text), before)


def test_a_refused_op_is_no_reason_not_to_run() -> None:
    scope = limited(max_length=4, max_append=3, max_rows=1, max_caches=1)
    assert (
        unsupported(Program.parse("append a 1 2; append a! 3 4 5 6 | 7; append a! 99; append a! ; append a 3"), scope) is None
    )


def test_what_is_not_legal_at_all_is_an_error_and_no_reason() -> None:
    with pytest.raises(ProgramError):
        unsupported(Program.parse("append a 1; crop a 2"), OPEN)


def reaches_back(by: int) -> Scope:
    """A rollback reaches back by so many tokens from the longest that the cache has been since it was empty."""

    def floor(lengths: Sequence[int]) -> int:
        return max(max(lengths, default=0) - by, 0)

    return limited(crop_floor=floor)


FLOORS = [
    ("append a 1 2 3 4 5; crop a 3", None),
    ("append a 1 2 3 4 5; crop a 2", "its rollback reaches back to 3 here, not to 2"),
    ("append a 1 2 3 4 5; crop a 3; crop a 2", "its rollback reaches back to 3 here, not to 2"),
    ("append a 1 2 3 4 5; crop a 3; append a 6 7 8; crop a 3", "its rollback reaches back to 4 here, not to 3"),
    ("append a 1 2 3 4 5; reset a; append a 1 2; crop a 0", None),
    ("append a 1 2 3 4 5; drop a; append a 1 2; crop a 0", None),
    ("append a 1 2 3 4 5; fork a b; crop b 2", "its rollback reaches back to 3 here, not to 2"),
    ("append a 1 2; fork a b; append a 3 4 5; crop b 0", None),
    ("append a 1 2; append b 3 4 5 6 7; crop a 0", None),
    ("append a 1 2 3 4 5; append a! 99; crop a 3", None),
]


@pytest.mark.parametrize(("text", "reason"), FLOORS, ids=[text for text, _ in FLOORS])
def test_how_far_a_rollback_reaches(text: str, reason: str | None) -> None:
    assert unsupported(Program.parse(text), reaches_back(2)) == reason


def test_the_lengths_are_those_since_the_cache_was_empty() -> None:
    seen: list[list[int]] = []

    def floor(lengths: Sequence[int]) -> int:
        seen.append(list(lengths))
        return 0

    text = "append a 1 2 3; reset a; append a 4; append a 5 6; append a! 99; crop a 2; append a 7; crop a 1"
    unsupported(Program.parse(text), limited(crop_floor=floor))
    assert seen == [[1, 3], [1, 3, 2, 3]]


NEEDS = [
    ((), OPEN, None),
    (("fork", "crop"), OPEN, None),
    (("fork", "crop"), without("crop"), "it has no crop"),
    (("limit",), OPEN, "it has no limit"),
    (("limit",), limited(max_length=1024), None),
    (("limit",), limited(max_length=4096), "its limit of 4,096 positions lies beyond the reach of 1,024"),
    (("several tokens",), limited(max_append=2), None),
    (("several tokens",), limited(max_append=1), "it takes one token at a time"),
    (("several caches",), limited(max_caches=2), None),
    (("several caches",), limited(max_caches=1), "it keeps one cache alive at once"),
    (("batch",), limited(max_rows=2), None),
    (("batch",), limited(max_rows=1), "its caches have one row"),
    (("ragged",), limited(ragged="left"), None),
    (("ragged",), OPEN, "its rows must be of one length"),
    (("landmark",), limited(landmarks=(16,)), None),
    (("landmark",), OPEN, "it names no landmark, as a window would be"),
]


@pytest.mark.parametrize(("needs", "scope", "reason"), NEEDS)
def test_whether_a_clause_can_be_asked(needs: tuple[str, ...], scope: Scope, reason: str | None) -> None:
    assert scope.missing(needs) == reason


class Engine(Implementation):
    vocab_size, max_length, max_rows, max_append, max_caches = 12, 34, 5, 6, 7
    landmarks, ragged = (8, 9), "left"

    def fork(self, cache: object) -> object:
        return cache

    def dump(self, cache: object) -> bytes:
        return b""

    def crop_floor(self, lengths: Sequence[int]) -> int:
        return lengths[-1] // 2


def test_the_scope_of_an_implementation_is_what_it_says_of_itself() -> None:
    scope = Scope.of(Engine())
    limits = (scope.vocab_size, scope.max_length, scope.max_rows, scope.max_append, scope.max_caches)
    assert limits == (12, 34, 5, 6, 7)
    assert (scope.landmarks, scope.ragged) == ((8, 9), "left")
    assert scope.capabilities == {"fork", "restore"}
    assert scope.crop_floor([10]) == 5


def test_a_history_is_asked_and_never_changed() -> None:
    before = History({"a": ((1, 2),)})
    OPEN.lacks(parse_op("append a 3"), before)
    OPEN.must_refuse(parse_op("append a! 99"), before)
    assert before == History({"a": ((1, 2),)})

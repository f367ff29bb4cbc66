"""What programs mean: the tokens that each row of each cache holds after every op."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness.errors import ProgramError
from kvconform.harness.history import History, Rows, histories
from kvconform.harness.program import (
    Append,
    Crop,
    Drop,
    Fork,
    Join,
    Op,
    Program,
    Reset,
    Restore,
    Select,
    parse_op,
)


def after(text: str) -> dict[str, Rows]:
    """What the caches hold once the program has run."""
    return dict(histories(Program.parse(text))[-1].caches)


MEANING: dict[str, dict[str, Rows]] = {
    # An append goes behind what is there; the first one makes the cache.
    "append a 5 9 3": {"a": ((5, 9, 3),)},
    "append a 5 9; append a 3": {"a": ((5, 9, 3),)},
    "append a 5 9 | 7 7; append a 3 | 4": {"a": ((5, 9, 3), (7, 7, 4))},
    "append a 5; append b 9": {"a": ((5,),), "b": ((9,),)},
    "append a 5 9 | 7": {"a": ((5, 9), (7,))},
    # Both branches of a fork go on.
    "append a 5 9; fork a b": {"a": ((5, 9),), "b": ((5, 9),)},
    "append a 5 9; fork a b; append b 7; append a 8": {"a": ((5, 9, 8),), "b": ((5, 9, 7),)},
    # A crop keeps the first tokens of every row.
    "append a 5 9 3; crop a 2": {"a": ((5, 9),)},
    "append a 5 9 3; crop a 3": {"a": ((5, 9, 3),)},
    "append a 5 9 3; crop a 0": {"a": ((),)},
    "append a 5 9 | 7 8; crop a 1; append a 1 | 2": {"a": ((5, 1), (7, 2))},
    # A reset empties and keeps the number of rows; an emptied cache takes any number.
    "append a 5 9 | 7 8; reset a": {"a": ((), ())},
    "append a 5 9; reset a; append a 3": {"a": ((3,),)},
    "append a 5 9; reset a; append a 3 | 4": {"a": ((3,), (4,))},
    "append a 5 | 9; crop a 0; append a 3": {"a": ((3,),)},
    # A selection reorders, repeats, drops.
    "append a 5 | 7 | 9; select a 2 0": {"a": ((9,), (5,))},
    "append a 5 | 7; select a 1 1 1": {"a": ((7,), (7,), (7,))},
    # A join takes the source's rows in, and the source is gone.
    "append a 5; append b 7 | 8; join a b": {"a": ((5,), (7,), (8,))},
    "append a 5; append b 7; join a b; append b 1": {"a": ((5,), (7,)), "b": ((1,),)},
    "append a 5 9; append b 7; join a b": {"a": ((5, 9), (7,))},
    # A cache that was dumped and loaded holds what it held; one that was dropped leaves its name free.
    "append a 5 9; restore a; append a 3": {"a": ((5, 9, 3),)},
    "append a 5 9; drop a": {},
    "append a 5 9; drop a; append a 3 | 4": {"a": ((3,), (4,))},
    "append a 5 9; append b 1; drop b; fork a b": {"a": ((5, 9),), "b": ((5, 9),)},
}


@pytest.mark.parametrize("text", MEANING)
def test_what_a_program_means(text: str) -> None:
    assert after(text) == MEANING[text]


def test_the_histories_are_one_before_each_op_and_one_after_the_last() -> None:
    found = histories(Program.parse("append a 5 9; crop a 1; append a! 7; drop a"))
    assert [dict(history.caches) for history in found] == [{}, {"a": ((5, 9),)}, {"a": ((5,),)}, {"a": ((5,),)}, {}]


def test_the_length_is_that_of_the_longest_row() -> None:
    history = histories(Program.parse("append a 5 9 | 7; append b 1; reset b"))[-1]
    assert [history.length(cache) for cache in "abc"] == [2, 0, 0]


ILLEGAL = {
    "append a": "'append a' is not legal here: an empty append is legal only as a refused op: append a!",
    "append a 1 |": "'append a 1 |' is not legal here: an empty append is legal only as a refused op: append a!",
    "append a 1 | 2; append a 3": "'append a 3' is not legal here: cache a has 2 rows",
    "append a 1; append a 3 | 4": "'append a 3 | 4' is not legal here: cache a has 1 rows",
    "fork a b": "'fork a b' is not legal here: there is no live cache a; append to it first",
    "append a 1; fork a a": "'fork a a' is not legal here: a is alive already; fork to a fresh name",
    "append a 1; append b 2; fork a b": "'fork a b' is not legal here: b is alive already; fork to a fresh name",
    "crop a 0": "'crop a 0' is not legal here: there is no live cache a; append to it first",
    "append a 1 2; crop a 3": "'crop a 3' is not legal here: cache a holds 2 tokens",
    "append a 1 2 | 3; crop a 1": (
        "'crop a 1' is not legal here: its rows differ in length, and a crop is the same for all rows"
    ),
    "reset a": "'reset a' is not legal here: there is no live cache a; append to it first",
    "select a 0": "'select a 0' is not legal here: there is no live cache a; append to it first",
    "append a 1 | 2; select a 0 2": "'select a 0 2' is not legal here: cache a has 2 rows, counted from 0",
    "append a 1; join a b": "'join a b' is not legal here: there is no other live cache b",
    "append a 1; join a a": "'join a a' is not legal here: there is no other live cache a",
    "append b 1; join a b": "'join a b' is not legal here: there is no live cache a; append to it first",
    "restore a": "'restore a' is not legal here: there is no live cache a; append to it first",
    "drop a": "'drop a' is not legal here: there is no live cache a; append to it first",
    "append a 1; drop a; crop a 0": "'crop a 0' is not legal here: there is no live cache a; append to it first",
    "append a 1; append b 2; join a b; drop b": ("'drop b' is not legal here: there is no live cache b; append to it first"),
    "crop a! 1": "'crop a! 1' is not legal here: there is no live cache a; append to it first",
    "append a! 1; crop a 0": "'crop a 0' is not legal here: there is no live cache a; append to it first",
}


@pytest.mark.parametrize("text", ILLEGAL)
def test_what_is_not_legal(text: str) -> None:
    program = Program.parse(text)
    histories(Program(program.ops[:-1]))
    with pytest.raises(ProgramError) as caught:
        histories(program)
    assert str(caught.value) == ILLEGAL[text]


def test_a_long_op_is_named_by_its_beginning() -> None:
    with pytest.raises(ProgramError) as caught:
        histories(Program.parse("append a 1; append a " + "7 " * 500 + "| 8"))
    assert str(caught.value).startswith("'append a 7 7 7 7")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text",
    ["append a! 7 | 7", "append a!", "append c! 999999", "crop a! 9", "fork a! b", "select b! 5", "join a! c", "drop a!"],
)
def test_a_refused_op_leaves_all_as_it_was(text: str) -> None:
    before = histories(Program.parse("append a 1 2; append b 3"))[-1]
    assert before.after(parse_op(text)) == before


caches = st.sampled_from("abc")
small = st.integers(0, 4)
refused = st.booleans()
rows = st.lists(st.lists(small, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple)
ops: st.SearchStrategy[Op] = st.one_of(
    st.builds(Append, caches, rows, refused),
    st.builds(Fork, caches, caches, refused),
    st.builds(Crop, caches, small, refused),
    st.builds(Reset, caches, refused),
    st.builds(Select, caches, st.lists(small, min_size=1, max_size=3).map(tuple), refused),
    st.builds(Join, caches, caches, refused),
    st.builds(Restore, caches, refused),
    st.builds(Drop, caches, refused),
)


def after_if_legal(history: History, op: Op) -> History:
    """The next history; the same one where the op is not legal there."""
    try:
        return history.after(op)
    except ProgramError:
        return history


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(ops, max_size=20))
def test_no_op_changes_the_history_before_it(drawn: list[Op]) -> None:
    history, before = History(), [(History(), dict[str, Rows]())]
    for op in drawn:
        history = after_if_legal(history, op)
        before.append((history, dict(history.caches)))
        for earlier, held in before:
            assert earlier.caches == held


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(ops, max_size=20))
def test_only_caches_that_an_op_names_change(drawn: list[Op]) -> None:
    history = History()
    for op in drawn:
        named = {op.cache, getattr(op, "target", op.cache), getattr(op, "source", op.cache)}
        others = {name: held for name, held in history.caches.items() if name not in named}
        history = after_if_legal(history, op)
        assert {name: held for name, held in history.caches.items() if name not in named} == others

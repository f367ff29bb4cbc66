"""The text form of programs: what is printed is read back, and what cannot be read is refused in one line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness.errors import ProgramError
from kvconform.harness.program import (
    KINDS,
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
    print_op,
)

quickly = settings(deadline=None, derandomize=True)

names = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
numbers = st.integers(0, 10**18 - 1)
refused = st.booleans()
full_rows = st.lists(st.lists(numbers, min_size=1, max_size=6).map(tuple), min_size=1, max_size=4).map(tuple)
some_rows = st.lists(st.lists(numbers, max_size=6).map(tuple), min_size=1, max_size=4).map(tuple)

OPS: dict[str, st.SearchStrategy[Op]] = {
    "append": st.builds(Append, names, full_rows) | st.builds(Append, names, some_rows, st.just(True)),
    "fork": st.builds(Fork, names, names, refused),
    "crop": st.builds(Crop, names, numbers, refused),
    "reset": st.builds(Reset, names, refused),
    "select": st.builds(Select, names, st.lists(numbers, min_size=1, max_size=5).map(tuple), refused),
    "join": st.builds(Join, names, names, refused),
    "restore": st.builds(Restore, names, refused),
    "drop": st.builds(Drop, names, refused),
}
arbitrary_programs = st.lists(st.one_of(*OPS.values()), min_size=1, max_size=8).map(lambda ops: Program(tuple(ops)))

DESIGN = "append a 5 9 3; fork a b; append b 7; crop a 2; append a 1 1; append c 4 4 | 8 2; select c 1 1; append a! 999999"


def test_every_kind_of_op_is_among_those_that_are_drawn() -> None:
    assert OPS.keys() == KINDS.keys()


@quickly
@given(arbitrary_programs)
def test_what_is_printed_is_read_back(program: Program) -> None:
    assert Program.parse(str(program)) == program


@quickly
@given(arbitrary_programs)
def test_a_program_is_printed_on_one_line(program: Program) -> None:
    assert str(program).splitlines() == [str(program)]


@quickly
@given(st.one_of(*OPS.values()))
def test_one_op_is_read_as_in_a_program(op: Op) -> None:
    assert parse_op(print_op(op)) == op
    assert Program.parse(print_op(op)).ops == (op,)


def test_the_example_of_the_design() -> None:
    program = Program(
        (
            Append("a", ((5, 9, 3),)),
            Fork("a", "b"),
            Append("b", ((7,),)),
            Crop("a", 2),
            Append("a", ((1, 1),)),
            Append("c", ((4, 4), (8, 2))),
            Select("c", (1, 1)),
            Append("a", ((999999,),), refused=True),
        )
    )
    assert str(program) == DESIGN
    assert Program.parse(DESIGN) == program


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (Append("a", ((1, 2), (3, 4)), refused=True), "append a! 1 2 | 3 4"),
        (Append("a", ((),), refused=True), "append a!"),
        (Append("a", ((1,), ()), refused=True), "append a! 1 |"),
        (Fork("a", "a2", refused=True), "fork a! a2"),
        (Crop("a", 0), "crop a 0"),
        (Reset("draft_1"), "reset draft_1"),
        (Select("a", (2, 0, 0), refused=True), "select a! 2 0 0"),
        (Join("a", "b"), "join a b"),
        (Restore("a"), "restore a"),
        (Drop("a", refused=True), "drop a!"),
    ],
)
def test_the_text_of_an_op(op: Op, text: str) -> None:
    assert print_op(op) == text
    assert parse_op(text) == op


@pytest.mark.parametrize(
    "text",
    ["append a 5 9;fork a b", "  append  a   5 9 ;; fork a b ; ", "append a 5 9\nfork a b\n", "append a 05 009; fork a b"],
)
def test_blanks_and_line_ends_are_free(text: str) -> None:
    assert str(Program.parse(text)) == "append a 5 9; fork a b"


MALFORMED = {
    "": "the program is empty; write ops such as: append a 5 9 3; append a 7",
    " ; \n;": "the program is empty; write ops such as: append a 5 9 3; append a 7",
    "apend a 1": "no op 'apend' in 'apend a 1'; the ops are append, fork, crop, reset, select, join, restore, drop",
    "APPEND a 1": "no op 'APPEND' in 'APPEND a 1'; the ops are append, fork, crop, reset, select, join, restore, drop",
    "append": "'append' needs a cache name (a letter, then letters, digits or _) after 'append'",
    "append 5 9": "'append 5 9' needs a cache name (a letter, then letters, digits or _) after 'append'",
    "append A 5": "'append A 5' needs a cache name (a letter, then letters, digits or _) after 'append'",
    "append a!! 5": "'append a!! 5' needs a cache name (a letter, then letters, digits or _) after 'append'",
    "append a x": "'x' in 'append a x' is no whole number from 0 on",
    "append a -1": "'-1' in 'append a -1' is no whole number from 0 on",
    "append a 1.5": "'1.5' in 'append a 1.5' is no whole number from 0 on",
    "append a ٣": "'٣' in 'append a ٣' is no whole number from 0 on",
    "append a 1000000000000000000": "'1000000000000000000' in 'append a 1000000000000000000' is no whole number from 0 on",
    "crop a": "'crop a' needs one length: crop a 2",
    "crop a 1 2": "'crop a 1 2' needs one length: crop a 2",
    "crop a two": "'two' in 'crop a two' is no whole number from 0 on",
    "fork a": "'fork a' needs a second cache name: fork a b",
    "fork a b c": "'fork a b c' needs a second cache name: fork a b",
    "fork a b!": "'fork a b!' needs a second cache name: fork a b",
    "join a 5": "'join a 5' needs a second cache name: join a b",
    "select a": "'select a' needs the rows to keep: select a 1 0",
    "select a 0 | 1": "'|' in 'select a 0 | 1' is no whole number from 0 on",
    "reset a b": "'reset a b' has words too many; reset takes a cache name only",
    "restore a 1": "'restore a 1' has words too many; restore takes a cache name only",
    "drop": "'drop' needs a cache name (a letter, then letters, digits or _) after 'drop'",
    "append a 1; crop a; append a 2": "'crop a' needs one length: crop a 2",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_what_a_malformed_text_lacks(text: str) -> None:
    with pytest.raises(ProgramError) as caught:
        Program.parse(text)
    assert str(caught.value) == MALFORMED[text]


def test_rows_may_stand_close_together() -> None:
    assert Program.parse("append a 1|2").ops == (Append("a", ((1,), (2,))),)


words = st.sampled_from([*KINDS, "a", "b", "a!", "!", "|", ";", "\n", "0", "7", "-1", "1.5", "٣", "\t", "\u2028", "9" * 19])
nearly_programs = st.lists(words, max_size=12).map(" ".join)


def read(text: str) -> Program | str:
    """The program, or why there is none."""
    try:
        return Program.parse(text)
    except ProgramError as error:
        return str(error)


@settings(quickly, max_examples=300)
@given(st.text() | nearly_programs)
def test_any_text_is_a_program_or_a_program_error_of_one_line(text: str) -> None:
    found = read(text)
    if isinstance(found, Program):
        assert Program.parse(str(found)) == found
    else:
        assert found.splitlines() == [found]


def test_tokens_are_counted_over_all_rows_and_refused_ops() -> None:
    assert Program.parse("append a 1 2 3 | 4 5 6; crop a 1; append a! 7 | 8; reset a").tokens == 8


def test_ops_are_exchanged_and_left_out_in_a_new_program() -> None:
    program = Program.parse("append a 1 2; crop a 1; append a 3")
    assert str(program.with_op(1, Reset("a"))) == "append a 1 2; reset a; append a 3"
    assert str(program.without(1)) == "append a 1 2; append a 3"
    assert str(program) == "append a 1 2; crop a 1; append a 3"
    assert len(program) == 3


def test_programs_with_the_same_ops_are_one() -> None:
    assert len({Program.parse("append a 1;  reset a"), Program.parse("append a 1; reset a")}) == 1

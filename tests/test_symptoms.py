"""What figures show by themselves, and how a diagnosis is made of what speaks for a suspect: pure parts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness.diagnosis.battery import battery, beyond
from kvconform.harness.diagnosis.diagnosis import Confidence
from kvconform.harness.diagnosis.figures import PROBES, Figure
from kvconform.harness.diagnosis.fit import Fit
from kvconform.harness.diagnosis.mistakes import KINDS, truncated
from kvconform.harness.diagnosis.relevance import same_ops
from kvconform.harness.diagnosis.suspect import Suspect, told
from kvconform.harness.diagnosis.symptoms import of_an_error, symptoms
from kvconform.harness.fault import Form
from kvconform.harness.program import Program
from kvconform.harness.registry import clauses
from kvconform.harness.runner import Divergence
from kvconform.harness.scope import Scope, unsupported

TWO = Program.parse("append a 1 2; append a 3")
RIGHT = dict.fromkeys(PROBES, False)


def figure(op: int, past: int, *rows: tuple[float, ...]) -> Figure:
    """Gaps above 0.1 are wrong."""
    return Figure(op, past, rows, tuple(tuple(gap > 0.1 for gap in row) for row in rows))


def seen(program: str, *figures: Figure, landmarks: tuple[int, ...] = (), **probes: bool) -> tuple[str, ...]:
    return symptoms(
        Program.parse(program), figures, {**RIGHT, **{k.replace("_", " "): v for k, v in probes.items()}}, landmarks
    ).seen


def test_where_it_begins() -> None:
    bad = figure(0, 0, (1.0,))
    assert "a single token on a fresh cache" in seen("append a 5", bad, one=True)[0]
    assert "only when it has several tokens" in seen("append a 5 6", figure(0, 0, (0.0, 1.0)), several=True)[0]
    second = (figure(0, 0, (0.0, 0.0)), figure(1, 2, (1.0,)))
    assert "wrong from the second on" in seen(str(TWO), *second, steps=True)[0]
    assert "behind a prompt of several tokens" in seen(str(TWO), *second, prompt_and_step=True)[0]
    assert "several tokens on a warm cache" in seen(str(TWO), *second, chunks=True)[0]
    assert seen(str(TWO), figure(0, 0, (0.0, 0.0)), figure(1, 2, (0.0,))) == ()


@pytest.mark.parametrize("op", ["crop a 1", "reset a", "fork a b", "restore a"])
def test_only_after_an_op(op: str) -> None:
    program = f"append a 1 2; {op}; append a 3"
    assert f"only after {op.split()[0]}" in seen(program, figure(0, 0, (0.0, 0.0)), figure(2, 1, (1.0,)))
    refused = "append a 1; append a! 9999; append a 2"
    assert "only after a refused call" in seen(refused, figure(0, 0, (0.0,)), figure(2, 1, (1.0,)))


def test_which_rows() -> None:
    good, bad = (0.0, 0.0), (1.0, 1.0)
    assert "only in rows beyond the first (1)" in seen("append a 1 2 | 3 4", figure(0, 0, good, bad))
    assert "only in the shorter rows" in seen("append a 1 2 | 3", figure(0, 0, good, (1.0,)))
    assert "only in row(s) 0" in seen("append a 1 2 | 3 4", figure(0, 0, bad, good))
    assert not any("row" in one for one in seen("append a 1 2 | 3 4", figure(0, 0, bad, bad)))


def test_past_which_landmark() -> None:
    long = Program.parse("append a " + " ".join("1" * 12) + "; append a 1")
    shown = seen(str(long), figure(0, 0, (0.0,) * 12), figure(1, 12, (1.0,)), landmarks=(5, 12))
    assert any("right up to 12" in one for one in shown)


@pytest.mark.parametrize(
    ("gaps", "word"), [((1.0, 1.2, 1.0, 0.9), "one size"), ((1.0, 3.0, 9.0, 27.0), "grows"), ((27.0, 9.0, 3.0, 1.0), "decays")]
)
def test_its_course(gaps: tuple[float, ...], word: str) -> None:
    assert any(word in one for one in seen("append a 1 2 3 4", figure(0, 0, gaps), several=True))


GAPS = st.lists(st.floats(0, 100) | st.just(float("inf")), min_size=1, max_size=5).map(tuple)
CALLS = st.integers(1, 3).flatmap(lambda rows: st.lists(st.lists(GAPS, min_size=rows, max_size=rows), min_size=1, max_size=3))


@given(CALLS, st.dictionaries(st.sampled_from(list(PROBES)), st.booleans()))
@settings(deadline=None)
def test_what_is_right_has_no_symptoms(calls: list[list[tuple[float, ...]]], probes: dict[str, bool]) -> None:
    program = Program.parse("; ".join("append a " + " | ".join("1 2" for _ in rows) for rows in calls))
    figures = [figure(at, 2 * at, *rows) for at, rows in enumerate(calls)]
    found = symptoms(program, figures, probes, (1, 3))
    assert not found.seen or any(one.bad for one in figures)
    assert len(set(found.seen)) == len(found.seen)


def test_an_error_is_read() -> None:
    assert of_an_error("the bird flew away") is None
    text = of_an_error("BroadcastError: cannot broadcast [13, 45] to [1, 9, 13, 13]")
    assert text is not None
    assert text[0].startswith("position passed 32, really cached 0, tokens in the call 13: the cache is empty")


def suspect(sentence: str, **about: int) -> Suspect:
    form = Form("some", sentence, lambda target: target)
    fit = Fit(True, explained=about.get("explained", 3), kinds=about.get("kinds", 0))
    return Suspect(form, fit, about.get("rank", 0), about.get("programs", 0), fit.explained)


NEAREST = (0.5, "another bug")


def confidence(*suspects: Suspect, divergence: Divergence = Divergence.LOGITS) -> tuple[str, Confidence]:
    found = told(list(suspects), divergence, NEAREST, 9, 0)
    return found.sentence, found.confidence


def test_how_sure_it_is() -> None:
    assert confidence(suspect("x", programs=2)) == ("x", Confidence.CERTAIN)
    assert confidence(suspect("x", programs=1)) == ("x", Confidence.LIKELY)
    assert confidence(suspect("x", explained=0, kinds=1)) == ("x", Confidence.SUSPECT)
    assert confidence(suspect("x", explained=0), divergence=Divergence.ALIASED) == ("x", Confidence.CERTAIN)
    refuted, elsewhere, doubtful = suspect("x", programs=5), suspect("y", programs=5), suspect("z", programs=1)
    refuted.refuted = elsewhere.elsewhere = doubtful.elsewhere = TWO
    assert confidence(refuted) == ("", Confidence.SYMPTOMS)
    assert confidence(elsewhere) == ("y", Confidence.LIKELY)
    assert confidence(doubtful) == ("z", Confidence.SUSPECT)
    assert confidence(refuted, elsewhere) == ("y", Confidence.LIKELY)
    assert confidence(elsewhere, suspect("w", programs=3)) == ("w", Confidence.CERTAIN)


def test_what_no_program_tells_apart_is_one_class() -> None:
    found = told([suspect("x", programs=3, rank=1), suspect("y", programs=3)], Divergence.LOGITS, NEAREST, 9, 0)
    assert (found.sentence, found.candidates) == ("y", ("x",))
    assert told([suspect("x", programs=3), suspect("x", programs=3)], Divergence.LOGITS, NEAREST, 9, 0).candidates == ()


def test_what_it_rests_on() -> None:
    one = suspect("x", programs=1)
    one.elsewhere = TWO
    assert told([one], Divergence.LOGITS, NEAREST, 9, 4).basis == (
        "the reference with this fault gives its logits at all 3 wrong positions; 1 further program shows it; "
        "it does not explain all of 'append a 1 2; append a 3'; the next best of 9 simulations (another bug) is 0.5 away; "
        "4 were not tried for want of time"
    )


def test_the_battery_begins_with_programs_like_the_failing_one() -> None:
    scope = Scope(vocab_size=1000, max_length=64, ragged="left")
    about = Program.parse("append a 1 2; crop a 1; append a 3")
    found = list(battery(scope, clauses(), about))
    assert len(found) == len(set(found)) > 40
    assert all(any(op.kind == "crop" for op in program.ops) for program in found[:5])
    assert all(unsupported(program, scope) is None for program in found)


def test_beyond_what_must_be_refused() -> None:
    program = Program.parse("append a 1 2; append a! 3; append a 4")
    assert str(beyond(program, 1)) == "append a 1 2; append a 3; append a 1"
    nothing = Program.parse("append a 1; append a!")
    assert beyond(nothing, 1) == nothing


@pytest.mark.parametrize(
    ("program", "same"),
    [
        ("append a 1; append a 2 3", True),
        ("append a 1; restore a; append a 2", False),
        ("append a 1 | 2", False),
        ("append a 1; append b 2", False),
        ("append a 1; append a! 5", False),
    ],
)
def test_programs_of_the_same_kinds_of_op(program: str, same: bool) -> None:
    assert same_ops(Program.parse(program), TWO) is same


def test_mistaken_histories_have_sentences_of_their_own() -> None:
    sentences = [kind.sentence for kind in (*KINDS, truncated(2), truncated(3))]
    assert all(sentences)
    assert len(set(sentences)) == len(sentences) > 25


def test_what_another_program_refutes_is_no_name() -> None:
    form = Form("pos_zero", "positions restart", lambda target: target)
    long = Program.parse("append a 1 2 3 4 5 6 7 8 9 10 11 12; append a 13")
    made = told([Suspect(form, Fit(True, 3), explained=3, refuted=long)], Divergence.LOGITS, (0.5, "x"), 9, 0)
    assert (made.name, made.sentence, made.confidence) == ("", "", Confidence.SYMPTOMS)
    assert str(made) == "no known fault does this; suspect: a relative of 'positions restart'"
    assert made.basis == ("positions restart: that gives its logits here, and not those of 'append a 1 2 3 … 12; append a 13'")
    good = Suspect(Form("no_cat", "overwritten", lambda target: target), Fit(True, 1), explained=1)
    assert (
        told([Suspect(form, Fit(True, 3), explained=3, refuted=long), good], Divergence.LOGITS, (0.5, "x"), 9, 0).name
        == "no_cat"
    )

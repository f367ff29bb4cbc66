"""Diagnosis by simulation: which bug it is, how sure that is, and that nothing is invented."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kvconform.harness import registry
from kvconform.harness.conformance import conform, subject
from kvconform.harness.diagnosis.diagnose import Diagnoser
from kvconform.harness.diagnosis.diagnosis import Confidence, Diagnosis
from kvconform.harness.diagnosis.relevance import could_show
from kvconform.harness.judging import PROFILES
from kvconform.harness.program import Program
from kvconform.harness.results import Finding
from kvconform.harness.runner import Divergence

FEW = replace(PROFILES["quick"], examples=5, fixed=3, stop_at_failure=True)


def findings(target: str, clause: str, dtype: str = "float64") -> list[Finding]:
    asked = [one for one in registry.clauses() if one.id == clause]
    cases = conform(target, registry.resolve(target), asked, FEW, [dtype])
    return [finding for case in cases for finding in case.findings]


def named(
    target: str, program: str, divergence: Divergence, step: int, clause: str = "any.program", only: str = ""
) -> Diagnosis | None:
    """The diagnosis of a program on a target, without a search for it. `only`: faults whose names begin so."""
    resolved = registry.resolve(target)
    asked = next(one for one in registry.clauses() if one.id == clause)
    faults = {name: fault for name, fault in registry.faults().items() if name.startswith(only)}
    return Diagnoser(resolved, subject(resolved, "float64"), faults).program(asked, Program.parse(program), divergence, step)


@pytest.mark.parametrize(
    ("target", "program"),
    [
        ("builtin:llama/pos_zero", "append a 1 2; append a 3"),
        ("builtin:gpt/pos_minus_3", "append a 1 2 3; append a 4"),
        ("builtin:llama/kv_mismatch", "append a 1; append a 2"),
        ("builtin:window/window_short", "append a 1 2 3 4 5 6 7 8 9 10 11 12 13; append a 14"),
        ("builtin:hybrid/state_not_carried", "append a 1; append a 2 3"),
        ("builtin:gpt/select_one_layer", "append a 1 2 | 3 4; select a 1 0; append a 5 | 6"),
    ],
)
def test_a_fault_is_named_and_certain(target: str, program: str) -> None:
    fault = registry.resolve(target).fault
    told = named(target, program, Divergence.LOGITS, len(program.split(";")) - 1)
    assert fault is not None
    assert told is not None
    assert (told.sentence, told.confidence) == (fault.diagnosis, Confidence.CERTAIN)
    assert "further programs show it" in told.basis
    assert told.margin is None or told.margin > 1e-6


@pytest.mark.parametrize("way", ["pos_zero", "no_cat", "wrong_shape"])
def test_a_fault_is_named_under_noisy_arithmetic(way: str) -> None:
    resolved = registry.resolve(f"builtin:noisy/{way}")
    clause = next(one for one in registry.clauses() if one.id == "any.program")
    divergence = Divergence.SHAPE if way == "wrong_shape" else Divergence.LOGITS
    told = Diagnoser(resolved, subject(resolved, "float32")).program(
        clause, Program.parse("append a 1 2; append a 3"), divergence, 0 if way == "wrong_shape" else 1
    )
    assert resolved.fault is not None
    assert told is not None
    assert told.sentence == resolved.fault.diagnosis


def test_a_finding_carries_its_diagnosis() -> None:
    found = findings("builtin:gpt/crop_ignored", "branch.crop")
    assert found
    assert {str(finding.diagnosis) for finding in found} == {"crop does nothing (certain)"}


def test_an_error_is_named_by_its_words_and_by_what_other_programs_give() -> None:
    told = named("builtin:gpt/mask_square", "append a 1; append a 2 3", Divergence.RAISED, 1)
    assert told is not None
    assert told.sentence == "the mask is square, of the call's length, while keys include the past"
    assert "fails in the same way" in told.basis


def test_what_was_accepted_is_asked_for_its_logits() -> None:
    """That a call past the limit was accepted says nothing; its logits tell a wrap from a clamp."""
    whole = " ".join(map(str, range(1, 128)))
    program = f"append a {whole}; append a 128; append a! 129"
    for way in ("limit_wraps", "limit_clamps"):
        fault = registry.resolve(f"builtin:llama/{way}").fault
        told = named(f"builtin:llama/{way}", program, Divergence.ACCEPTED, 2, "limit.refuses", only="limit")
        assert fault is not None
        assert told is not None
        assert told.sentence == fault.diagnosis


def test_a_right_implementation_gets_no_name() -> None:
    assert named("builtin:llama/concat", "append a 1 2; append a 3", Divergence.LOGITS, 1) is None


@pytest.mark.parametrize(
    ("scenario", "program", "shows"),
    [
        ("crop", "append a 1; append a 2", False),
        ("crop", "append a 1; crop a 0; append a 2", True),
        ("branch", "append a 1; fork a b", True),
        ("turns", "append a 1; append a 2", False),
        ("turns", "append a 1; append b 2", True),
        ("second_row", "append a 1 2", False),
        ("second_row", "append a 1 | 2", True),
        ("refused", "append a 1; append a! 5000", True),
        ("decode", "append a 1", True),
    ],
)
def test_what_a_program_needs_for_a_fault_to_show(scenario: str, program: str, shows: bool) -> None:
    assert could_show(scenario, Program.parse(program)) is shows


def test_a_diagnosis_in_one_line() -> None:
    assert str(Diagnosis(Confidence.LIKELY, "pos_zero", "positions restart")) == "positions restart (likely)"
    assert str(Diagnosis(Confidence.SYMPTOMS, symptoms=("only after crop",), suspects=("the mask",))) == (
        "only after crop; suspect: the mask"
    )
    assert str(Diagnosis(Confidence.SYMPTOMS)) == "no known fault does this"

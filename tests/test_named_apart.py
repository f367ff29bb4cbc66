"""Faults that were written apart from what is simulated are named: those of the engines, and of caches over models of
transformers. A sample; `benchmarks/diagnosis.py` asks all."""

from __future__ import annotations

from pathlib import Path

import engine_faults
import pytest
import test_engines
from kvconform.harness import registry
from kvconform.harness.conformance import precisions, subject
from kvconform.harness.diagnosis.diagnose import Diagnoser
from kvconform.harness.diagnosis.diagnosis import Confidence, Diagnosis
from kvconform.harness.program import Program
from kvconform.harness.runner import Divergence
from kvconform.harness.sources import judged_by
from kvconform.harness.target import Resolved
from library_caches import MISTAKES, Library, made
from test_engines import compiled  # noqa: F401  (a fixture)

SELECT = "append a 1 | 2; select a 1; append a 3"
FORK = "append a 1; fork a b; append b 2; append a 3"
CROP = "append a 1 2 3; crop a 1; append a 4"
ANY = next(clause for clause in registry.clauses() if clause.id == "any.program")


def diagnosed(resolved: Resolved, text: str) -> Diagnosis | None:
    """The diagnosis of a program that fails at its last op."""
    asked, program = subject(resolved, precisions(resolved)[0]), Program.parse(text)
    try:
        return Diagnoser(resolved, asked, asked=4).program(ANY, program, Divergence.LOGITS, len(program) - 1)
    finally:
        if close := getattr(resolved.implementation, "close", None):
            close()


def holds(told: Diagnosis | None, wanted: str) -> None:
    assert told is not None
    assert told.sentence == wanted
    assert told.confidence in (Confidence.CERTAIN, Confidence.LIKELY)


@pytest.mark.needs("node")
@pytest.mark.parametrize(
    ("fault", "text"), [("kv_mismatch", "append a 1; append a 2"), ("select_keys_only", SELECT), ("fork_shares_buffer", FORK)]
)
def test_a_fault_of_the_javascript_engine_is_named(fault: str, text: str) -> None:
    resolved = judged_by(registry.resolve(f"cmd:{test_engines.javascript(fault)}"), "builtin:gpt/concat")
    holds(diagnosed(resolved, text), engine_faults.JAVASCRIPT[fault])


@pytest.mark.needs("cc")
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("first_call_not_stored", "append a 1; append a 2"),
        ("values_behind", "append a 1; append a 2"),
        ("crop_keeps_position", CROP),
    ],
)
def test_a_fault_of_the_c_engine_is_named(fault: str, text: str, compiled: Path) -> None:  # noqa: F811
    resolved = judged_by(registry.resolve(f"cmd:{test_engines.c(compiled, fault)}"), "builtin:llama/concat")
    holds(diagnosed(resolved, text), engine_faults.C[fault])


@pytest.mark.parametrize(
    ("kind", "architecture", "text"),
    [
        ("KeysInFront", "llama", "append a 1; append a 2"),
        ("CropForgetsCounter", "gpt2", CROP),
        ("StateStartsAnew", "lfm2", "append a 1; append a 2 3"),
    ],
)
def test_a_fault_of_a_cache_over_a_model_of_transformers_is_named(kind: str, architecture: str, text: str) -> None:
    way = next(one for one in MISTAKES if one.__name__ == kind)
    holds(diagnosed(made(way, architecture), text), MISTAKES[way][1])


def test_a_right_cache_over_a_model_of_transformers_gets_no_diagnosis() -> None:
    assert diagnosed(made(Library, "lfm2"), "append a 1; append a 2 3") is None


def test_every_fault_of_an_engine_has_its_name() -> None:
    assert set(engine_faults.JAVASCRIPT) == set(test_engines.JAVASCRIPT)
    assert set(engine_faults.C) == set(test_engines.C)

"""Caches as a user writes them are named right; bugs that the catalogue does not have are not named at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kvconform.harness import registry
from kvconform.harness.conformance import conform
from kvconform.harness.diagnosis.diagnosis import Confidence
from kvconform.harness.judging import PROFILES
from kvconform.harness.results import Finding
from kvconform.harness.target import Resolved
from kvconform.harness.trial import Verdict
from user_caches import GPT, MISTAKES, UNKNOWN, Engine, Llama, made

FEW = replace(PROFILES["quick"], examples=3, stop_at_failure=True)
SAMPLE = [kind for at, kind in enumerate(MISTAKES) if at % 2]
"""Half of them; `benchmarks/diagnosis.py` asks all."""


def findings(kind: type[Engine], clause: str) -> list[Finding]:
    engine, plain = made(kind)
    asked = [one for one in registry.clauses() if one.id == clause]
    cases = conform(engine.name, Resolved(engine, plain), asked, FEW, ["float64"])
    return [finding for case in cases for finding in case.findings]


@pytest.mark.parametrize("kind", SAMPLE, ids=lambda kind: kind.__name__)
def test_a_users_mistake_is_named(kind: type[Engine]) -> None:
    clause, wanted = MISTAKES[kind]
    told = findings(kind, clause)[0].diagnosis
    assert told is not None
    assert told.sentence == wanted
    assert told.confidence in (Confidence.CERTAIN, Confidence.LIKELY)


@pytest.mark.parametrize("kind", UNKNOWN, ids=lambda kind: kind.__name__)
def test_what_the_catalogue_does_not_have_is_not_named(kind: type[Engine]) -> None:
    told = findings(kind, UNKNOWN[kind])[0].diagnosis
    assert told is not None
    assert told.confidence in (Confidence.SUSPECT, Confidence.SYMPTOMS)
    assert told.symptoms
    assert told.suspects


@pytest.mark.parametrize("kind", [GPT, Llama])
@pytest.mark.parametrize("clause", ["decode.incremental", "branch.crop", "branch.select", "lifecycle.reset"])
def test_the_cache_without_a_mistake_is_right(kind: type[Engine], clause: str) -> None:
    engine, plain = made(kind)
    asked = [one for one in registry.clauses() if one.id == clause]
    assert [case.verdict for case in conform(engine.name, Resolved(engine, plain), asked, FEW, ["float64"])] == [Verdict.PASSED]

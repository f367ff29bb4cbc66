"""What comes before the contract blames the adapter, and must not do so where the cache is at fault."""

from __future__ import annotations

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.fault import Fault, Kind
from kvconform.harness.judging import PROFILES, judge_clauses
from kvconform.harness.oracle import Oracle
from kvconform.harness.trial import Subject, Verdict

ADAPTER = [clause for clause in registry.clauses() if clause.family == "adapter"]
FORM = ("wrong_shape", "wrong_dtype")
"""Faults of the very first answer."""
WAYS = [way for way in registry.faults().values() if way.clause_family not in registry.FOUNDATION and way.name not in FORM]


def verdicts(way: Fault) -> set[Verdict]:
    found = registry.resolve(f"builtin:{way.models[0]}/{way.name}")
    subject = Subject(found.implementation.to(torch.float64), Oracle(found.reference, torch.float64))
    return {case.verdict for case in judge_clauses(ADAPTER, subject, way.name, PROFILES["quick"])}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_what_a_cache_does_wrong_is_not_blamed_on_the_adapter(way: Fault) -> None:
    assert Verdict.PASSED in verdicts(way) <= {Verdict.PASSED, Verdict.UNSUPPORTED}


def test_there_are_faults_of_adapters_to_tell_them_from() -> None:
    faults = [way for way in registry.faults().values() if way.kind is Kind.FAULT and way.clause_family == "adapter"]
    assert len(faults) >= 2
    for way in faults:
        assert Verdict.FAILED in verdicts(way)

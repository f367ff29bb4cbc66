"""Models of which no second copy is made, and budgets of forward passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from subprocess import CompletedProcess

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.comparison import SLICE, compare, largest
from kvconform.harness.conformance import conform, precisions, subject
from kvconform.harness.errors import KvconformError, Spent, Unsupported
from kvconform.harness.judging import PROFILES
from kvconform.harness.noise import squares
from kvconform.harness.passes import PASSES, Passes
from kvconform.harness.trial import Verdict
from kvconform.interface import options

Ran = Callable[..., CompletedProcess[str]]


def test_a_budget_is_shared_out_and_never_exceeded() -> None:
    passes = Passes()
    passes.begin(10)
    passes.allot(2)
    passes.share(2)
    passes.count()
    assert not passes.over
    passes.count()
    assert passes.over  # 5 are the precision's, and 2 of them the clause's
    passes.count(8)  # a program that has begun goes on
    with pytest.raises(Spent):
        passes.count()
    assert passes.made == 10
    passes.begin(None)
    passes.count(1000)
    assert not passes.over


def test_budgets_are_times_or_passes() -> None:
    assert (options.passes("200passes"), options.passes("1pass"), options.passes("90s")) == (200, 1, None)
    for wrong in ("0passes", "passes", "-3passes", "1.5passes", "²passes"):
        with pytest.raises(KvconformError, match="write it as 200passes"):
            options.passes(wrong)


def test_a_budget_ends_a_check() -> None:
    resolved = registry.resolve("builtin:gpt/concat")
    clauses = [clause for clause in registry.clauses() if clause.family in ("decode", "branch", "batch")]
    PASSES.begin(60)
    before = PASSES.made
    try:
        cases = list(conform("mine", resolved, clauses, PROFILES["quick"], ["float64"]))
    finally:
        PASSES.begin(None)
    assert 40 <= PASSES.made - before <= 60
    assert all(case.verdict is not Verdict.FAILED for case in cases)
    assert any("budget" in case.reason for case in cases)


def test_without_copies_a_model_is_judged_in_its_own_precision() -> None:
    pytest.importorskip("transformers")
    resolved = registry.resolve("arch:llama?dtype=bfloat16&copies=no")
    assert list(precisions(resolved)) == ["bfloat16"]
    with pytest.raises(Unsupported, match="no second copy is made"):
        resolved.implementation.to(torch.float64)
    with pytest.raises(KvconformError, match="leave --dtype float64 out"):
        subject(resolved, "float64")
    asked = subject(resolved, "bfloat16")
    assert asked.oracle.dtype is torch.bfloat16
    clauses = [clause for clause in registry.clauses() if clause.id in ("decode.incremental", "branch.crop")]
    profile = replace(PROFILES["quick"], examples=0, shrink=False)
    assert {case.verdict for case in conform("mine", resolved, clauses, profile)} == {Verdict.PASSED}
    model = resolved.implementation
    plain = type(model).append

    class Shifted(type(model)):
        """Each call goes one position too far."""

        def append(self, cache, tokens, lengths=None):
            cache.length += cache.length > 0
            return plain(self, cache, tokens, lengths)

    shifted = Shifted(model.model, model.kind, "shifted", explicit=True, traits=model.traits)
    found = list(conform("mine", replace(resolved, implementation=shifted), clauses, profile))
    assert all(case.verdict is Verdict.FAILED for case in found)


def test_slices_change_no_figure() -> None:
    torch.manual_seed(0)
    expected = torch.randn(1, 5, SLICE // 2 + 7)
    got = expected + 1e-3 * torch.randn_like(expected)
    found = compare(got, expected)
    whole = (got - expected).abs().amax(dim=(0, 2))
    assert found.differences == tuple(whole.tolist())
    assert found.scale == expected.abs().max().item()
    error, _ = squares(got[0], expected[0])
    assert error.allclose((got[0].double() - expected[0].double()).square().sum(-1))
    got[0, 3, 7] = math.nan
    assert any(map(math.isnan, compare(got, expected).differences))
    assert math.isnan(largest(got))

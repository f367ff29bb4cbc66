"""An implementation's own loop of generating text, held against full passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.conformance import conform, subject
from kvconform.harness.decoding import NEW
from kvconform.harness.errors import Unsupported
from kvconform.harness.judging import PROFILES, judge_clause
from kvconform.harness.results import Case
from kvconform.harness.target import Resolved
from kvconform.harness.trial import Verdict
from kvconform.implementations.builtin import BuiltIn
from kvconform.implementations.targets import catalogue

QUICK = replace(PROFILES["quick"], shrink=False)
CLAUSES = [clause for clause in registry.clauses() if clause.family == "generate"]
LOOPS = [fault for fault in catalogue().values() if fault.family == "generating"]


def asked(resolved: Resolved, clause: str, dtype: str = "float64") -> Case:
    (found,) = (one for one in CLAUSES if one.id == f"generate.{clause}")
    return judge_clause(found, subject(resolved, dtype), "mine", QUICK)


@pytest.fixture(scope="module")
def gpt() -> Resolved:
    return registry.resolve("builtin:gpt/concat")


def with_loop(resolved: Resolved, change: Callable[[list[list[int]]], list[list[int]]]) -> Resolved:
    """The built-in whose `generate` gives something else."""

    class Changed(BuiltIn):
        def generate(self, prompts: Sequence[Sequence[int]], count: int, way: str) -> list[list[int]]:
            return change(super().generate(prompts, count, way))

    built = resolved.implementation
    assert isinstance(built, BuiltIn)
    return replace(resolved, implementation=Changed(built.model, built.policy, "changed"))


@pytest.mark.parametrize("name", ["gpt", "window", "hybrid"])
def test_loops_that_are_right_pass(name: str) -> None:
    found = list(conform("mine", registry.resolve(f"builtin:{name}/concat"), CLAUSES, QUICK, ["float64", "float32"]))
    lacking = {"generate.lookup"} if name == "hybrid" else set[str]()
    assert {case.clause for case in found if case.verdict is Verdict.UNSUPPORTED} == lacking
    assert all(case.verdict in (Verdict.PASSED, Verdict.UNSUPPORTED) for case in found)
    assert all(case.positions >= NEW * case.programs for case in found)


@pytest.mark.parametrize("fault", LOOPS, ids=lambda fault: fault.name)
def test_each_fault_of_a_loop_is_caught_by_its_clause(fault, gpt: Resolved) -> None:
    case = asked(replace(gpt, implementation=fault.inject(gpt.implementation)), fault.clause.removeprefix("generate."))
    assert case.verdict is Verdict.FAILED
    assert {finding.divergence for finding in case.findings} == {"tokens"}


def test_every_clause_has_a_fault() -> None:
    assert {fault.clause for fault in LOOPS} == {clause.id for clause in CLAUSES}


def test_what_is_no_text_is_a_finding(gpt: Resolved) -> None:
    short = asked(with_loop(gpt, lambda rows: [row[:-1] for row in rows]), "padded")
    assert short.verdict is Verdict.FAILED
    assert short.reason == f"generate gives [{NEW - 1}, {NEW - 1}] tokens where {NEW} are wanted for 2 prompt(s)"
    foreign = asked(with_loop(gpt, lambda rows: [[10**6, *row[1:]] for row in rows]), "greedy")
    assert foreign.reason == "generate gives 1000000, which is no token of its vocabulary"

    def broken(rows: list[list[int]]) -> list[list[int]]:
        raise ZeroDivisionError("of nothing")

    raised = asked(with_loop(gpt, broken), "greedy")
    assert raised.findings[0].divergence == "raised"
    assert "generate raises ZeroDivisionError: of nothing" in raised.reason

    def refused(rows: list[list[int]]) -> list[list[int]]:
        raise Unsupported("not with this cache")

    assert (case := asked(with_loop(gpt, refused), "greedy")).verdict is Verdict.UNSUPPORTED
    assert case.reason == "not with this cache"


def test_one_other_token_at_the_end_is_seen(gpt: Resolved) -> None:
    for way in ("greedy", "beams"):
        case = asked(with_loop(gpt, lambda rows: [[*row[:-1], (row[-1] + 1) % 50] for row in rows]), way)
        assert case.verdict is Verdict.FAILED
        assert case.largest > 0


def test_a_beam_that_hangs_on_a_tie_inside_the_model_cannot_be_told(gpt: Resolved) -> None:
    class Tied:
        name, vocab_size = "tied", gpt.implementation.vocab_size

        def logits(self, tokens: torch.Tensor) -> torch.Tensor:
            return gpt.reference.logits(tokens)

        def doubts(self, tokens: torch.Tensor, epsilon: float) -> list[str]:
            return [""] * 3 + ["two experts tie"] * (tokens.shape[1] - 3)

        def to(self, dtype: torch.dtype) -> Tied:
            return self

    other = with_loop(gpt, lambda rows: [[*row[:-1], (row[-1] + 1) % 50] for row in rows])
    case = asked(replace(other, reference=Tied()), "beams", "float32")
    assert case.verdict is Verdict.INCONCLUSIVE
    assert "two experts tie" in case.reason


def test_nan_of_the_reference_is_never_passed(gpt: Resolved) -> None:
    class Broken:
        name, vocab_size = "broken", gpt.implementation.vocab_size

        def logits(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.full((*tokens.shape, self.vocab_size), math.nan, dtype=torch.float64)

        def to(self, dtype: torch.dtype) -> Broken:
            return self

    assert asked(replace(gpt, reference=Broken()), "greedy").verdict is not Verdict.PASSED


def test_the_librarys_own_loop_passes_whatever_ends_its_texts() -> None:
    pytest.importorskip("transformers")
    resolved = registry.resolve("arch:gemma3_text")
    module = resolved.implementation.model.module
    module.generation_config.eos_token_id = list(range(1, 90))  # any of these would end it
    found = list(conform("mine", resolved, CLAUSES, QUICK, ["float64"]))
    assert {case.clause: (case.verdict, case.reason) for case in found if case.verdict is not Verdict.PASSED} == {}
    assert module.generation_config.eos_token_id == list(range(1, 90))

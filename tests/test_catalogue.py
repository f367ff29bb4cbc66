"""The catalogue of faults and controls: complete, honest about itself, and every clause has something that it kills."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.errors import Unsupported
from kvconform.harness.fault import Fault, Kind
from kvconform.harness.judging import PROFILES, Profile, judge_clause
from kvconform.harness.mutation import Outcome
from kvconform.harness.mutation_run import run_mutation
from kvconform.harness.oracle import Oracle
from kvconform.harness.target import Resolved
from kvconform.harness.trial import Subject, Verdict

FAULTS = registry.faults()
FIXED = Profile("fixed", examples=0)
"""The contract's own programs only."""
CLAUSES = {clause.id: clause for clause in registry.clauses()}
LISTED = {
    "pos_zero": "decode.incremental",
    "pos_per_call": "decode.incremental",
    "pos_plus_100": "decode.incremental",
    "pos_minus_3": "decode.incremental",
    "pos_kept_after_reset": "lifecycle.reset",
    "pos_shared_rows": "batch.padding",
    "pos_counts_prompt_twice": "decode.incremental",
    "rope_on_read_by_length": "decode.incremental",
    "no_cat": "decode.incremental",
    "kv_mismatch": "decode.incremental",
    "cat_wrong_dim": "decode.incremental",
    "first_call_not_stored": "decode.incremental",
    "layers_swapped": "decode.incremental",
    "stored_in_half": "numerics.dtype",
    "state_on_model": "batch.interleaved",
    "head_stride": "prefill.identity",
    "no_mask": "prefill.identity",
    "mask_top_left": "decode.incremental",
    "mask_square": "prefill.chunked",
    "mask_one_ahead": "prefill.identity",
    "tail_attended": "decode.incremental",
    "pad_attended": "batch.padding",
    "window_short": "window.eviction",
    "window_long": "window.eviction",
    "ring_order": "window.eviction",
    "window_mask_by_call": "window.eviction",
    "state_not_carried": "prefill.chunked",
    "state_not_forked": "branch.fork",
    "state_not_selected": "branch.select",
    "state_sees_padding": "batch.padding",
    "reuse_without_reset": "lifecycle.reset",
    "reset_keeps_length": "lifecycle.reset",
    "fork_shares_buffer": "branch.fork",
    "fork_shares_counter": "branch.fork",
    "crop_ignored": "branch.crop",
    "crop_one_layer": "branch.crop",
    "crop_after_wrap": "window.crop_after_wrap",
    "select_keys_only": "branch.select",
    "select_one_layer": "branch.select",
    "restore_keeps_capacity": "branch.restore",
    "last_token_twice": "lifecycle.prefix_reuse",
    "limit_off_by_one": "limit.refuses",
    "limit_wraps": "limit.refuses",
    "error_moves_counter": "limit.intact",
    "cache_ignored": "decode.reuses_work",
    "output_aliased": "lifecycle.no_aliasing",
    "inputs_mutated": "lifecycle.inputs_untouched",
    "coin_toss": "lifecycle.deterministic",
    "slow_drift": "decode.no_drift",
    "acausal_reference": "reference.causal",
    "constant_reference": "reference.sensitive",
    "random_reference": "reference.deterministic",
}
"""The published list, with the clause that must catch each."""


@cache
def resolved(target: str) -> Resolved:
    return registry.resolve(target)


@cache
def oracle(model: str) -> Oracle:
    return Oracle(resolved(f"builtin:{model}/concat").reference, torch.float64)


def subject(model: str, fault: Fault) -> Subject:
    found = resolved(f"builtin:{model}/{fault.name}")
    judge = oracle(model) if fault.spoil is None else Oracle(found.reference, torch.float64)
    return Subject(found.implementation.to(torch.float64), judge)


def first_models(fault: Fault) -> list[str]:
    return [model for model in fault.models if model != "noisy" and model not in fault.equivalent]


@pytest.mark.parametrize("name", LISTED)
def test_every_published_fault_is_there_with_its_clause(name: str) -> None:
    assert FAULTS[name].kind is Kind.FAULT
    assert FAULTS[name].clause == LISTED[name]


def test_rope_convention_is_judged_by_the_reference_against_full() -> None:
    case = judge_clause(CLAUSES["forward.plain"], subject("llama", FAULTS["rope_convention"]), "x", PROFILES["quick"])
    assert case.verdict is Verdict.FAILED


@pytest.mark.parametrize("fault", [f for f in FAULTS.values() if f.kind is Kind.FAULT], ids=lambda fault: fault.name)
def test_a_fault_says_what_it_is(fault: Fault) -> None:
    assert fault.clause in CLAUSES
    assert fault.sentence.endswith(".")
    assert fault.diagnosis
    assert fault.shows
    assert 1 <= len(fault.override.splitlines()) <= 20, "a fault is one short override"


@pytest.mark.parametrize("clause", CLAUSES.values(), ids=CLAUSES)
def test_every_clause_kills_a_fault(clause) -> None:
    own = [f for f in FAULTS.values() if f.kind is Kind.FAULT and f.clause == clause.id]
    family = [f for f in FAULTS.values() if f.kind is Kind.FAULT and f.clause_family == clause.family]
    for fault in own or [*family, FAULTS["crop_ignored"]]:
        for model in first_models(fault):
            case = judge_clause(clause, subject(model, fault), model, PROFILES["quick"])
            # A reference that does not look back proves nothing: inconclusive, never passed.
            if case.verdict is Verdict.FAILED or (clause.id == "reference.sensitive" and case.reason):
                return
    pytest.fail(f"{clause.id} kills no fault")


def test_every_family_has_faults_of_its_own_beyond_the_published_ones() -> None:
    families = {fault.family for fault in FAULTS.values() if fault.kind is Kind.FAULT and fault.family != "candle"}
    for family in families:
        own = [f for f in FAULTS.values() if f.family == family and f.kind is Kind.FAULT and f.name not in LISTED]
        assert own, f"{family} has no fault of its own"


@pytest.mark.parametrize("model", ["gpt", "llama", "window", "hybrid"])
def test_every_fault_is_caught_and_every_control_passes(model: str) -> None:
    run = run_mutation(f"builtin:{model}/concat", list(FAULTS.values()), FIXED)
    outcomes = {mutant.fault: mutant.outcome for mutant in run.mutants}
    assert not run.problems
    assert set(outcomes.values()) <= {Outcome.CAUGHT, Outcome.PASSED, Outcome.PROVED, Outcome.NOT_APPLICABLE}


def test_faults_of_the_append_family_are_caught_in_noisy_arithmetic_and_honest_caches_pass() -> None:
    chosen = [
        fault
        for fault in FAULTS.values()
        if "noisy" in fault.models
        and (fault.kind is not Kind.FAULT or fault.clause_family in ("prefill", "decode", "numerics"))
        and fault.family not in ("operations",)
    ]
    run = run_mutation("builtin:noisy/concat", chosen, FIXED)
    assert not run.problems
    found = {mutant.fault: mutant.outcome for mutant in run.mutants}
    assert found["pos_minus_3"] is Outcome.CAUGHT
    assert found["no_mask"] is Outcome.CAUGHT
    assert found["stored_in_half"] is Outcome.PROVED
    assert found["concat"] is Outcome.PASSED
    assert set(found.values()) <= {Outcome.CAUGHT, Outcome.PASSED, Outcome.PROVED}


def test_a_fault_for_another_model_is_not_applicable() -> None:
    with pytest.raises(Unsupported, match="like window only"):
        FAULTS["ring_order"].inject(resolved("builtin:gpt/concat").implementation)

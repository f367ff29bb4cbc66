"""Faults in models of transformers: the same policies, through the library's own seams."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.errors import Unsupported
from kvconform.harness.fault import Kind
from kvconform.harness.judging import PROFILES
from kvconform.harness.mutation import Outcome
from kvconform.harness.mutation_run import chosen_faults, run_mutation
from kvconform.implementations.builtin import BuiltIn

PORTABLE = [
    "pos_zero",
    "pos_per_call",
    "pos_plus_100",
    "pos_minus_3",
    "pos_kept_after_reset",
    "pos_shared_rows",
    "no_cat",
    "kv_mismatch",
    "layers_swapped",
    "stored_in_half",
    "no_mask",
    "mask_top_left",
    "mask_square",
    "mask_one_ahead",
    "pad_attended",
    "window_short",
    "window_long",
    "state_not_carried",
    "state_not_forked",
    "state_not_selected",
    "state_sees_padding",
    "reuse_without_reset",
    "fork_shares_buffer",
    "crop_ignored",
    "crop_one_layer",
    "select_keys_only",
    "select_one_layer",
]
"""Faults that are ordered on models of transformers too."""
STATE = [name for name in PORTABLE if name.startswith("state_")]


@pytest.mark.parametrize(
    ("model", "names", "caught"),
    [("llama", PORTABLE, 21), ("gpt2", PORTABLE, 21), ("gemma3_text", PORTABLE, 23), ("lfm2", STATE, 4)],
)
def test_faults_injected_into_a_model_of_transformers_are_caught(model: str, names: list[str], caught: int) -> None:
    faults = [fault for fault in chosen_faults("*") if fault.name in ("concat", *names)]
    run = run_mutation(f"arch:{model}", faults, replace(PROFILES["quick"], examples=4))
    assert not run.problems
    found = [mutant for mutant in run.mutants if mutant.outcome is Outcome.CAUGHT]
    assert len(found) == caught
    assert [m.fault for m in found if m.clause.split(".")[0] != m.listed.split(".")[0]] == []
    left = [mutant for mutant in run.mutants if mutant.outcome is not Outcome.CAUGHT]
    assert [mutant.fault for mutant in left if mutant.outcome is Outcome.PASSED] == ["concat"]
    left = [mutant for mutant in left if mutant.outcome is not Outcome.PASSED]
    assert {mutant.outcome for mutant in left} <= {Outcome.NOT_APPLICABLE}
    assert all(mutant.detail for mutant in left)


@pytest.mark.parametrize("model", ["llama", "gpt2", "gemma3_text", "mixtral", "lfm2"])
def test_a_policy_keeps_the_cache_of_a_model_of_transformers(model: str) -> None:
    resolved = registry.resolve(f"arch:{model}?dtype=float64")
    carried = chosen_faults("cat_order")[0].inject(resolved.implementation)  # keys and values in another order, and right
    tokens = torch.tensor([[5, 9, 3, 7, 8, 11, 23, 31, 4, 17, 2, 9, 33, 41]])
    assert resolved.reference is not None
    cache = carried.new_cache(1)
    parts = [carried.append(cache, part) for part in tokens.split([3, 1, 5, 5], dim=1)]
    assert torch.allclose(torch.cat(parts, dim=1), resolved.reference.logits(tokens), rtol=0, atol=1e-12)


def test_what_changes_a_forward_pass_is_for_our_own_models() -> None:
    target = registry.resolve("arch:llama").implementation
    with pytest.raises(Unsupported, match="changes a forward pass, and this one is not ours"):
        registry.faults()["rope_convention"].inject(target)


def test_every_portable_fault_is_a_fault_of_the_catalogue() -> None:
    known = registry.faults()
    assert all(known[name].kind is Kind.FAULT for name in PORTABLE)


def test_a_model_that_takes_no_positions_cannot_be_carried() -> None:
    target = registry.resolve("arch:mamba").implementation
    with pytest.raises(Unsupported, match="position_ids"):
        registry.faults()["pos_zero"].inject(target)


def test_what_a_fault_is_injected_into_is_a_cache_by_policy() -> None:
    target = registry.resolve("arch:llama").implementation
    assert isinstance(registry.faults()["pos_zero"].inject(target), BuiltIn)

"""Tiny random models of five kinds through the contract, in float64: attention alone, learned positions, alternating
windows, experts, a state-space hybrid."""

from __future__ import annotations

import pytest
from kvconform.harness import registry
from kvconform.harness.conformance import conform
from kvconform.harness.errors import TargetError, UnsupportedTarget
from kvconform.harness.judging import Profile
from kvconform.harness.results import Case

FEW = Profile("few", examples=1, shrink=False, fixed=2)
ASKED = ("reference", "prefill.identity", "decode.incremental", "branch", "batch", "lifecycle.reset", "limit", "any", "window")


def cases(target: str, dtype: str = "float64") -> dict[str, Case]:
    resolved = registry.resolve(target)
    clauses = [clause for clause in registry.clauses() if clause.id.startswith(ASKED)]
    return {case.clause: case for case in conform(target, resolved, clauses, FEW, (dtype,))}


def wrong(found: dict[str, Case]) -> set[str]:
    return {case.clause for case in found.values() if case.verdict not in ("passed", "unsupported")}


@pytest.mark.parametrize(
    ("target", "known"),
    [
        ("llama?cache=dynamic", set[str]()),
        ("llama?cache=static&attn=sdpa&positions=explicit", {"limit.intact"}),
        ("gpt2?attn=sdpa", set[str]()),
        ("gpt2?cache=static", {"limit.intact"}),
        ("gemma3_text?cache=dynamic", {"any.pair"}),  # a rollback by nothing behind a reset raises
        ("gemma3_text?cache=static", {"limit.intact"}),
        ("mixtral?cache=dynamic", set[str]()),
        ("mixtral?cache=static", {"limit.intact"}),
    ],
)
def test_correct_caches_pass(target: str, known: set[str]):
    found = cases(f"arch:{target}")
    assert wrong(found) <= known
    for clause in ("decode.incremental", "branch.fork", "branch.select", "batch.padding", "lifecycle.reset"):
        assert found[clause].verdict == "passed"


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_state_space_hybrid_is_right_until_rows_are_dropped(cache: str):
    found = cases(f"arch:falcon_h1?cache={cache}")
    for clause in ("prefill.identity", "decode.incremental", "branch.fork", "batch.rows"):
        assert found[clause].verdict == "passed"
    assert found["branch.crop"].reason == "it has no crop"  # a recurrent state cannot be rolled back
    assert "the adapter" not in " ".join(case.reason for case in found.values())


def test_half_precision_is_judged_by_the_noise_of_calls_without_a_cache():
    found = cases("arch:llama", "bfloat16")
    assert not wrong(found)
    assert "× the noise over" in found["decode.incremental"].reason


def test_a_quantised_cache_is_judged_as_a_lossy_store():
    found = cases("arch:llama?cache=fp8", "float32")
    assert wrong(found) <= {"branch.select"}  # rows that are dropped or repeated stay in the quantised part
    assert "× the noise over" in found["decode.incremental"].reason


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("arch:minimax?cache=dynamic", "uses cache of its own"),
        ("arch:rwkv?cache=dynamic", "takes a cache of its own kind only"),
        ("arch:openai-gpt", "takes no cache"),
        ("arch:blip", "cannot be called with text alone"),
    ],
)
def test_what_a_model_does_not_have_is_told_in_its_own_words(target: str, told: str):
    with pytest.raises(UnsupportedTarget) as error:
        registry.resolve(target)
    assert told in str(error.value)


def test_an_unknown_architecture_is_answered_with_the_nearest():
    with pytest.raises(TargetError) as error:
        registry.resolve("arch:lama")
    assert "did you mean llama" in str(error.value)

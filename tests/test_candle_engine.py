"""Real candle behind the line protocol: its llamas keep the contract with the right caller, and each of its caller's mistakes
is caught in the clause where it belongs, or is right where it must be."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from candle_runs import ONCE, REFERENCE, SHIPPED, asked, converted, engine, wrong
from kvconform.harness import registry
from kvconform.harness.judging import PROFILES
from kvconform.harness.trial import Verdict

pytestmark = pytest.mark.needs("cargo", "engine:candle")

FEW = replace(PROFILES["quick"], examples=2, fixed=3)
PROMPT = (5, 9, 3, 700, 41, 8, 1199, 0, 23, 77, 6, 6, 310)


@pytest.fixture(scope="session")
def files(candle: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The shipped llama as GGUF files."""
    folder = tmp_path_factory.mktemp("gguf")
    return {kind: converted(candle, SHIPPED, folder / f"{kind}.gguf", kind) for kind in ("f32", "q8_0")}


# The right caller


def test_llama_keeps_the_contract(candle: Path) -> None:
    cases = asked("*", candle, "llama", SHIPPED, profile=FEW)
    assert not wrong(cases)
    assert sum(case.verdict is Verdict.PASSED for case in cases) >= 20
    assert max(case.largest for case in cases) < 1e-4


def test_quantized_llama_keeps_the_contract_in_float32(candle: Path, files: dict[str, Path]) -> None:
    cases = asked("*", candle, "quantized_llama", files["f32"], "--reset", "clear", profile=FEW)
    assert not wrong(cases)
    assert sum(case.verdict is Verdict.PASSED for case in cases) >= 18
    assert max(case.largest for case in cases) < 1e-4


def test_q8_0_is_judged_by_ratio_to_its_own_noise(candle: Path, files: dict[str, Path]) -> None:
    few = ("forward.plain", "decode.incremental", "lifecycle.reset", "branch.fork")
    cases = [case for clause in few for case in asked(clause, candle, "quantized_llama", files["q8_0"], profile=FEW)]
    assert [case.verdict for case in cases] == [Verdict.PASSED] * len(few), wrong(cases)
    assert cases[1].largest > 1e-2  # which any other rule fails


def test_q8_0_without_rounded_activations_is_as_exact_as_float32(
    candle: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANDLE_DEQUANTIZE_ALL", "1")
    with engine(candle, "quantized_llama", files["q8_0"]) as quiet:
        assert not quiet.noisy
        whole = quiet.append(quiet.new_cache(), torch.tensor([PROMPT]))
        parts = quiet.new_cache()
        quiet.append(parts, torch.tensor([PROMPT[:8]]))
        assert (quiet.append(parts, torch.tensor([PROMPT[8:]])) - whole).abs().max() < 1e-4


@pytest.mark.parametrize(("kind", "bound"), [("f32", 1e-4), ("q8_0", 1.0)])
def test_a_converted_model_gives_the_logits_of_the_reference(
    kind: str, bound: float, candle: Path, files: dict[str, Path]
) -> None:
    """The shipped model has a rotation base and an epsilon of its own, which a converter may drop."""
    reference = registry.resolve(REFERENCE).reference
    assert reference
    with torch.inference_mode():
        due = reference.logits(torch.tensor([PROMPT]))[:, -1:]
    with engine(candle, "quantized_llama", files[kind]) as model:
        got = model.append(model.new_cache(), torch.tensor([PROMPT]))
    assert (got - due).abs().max() < bound
    assert got.argmax() == due.argmax()


def test_what_cannot_be_converted_is_one_line(candle: Path, tmp_path: Path) -> None:
    command = [str(candle), "convert", str(tmp_path), str(tmp_path / "out.gguf"), "f32"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert said.stderr == "kvconform-candle: no config.json: No such file or directory (os error 2)\n"


def test_on_quantised_weights_candle_itself_refuses_several_rows_of_several_tokens(
    candle: Path, files: dict[str, Path]
) -> None:
    """Which is why the engine declares one row there."""
    with engine(candle, "quantized_llama", files["q8_0"]) as model:
        assert model.max_rows == 1
        model.append(model.new_cache(2), torch.tensor([[1], [2]]))
        with pytest.raises(Exception, match="contiguous"):
            model.append(model.new_cache(2), torch.tensor([[1, 2], [3, 4]]))


# Its mistakes

MISTAKES = {
    "--caller by_call": "decode.incremental",
    "--caller shift=100": "decode.incremental",
    "--caller shift=-3": "decode.incremental",
    "--caller shift=-1": "decode.incremental",
    "--caller zero": "decode.incremental",
    "--caller last_twice": "decode.incremental",
    "--caller own_length": "prefill.chunked",
    "--caller cleared": "lifecycle.reset",
    "--reset zero": "lifecycle.reset",
}
"""Each switch of the caller with the clause that it breaks."""


@pytest.mark.parametrize("switch", MISTAKES)
def test_a_mistake_of_llamas_caller_is_caught_where_it_belongs(switch: str, candle: Path) -> None:
    (case,) = asked(MISTAKES[switch], candle, "llama", SHIPPED, *switch.split())
    assert case.verdict is Verdict.FAILED, case.reason


@pytest.mark.parametrize("switch", MISTAKES)
def test_a_mistake_of_quantized_llamas_caller_is_caught_unless_it_is_none(
    switch: str, candle: Path, files: dict[str, Path]
) -> None:
    (case,) = asked(MISTAKES[switch], candle, "quantized_llama", files["f32"], *switch.split())
    due = Verdict.PASSED if switch == "--reset zero" else Verdict.FAILED
    assert case.verdict is due, case.reason


@pytest.mark.parametrize("switch", ["shift=100", "shift=-3", "zero"])
def test_a_wrong_position_raises_nothing_and_is_told_by_the_logits(switch: str, candle: Path) -> None:
    (case,) = asked("decode.incremental", candle, "llama", SHIPPED, "--caller", switch, profile=replace(ONCE, examples=0))
    assert {finding.divergence for finding in case.findings} == {"logits"}
    assert case.largest > 1

"""candle's gemma3 on tiny random models of transformers: the cases of `docs/found.md`, as they are in candle 0.11.1."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
from candle_runs import append, engine
from kvconform.harness import registry
from kvconform.harness.conformance import subject
from kvconform.harness.match import logits_match
from kvconform.harness.program import Program
from kvconform.harness.trial import Trial, Verdict, attempt

pytestmark = pytest.mark.needs("cargo", "engine:candle")

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "candle_gemma3.py"
WRITER = runpy.run_path(str(SCRIPT))
BROADCAST = "shape mismatch in broadcast_add, lhs: [1, 2, {new}, 8], rhs: [1, 1, {new}, {all}]"
SINGLE = "; ".join(append([token]) for token in range(1, 21))


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    where = tmp_path_factory.mktemp("gemma3")
    return {name: WRITER["write"](where / name, count) for name, count in WRITER["KV_HEADS"].items()}


def judged(candle: Path, folder: Path, program: str) -> Trial:
    with engine(candle, "gemma3", folder) as model:
        resolved = replace(registry.resolve(f"hf:{folder}"), implementation=model, carrier=None)
        return attempt(logits_match, Program.parse(program), subject(resolved, "float32"))


RIGHT = {
    "prompt in the window": append(range(1, 9)),
    "single tokens past the window": SINGLE,
    "prompt and single tokens past the window": f"{append(range(1, 9))}; {append([9])}; {append([10])}; {append([11])}",
    "parts in the window": f"{append([1, 2, 3])}; {append([4, 5, 6, 7, 8])}",
    "emptied": f"{append([1, 2, 3])}; reset a; {append([4, 5])}; {append([6])}",
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_right_with_one_kv_head(case: str, candle: Path, folders: dict[str, Path]) -> None:
    trial = judged(candle, folders["one_kv_head"], RIGHT[case])
    assert trial.verdict is Verdict.PASSED, trial.detail


def test_single_tokens_are_right_with_two_kv_heads(candle: Path, folders: dict[str, Path]) -> None:
    assert judged(candle, folders["two_kv_heads"], SINGLE).verdict is Verdict.PASSED


def test_a_prompt_longer_than_the_window_sees_one_token_too_many(candle: Path, folders: dict[str, Path]) -> None:
    trial = judged(candle, folders["one_kv_head"], append(range(1, 10)))
    assert (trial.verdict, trial.divergence) == (Verdict.FAILED, "logits")
    assert trial.difference > 0.1


@pytest.mark.parametrize(("first", "second"), [(4, 5), (6, 3)])
def test_several_tokens_on_a_warm_window_raise(first: int, second: int, candle: Path, folders: dict[str, Path]) -> None:
    program = f"{append(range(1, first + 1))}; {append(range(first + 1, first + second + 1))}"
    trial = judged(candle, folders["one_kv_head"], program)
    assert trial.divergence == "raised"
    assert trial.detail.endswith(BROADCAST.format(new=second, all=first + second))


def test_a_clone_shares_its_buffer(candle: Path, folders: dict[str, Path]) -> None:
    program = f"{append([1])}; fork a b; {append([2], 'b')}; {append([3])}; {append([4], 'b')}"
    trial = judged(candle, folders["one_kv_head"], program)
    assert (trial.verdict, trial.divergence, trial.step) == (Verdict.FAILED, "logits", 4)


def test_with_two_kv_heads_several_tokens_raise(candle: Path, folders: dict[str, Path]) -> None:
    trial = judged(candle, folders["two_kv_heads"], append([1, 2]))
    assert trial.divergence == "raised"
    assert trial.detail.endswith("slice-set only supports contiguous tensors")

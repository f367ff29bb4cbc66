"""The rule sets of the failure table held against real candle, and the published cases, which must come out of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import torch
from candle_runs import SHIPPED, append, converted, engine, ran
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample
from kvconform.harness import registry
from kvconform.harness.conformance import subject
from kvconform.harness.generate import Mix, programs
from kvconform.harness.implementation import Implementation
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Program
from kvconform.harness.runner import Step, execute
from kvconform.harness.scope import Scope
from kvconform.harness.shapes import BROADCAST, read_broadcast
from kvconform.harness.target import Resolved
from kvconform.harness.trial import Subject, attempt
from safetensors.torch import save_file

pytestmark = pytest.mark.needs("cargo", "engine:candle")

LLAMA, QUANTIZED = "llama", "quantized_llama"
RULES = {
    "candle_llama": (LLAMA, ""),
    "candle_llama_by_call": (LLAMA, "--caller by_call"),
    "candle_llama_cleared": (LLAMA, "--caller cleared"),
    "candle_llama_reused": (LLAMA, "--reset zero"),
    "candle_llama_chunk_at_own_length": (LLAMA, "--caller own_length"),
    "candle_quantized_llama": (QUANTIZED, "--reset clear"),
    "candle_quantized_no_clear": (QUANTIZED, "--reset zero"),
    "candle_quantized_by_call": (QUANTIZED, "--caller by_call"),
    "candle_quantized_cleared": (QUANTIZED, "--caller cleared --reset clear"),
}
"""Each rule set with the model of candle and the switches that it rebuilds."""
OPS = Mix(ops=(("append", 5), ("reset", 2), ("fork", 1)), rows=1, caches=2, steps=(2, 6), reach=40)
FLOOR = 1e-4


@pytest.fixture(scope="session")
def models(candle: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {LLAMA: SHIPPED, QUANTIZED: converted(candle, SHIPPED, tmp_path_factory.mktemp("gguf") / "f32.gguf", "f32")}


@pytest.fixture(scope="session")
def drawn() -> list[Program]:
    """Programs of appends, resets and forks, the same for every rule set."""
    found: list[Program] = []
    chosen = settings(
        max_examples=12, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    scope = Scope(vocab_size=1200, max_length=128, capabilities=frozenset({"fork", "reset"}))
    with suppress(NoSuchExample):
        find(programs(scope, OPS), lambda program: bool(found.append(program)), settings=chosen, random=Random(7))
    assert len(found) >= 10
    return found


def judged(implementation: Implementation, resolved: Resolved) -> Subject:
    return Subject(implementation, Oracle(resolved.reference, torch.float32))


@pytest.mark.parametrize("way", RULES)
def test_a_rule_set_behaves_as_candle_does(way: str, candle: Path, models: dict[str, Path], drawn: list[Program]) -> None:
    """Same verdict, same first bad step, same shapes in the error, same logits up to rounding."""
    model, switches = RULES[way]
    rules = registry.resolve(f"builtin:llama/{way}")
    with engine(candle, model, models[model], *switches.split()) as real:
        ours, theirs = subject(rules, "float32"), judged(real, rules)
        told: set[object] = set()
        for program in drawn:
            one, other = (attempt(logits_match, program, asked) for asked in (ours, theirs))
            assert (one.verdict, one.divergence, one.step, one.op) == (other.verdict, other.divergence, other.step, other.op)
            assert shapes(one.detail) == shapes(other.detail)
            told.add(one.verdict)
            for mine, candles in zip(steps(program, ours), steps(program, theirs), strict=True):
                assert mine.divergence == candles.divergence
                assert shapes(mine.detail) == shapes(candles.detail)
                if mine.logits is not None and candles.logits is not None:
                    assert (mine.logits[:, -1] - candles.logits[:, -1]).abs().max() < FLOOR
    assert told


def steps(program: Program, asked: Subject) -> list[Step]:
    return list(execute(program, asked.implementation, None, keep=True))


def shapes(text: str) -> str:
    found = BROADCAST.search(text)
    return found.group() if found else ""


# The published texts. The model that they were published for has 9 heads and a limit of 8192.


@pytest.fixture(scope="session")
def nine_heads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of one layer with drawn weights, as the published one has heads and positions."""
    folder = tmp_path_factory.mktemp("nine")
    wide, inner, vocab, head = 144, 96, 64, 16
    config = {
        "hidden_size": wide,
        "intermediate_size": inner,
        "vocab_size": vocab,
        "num_hidden_layers": 1,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    block = "model.layers.0"
    sizes = {
        "model.embed_tokens.weight": (vocab, wide),
        "model.norm.weight": (wide,),
        f"{block}.input_layernorm.weight": (wide,),
        f"{block}.post_attention_layernorm.weight": (wide,),
        f"{block}.self_attn.q_proj.weight": (wide, wide),
        f"{block}.self_attn.k_proj.weight": (3 * head, wide),
        f"{block}.self_attn.v_proj.weight": (3 * head, wide),
        f"{block}.self_attn.o_proj.weight": (wide, wide),
        f"{block}.mlp.gate_proj.weight": (inner, wide),
        f"{block}.mlp.up_proj.weight": (inner, wide),
        f"{block}.mlp.down_proj.weight": (wide, inner),
    }
    draw = torch.Generator().manual_seed(9)
    save_file({name: torch.randn(size, generator=draw) * 0.1 for name, size in sizes.items()}, folder / "model.safetensors")
    return folder


def last(*words: object, program: str) -> Step:
    with engine(*words) as model:
        return ran(model, program)[-1]


TEXTS = {
    "--caller cleared": (f"{append([1] * 32)}; reset a; {append([2] * 13)}", "[13, 45] to [1, 9, 13, 13]", (32, 0)),
    "--caller own_length": (f"{append([1] * 8)}; {append([2] * 5)}", "[5, 10] to [1, 9, 5, 13]", (5, 8)),
    "--reset zero": (f"{append([1] * 24)}; reset a; {append([2] * 5)}", "[5, 5] to [1, 9, 5, 29]", (0, 24)),
}
"""Each mistake with a program, the shapes that candle names, and the position passed and the length cached that they tell."""


@pytest.mark.parametrize("mistake", TEXTS)
def test_the_published_errors_come_out_word_for_word(mistake: str, candle: Path, nine_heads: Path) -> None:
    program, published, told = TEXTS[mistake]
    step = last(candle, LLAMA, nine_heads, *mistake.split(), program=program)
    assert step.divergence == "raised"
    assert step.detail.endswith(f"cannot broadcast {published}")
    read = read_broadcast(step.detail)
    assert read
    assert (read.position, read.cached) == told


@pytest.mark.parametrize(
    ("model", "limit", "half"), [("nine", 8192, 8), (LLAMA, 128, 16), (QUANTIZED, 4096, 16)], ids=lambda case: str(case)
)
def test_the_table_of_rotations_ends_in_candles_own_words(
    model: str, limit: int, half: int, candle: Path, models: dict[str, Path], nine_heads: Path
) -> None:
    """The caller's position is moved there, for feeding as many tokens takes long."""
    path = {**models, "nine": nine_heads}[model]
    kind = QUANTIZED if model == QUANTIZED else LLAMA
    program = f"{append([1] * 5)}; {append([2])}"
    here = last(candle, kind, path, "--caller", f"shift={limit - 6}", program=program)
    assert here.divergence is None
    past = last(candle, kind, path, "--caller", f"shift={limit - 5}", program=program)
    assert past.divergence == "raised"
    assert past.detail.endswith(f"narrow invalid args start + len > dim_len: [{limit}, {half}], dim: 0, start: {limit}, len:1")


# What raises nothing


@pytest.fixture
def talks(candle: Path, models: dict[str, Path]) -> Iterator[dict[str, Implementation]]:
    """Both llamas with a caller who begins anew at position 0 and makes no new cache."""
    with (
        engine(candle, LLAMA, models[LLAMA], "--reset", "zero") as llama,
        engine(candle, QUANTIZED, models[QUANTIZED], "--reset", "zero") as quantized,
    ):
        yield {LLAMA: llama, QUANTIZED: quantized}


OLD, NEW = tuple(range(100, 124)), (5, 9, 3, 700, 41, 8)


def test_one_token_on_a_used_cache_of_llama_silently_sees_the_old_conversation(talks: dict[str, Implementation]) -> None:
    (used, fresh) = (ran(talks[LLAMA], text)[-1] for text in (f"{append(OLD)}; reset a; {append(NEW[:1])}", append(NEW[:1])))
    assert used.divergence is None
    assert used.logits is not None
    assert (used.logits - fresh.logits).abs().max() > 1


def test_a_second_prompt_at_position_0_is_right_under_quantized_llama(talks: dict[str, Implementation]) -> None:
    prompt = f"{append(NEW[:5])}; {append(NEW[5:])}"
    used, fresh = (ran(talks[QUANTIZED], text)[-1] for text in (f"{append(OLD)}; reset a; {prompt}", prompt))
    assert used.divergence is None
    assert torch.equal(used.logits, fresh.logits)


@pytest.mark.parametrize("model", [LLAMA, QUANTIZED])
def test_a_branch_from_a_clone_equals_a_fresh_run(model: str, talks: dict[str, Implementation]) -> None:
    branched = ran(
        talks[model], f"{append(OLD)}; fork a b; {append((7, 7, 7))}; {append(NEW[:1], 'b')}; {append(NEW[1:2], 'b')}"
    )
    alone = ran(talks[model], f"{append(OLD)}; {append(NEW[:1])}; {append(NEW[1:2])}")
    for got, due in zip(branched[-2:], alone[-2:], strict=True):
        assert torch.equal(got.logits, due.logits)

"""A tiny random model of any architecture: small, unlike in its sizes, and loud enough for every bug to be heard."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from kvconform.harness.errors import TargetError, Unsupported
from kvconform.implementations.hf.exceptions import VOCABULARY
from kvconform.implementations.hf.names import architectures, causal, image_text, model_class
from kvconform.implementations.hf.sizes import kept_layers
from kvconform.implementations.hf.tiny import build, configuration
from transformers import PreTrainedModel

KINDS = {
    "llama": None,
    "gpt2": None,
    "bloom": None,
    "opt": None,
    "gemma3_text": {"full_attention", "sliding_attention"},
    "mixtral": None,
    "deepseek_v3": None,
    "gpt_oss": {"full_attention", "sliding_attention"},
    "mamba": {"linear_attention"},
    "mamba2": {"linear_attention"},
    "jamba": {"full_attention", "linear_attention"},
    "qwen3_next": {"full_attention", "linear_attention"},
    "qwen3_5": {"full_attention", "linear_attention"},
}
"""A dozen structures: plain, learned positions, ALiBi, windows, experts, latents, sinks, state spaces, hybrids, a text part."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=KINDS)
def named(request: pytest.FixtureRequest) -> tuple[str, PreTrainedModel]:
    return request.param, build(request.param)


def prompt(first: int = 5) -> torch.Tensor:
    drawn = torch.randint(VOCABULARY - 1, (2, 24), generator=torch.Generator().manual_seed(3))
    drawn[:, 0] = first
    return drawn


def logits(model: PreTrainedModel, tokens: torch.Tensor) -> torch.Tensor:
    return model(input_ids=tokens, use_cache=False).logits


def test_the_list_is_that_of_the_library() -> None:
    from transformers.models.auto import modeling_auto as library

    assert {"llama", "gpt2", "mamba", "deepseek_v3", "qwen2_vl"} <= set(architectures())
    assert dict.fromkeys(causal()) == dict.fromkeys(library.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert dict.fromkeys(image_text()) == dict.fromkeys(library.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    assert len(set(architectures())) == len(architectures())
    assert model_class("llama") == "LlamaForCausalLM"


def test_the_list_needs_no_torch() -> None:
    code = "import sys; from kvconform.implementations.hf.names import architectures; assert architectures()"
    code += "; assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_model_is_ready_to_be_checked(named: tuple[str, PreTrainedModel]) -> None:
    _, model = named
    assert not model.training
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) < 3e6
    assert model.config._attn_implementation == "eager"


def test_every_kind_of_layer_is_there(named: tuple[str, PreTrainedModel]) -> None:
    name, model = named
    types = getattr(model.config.get_text_config(decoder=True), "layer_types", None)
    assert KINDS[name] is None or set(types) == KINDS[name]
    assert types is None or len(types) >= 4


def test_logits_span_several_units(named: tuple[str, PreTrainedModel]) -> None:
    _, model = named
    found = logits(model, prompt())
    assert found.shape == (2, 24, VOCABULARY)
    assert found.isfinite().all()
    assert 2 <= float(found.std()) <= 10


def test_the_first_token_reaches_the_last_logits(named: tuple[str, PreTrainedModel]) -> None:
    _, model = named
    found, other = logits(model, prompt(5)), logits(model, prompt(6))
    assert float((found - other)[:, -1].abs().max()) >= 1e-2 * float(found.abs().max())


def test_the_seed_decides() -> None:
    one, same, other = build("mixtral", seed=1), build("mixtral", seed=1), build("mixtral", seed=2)
    assert torch.equal(logits(one, prompt()), logits(same, prompt()))
    assert not torch.equal(logits(one, prompt()), logits(other, prompt()))


def test_building_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    build("llama")
    assert torch.equal(before, torch.get_rng_state())


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(TargetError, match=r"no architecture 'lama'; near: llama"):
        build("lama")


def test_what_is_no_decoder_of_its_own_says_why() -> None:
    with pytest.raises(Unsupported, match="keys and values"):
        build("gemma4_assistant")


@pytest.mark.parametrize("name", causal()[::24])
def test_sizes_are_told_by_field_names(name: str) -> None:
    config = configuration(name).get_text_config(decoder=True)
    assert config.vocab_size == VOCABULARY
    assert config.hidden_size == 96
    assert 4 <= config.num_hidden_layers <= 8


WINDOW, FULL, DENSE, SPARSE = "sliding_attention", "full_attention", "dense", "sparse"


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"layer_types": [FULL] * 30}, [0, 1, 2, 3]),
        ({"layer_types": ([WINDOW] * 5 + [FULL]) * 5}, [0, 1, 5, 6, 11]),
        ({"layer_types": [WINDOW, FULL] * 15}, [0, 1, 2, 3]),
        ({"layer_types": ([WINDOW] * 2 + [FULL]) * 10, "mlp_layer_types": [DENSE] + [SPARSE] * 29}, [0, 1, 2, 3, 5]),
        ({"attn_layer_indices": [9, 18, 27]}, [0, 1, 9, 10, 18]),
        ({"hidden_size": 64}, []),
    ],
)
def test_each_kind_of_layer_is_kept_in_its_order(fields: dict[str, object], kept: list[int]) -> None:
    assert kept_layers({"num_hidden_layers": 30, **fields}) == kept

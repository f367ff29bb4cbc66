"""Each shipped reference against transformers on the same weights: two independent forward passes, one answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from kvconform.harness.precision import lifted
from kvconform.reference.shipped import WEIGHTS, PlainReference, reference, vocabulary
from torch import Tensor

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = {"gpt": transformers.GPT2LMHeadModel, "llama": transformers.LlamaForCausalLM}
ABSENT = {"gpt": ("attn.c_attn.bias", "attn.c_proj.bias"), "llama": ()}
"""Parameters that transformers' model has and the shipped weights lack: at zero they change nothing."""
ATTENTIONS = ("eager", "sdpa")
SHAPES = [(1, 1), (1, 2), (2, 7), (3, 33), (4, None)]
"""Rows and tokens a row; None is the context length."""
FLOAT32_BOUND = 32 * torch.finfo(torch.float32).eps
FLOAT64_BOUND = 1e-12


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Threads that share a busy processor wait for one another at each of these tiny operations."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def independent(name: str, dtype: torch.dtype, attention: str) -> Any:
    """transformers' model on the shipped weights. The report on loading lists the biases that `gpt` does not have."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        model, loading = MODELS[name].from_pretrained(
            WEIGHTS / name, dtype=dtype, attn_implementation=attention, output_loading_info=True
        )
    finally:
        transformers.logging.set_verbosity(verbosity)
    parameters = dict(model.named_parameters())
    for absent in loading["missing_keys"]:
        assert absent.endswith(ABSENT[name])
        torch.nn.init.zeros_(parameters[absent])
    assert not loading["unexpected_keys"]
    assert not loading["mismatched_keys"]
    return model.eval()


def draw(name: str, rows: int, length: int | None) -> Tensor:
    """Random tokens, the first and the last of the vocabulary among them."""
    shipped = reference(name)
    generator = torch.Generator().manual_seed(rows)
    tokens = torch.randint(0, shipped.vocab_size, (rows, length or shipped.config.context), generator=generator)
    tokens[0, 0], tokens[-1, -1] = 0, shipped.vocab_size - 1
    return tokens


def deviation(expected: Tensor, logits: Tensor) -> float:
    """The largest difference of two sets of logits, in units of their scale max |logit|."""
    assert expected.shape == logits.shape
    assert expected.dtype == logits.dtype
    return ((expected - logits).abs().max() / expected.abs().max()).item()


@torch.no_grad()
def independent_deviation(shipped: PlainReference, model: Any, tokens: Tensor) -> float:
    logits = shipped.logits(tokens)
    assert logits.shape == (*tokens.shape, shipped.vocab_size)
    return deviation(model(tokens).logits, logits)


@pytest.mark.parametrize(("rows", "length"), SHAPES)
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("name", MODELS)
def test_float32_agrees_within_32_ulp_of_the_scale(name: str, attention: str, rows: int, length: int | None) -> None:
    model = independent(name, torch.float32, attention)
    assert independent_deviation(reference(name), model, draw(name, rows, length)) <= FLOAT32_BOUND


@pytest.mark.parametrize(("rows", "length"), SHAPES)
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("name", MODELS)
def test_lifted_float64_agrees_to_the_last_digits(name: str, attention: str, rows: int, length: int | None) -> None:
    with lifted():
        model = independent(name, torch.float64, attention)
        wide = reference(name).to(torch.float64)
        assert independent_deviation(wide, model, draw(name, rows, length)) <= FLOAT64_BOUND


@pytest.mark.parametrize("name", MODELS)
def test_text_agrees(name: str) -> None:
    """Tokens as the models were trained on them, not drawn."""
    text = "".join(vocabulary().characters[2:])[: reference(name).config.context]
    tokens = torch.tensor([vocabulary().encode(text)])
    with lifted():
        model = independent(name, torch.float64, "eager")
        assert independent_deviation(reference(name).to(torch.float64), model, tokens) <= FLOAT64_BOUND


@pytest.mark.parametrize("window", [1, 2, 8, 200])
def test_the_window_is_the_one_of_mistral(window: int) -> None:
    """Mistral is Llama with a sliding window, so the same weights serve; 200 is wider than the context."""
    windowed = replace(reference("llama").config, sliding_window=window)
    shipped = replace(reference("llama"), config=windowed).to(torch.float64)
    sizes = {name: value for name, value in asdict(windowed).items() if name != "rope_theta"}
    config = transformers.MistralConfig(
        **sizes, rope_parameters={"rope_type": "default", "rope_theta": windowed.rope_theta}, tie_word_embeddings=True
    )
    config._attn_implementation = "eager"
    with lifted():
        model = transformers.MistralForCausalLM(config).eval()
        weights = {**shipped.parameters, "lm_head.weight": shipped.parameters["model.embed_tokens.weight"]}
        model.load_state_dict(weights)
        assert independent_deviation(shipped, model, draw("llama", 2, 40)) <= FLOAT64_BOUND


SLIPS: dict[str, Callable[[Any], Any]] = {
    "epsilon": lambda config: replace(config, rms_norm_eps=1e-6),
    "theta": lambda config: replace(config, rope_theta=10000.0),
    "window": lambda config: replace(config, sliding_window=32),
}


@pytest.mark.parametrize("slip", SLIPS.values(), ids=SLIPS)
def test_the_bounds_see_a_wrong_detail(slip: Callable[[Any], Any]) -> None:
    """A wrong number in the config is what a converter gets wrong; both bounds must tell it from rounding."""
    wrong = replace(reference("llama"), config=slip(reference("llama").config))
    tokens = draw("llama", 2, None)
    assert independent_deviation(wrong, independent("llama", torch.float32, "eager"), tokens) > 4 * FLOAT32_BOUND


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_are_those_that_the_config_names(name: str) -> None:
    shipped = reference(name)
    shapes = {parameter: tuple(weight.shape) for parameter, weight in shipped.parameters.items()}
    assert shapes == shipped.config.parameter_shapes()
    assert {weight.dtype for weight in shipped.parameters.values()} == {torch.float32}
    assert shipped.vocab_size == shipped.config.vocab_size >= len(vocabulary().characters)

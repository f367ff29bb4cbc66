"""The training recipe, on a text of a few kilobytes, and the vocabulary that goes with it."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kvconform.reference import train
from kvconform.reference.gpt import GPTConfig
from kvconform.reference.llama import LlamaConfig
from kvconform.reference.shipped import config_json, read_config
from kvconform.reference.train import RECIPES, Recipe, initial_weights, learning_rate, validation_loss
from kvconform.reference.vocabulary import Vocabulary
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = {
    "gpt": GPTConfig(vocab_size=32, n_positions=16, n_embd=24, n_layer=1, n_head=2, n_inner=32),
    "llama": LlamaConfig(
        vocab_size=32,
        max_position_embeddings=16,
        hidden_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=32,
    ),
}


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Threads that share a busy processor wait for one another at each of these tiny operations."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def small(name: str, steps: int) -> Recipe:
    return replace(RECIPES[name], config=TINY[name], steps=steps, batch=8, warm_up=10, learning_rate=1e-2)


def poem() -> str:
    """Lines of words drawn from a few, so that what comes next can be learnt."""
    words = ["the", "moon", "over", "water", "and", "wind", "in", "old", "trees", "sings", "to", "no", "one"]
    draw = random.Random(11)
    return "\n".join(" ".join(draw.choices(words, k=5)) for _ in range(200))


def held_out(tokens: Tensor) -> Tensor:
    return tokens[len(tokens) * 9 // 10 :]


@pytest.mark.parametrize("name", TINY)
def test_recipe(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command as it is documented: it learns, and what it writes is the model that it kept."""
    recipe, source, out = small(name, steps=60), tmp_path / "poem.txt", tmp_path / "made" / "out"
    source.write_text(poem(), encoding="utf-8")
    monkeypatch.setitem(RECIPES, name, recipe)
    monkeypatch.setattr(sys, "argv", ["train", name, str(source), str(out)])
    train.main()

    assert read_config(out) == recipe.config
    weights = load_file(out / "model.safetensors")
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == recipe.config.parameter_shapes()

    tokens = held_out(torch.tensor(Vocabulary.load(out / "characters.json").encode(poem())))
    untrained = initial_weights(recipe.config, torch.Generator().manual_seed(recipe.seed))
    before, after = validation_loss(recipe, untrained, tokens), validation_loss(recipe, weights, tokens)
    assert after < before - 0.5
    with safe_open(out / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "validation": f"{after:.4f}"}
    assert f"kept the weights with validation {after:.4f}" in capsys.readouterr().out


def test_the_same_recipe_gives_the_same_weights() -> None:
    tokens = torch.tensor(Vocabulary.from_text(poem(), 32).encode(poem()))
    runs = [train.train(small("gpt", steps=5), tokens, [].append) for _ in range(2)]
    (first, first_loss), (second, second_loss) = runs
    assert first_loss == second_loss
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())


def test_the_best_weights_are_kept_not_the_last() -> None:
    """The held-out end counts backwards, so that learning on makes validation worse."""
    tokens = torch.cat([torch.arange(2, 12).repeat(90), torch.arange(11, 1, -1).repeat(10)])
    recipe, reports = small("gpt", steps=200), list[str]()
    weights, loss = train.train(recipe, tokens, reports.append)
    validations = [float(line.rsplit(maxsplit=1)[1]) for line in reports]
    assert len(validations) == 2
    assert validations[0] < validations[1]
    assert loss == pytest.approx(validations[0], abs=1e-4)
    assert validation_loss(recipe, weights, held_out(tokens)) == pytest.approx(loss)


def test_the_learning_rate_warms_up_and_decays() -> None:
    recipe = small("gpt", steps=50)
    rates = [learning_rate(recipe, step) for step in range(recipe.steps)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[10] == max(rates) == recipe.learning_rate
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < recipe.learning_rate / 100


@pytest.mark.parametrize("config", [TINY["gpt"], TINY["llama"], replace(TINY["llama"], sliding_window=4)], ids=str)
def test_a_config_survives_the_file(config: GPTConfig | LlamaConfig, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_json(config)), encoding="utf-8")
    assert read_config(tmp_path) == config


@given(st.text())
def test_a_vocabulary_that_holds_all_characters_loses_none(text: str) -> None:
    vocabulary = Vocabulary.from_text(text, len(set(text)) + 2)
    tokens = vocabulary.encode(text)
    assert vocabulary.decode(tokens) == text
    assert all(1 < token < len(vocabulary.characters) for token in tokens)


@given(st.text(alphabet="abcdefgh", min_size=1), st.integers(2, 6))
def test_a_small_vocabulary_keeps_the_most_frequent(text: str, size: int) -> None:
    vocabulary = Vocabulary.from_text(text, size)
    kept, counts = vocabulary.characters[2:], Counter(text)
    assert len(vocabulary.characters) == min(size, len(counts) + 2)
    assert all(counts[character] <= counts[some] for some in kept for character in set(text) - set(kept))
    assert vocabulary.decode(vocabulary.encode(text)) == "".join(c if c in kept else "□" for c in text)


@given(st.text())
def test_the_order_of_the_text_does_not_change_the_vocabulary(text: str) -> None:
    assert Vocabulary.from_text(text, 9) == Vocabulary.from_text(text[::-1], 9)


@given(st.text())
def test_a_vocabulary_survives_its_file(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "characters.json"
    vocabulary = Vocabulary.from_text(text, 1200)
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary

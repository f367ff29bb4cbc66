"""The recipe that made the shipped weights, for any text:

    python -m kvconform.reference.train gpt poems.txt out/
    python -m kvconform.reference.train llama poems.txt out/

AdamW with linear warm-up and cosine decay over random blocks of the context length. The last tenth of the text is held
out, and validation is the mean cross-entropy (nats a character) over its non-overlapping blocks. The weights with the
lowest validation loss are kept: safetensors, `config.json` and the character list, as transformers reads them.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from . import gpt, llama
from .shipped import config_json
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class Recipe:
    """What differs from model to model."""

    model: Any
    config: Any
    steps: int
    batch: int
    dropout: float
    learning_rate: float = 3e-3
    warm_up: int = 100
    weight_decay: float = 0.05
    average: float = 0.0
    """Decay of a running average of the weights, which is then what is validated and kept; 0 keeps the last step's."""
    seed: int = 2026


RECIPES = {
    "gpt": Recipe(gpt, gpt.GPTConfig(), steps=2000, batch=128, dropout=0.2),
    "llama": Recipe(
        llama,
        llama.LlamaConfig(),
        steps=2600,
        batch=48,
        dropout=0.4,
        learning_rate=2e-3,
        weight_decay=0.2,
        average=0.995,
    ),
}


def initial_weights(config: Any, generator: torch.Generator) -> dict[str, Tensor]:
    """Norms at one, biases at zero, everything else normal with standard deviation 0.02 (GPT-2's rule)."""
    weights: dict[str, Tensor] = {}
    for name, shape in config.parameter_shapes().items():
        if name.endswith("bias"):
            weights[name] = torch.zeros(shape)
        elif len(shape) == 1:
            weights[name] = torch.ones(shape)
        else:
            weights[name] = torch.randn(shape, generator=generator) * 0.02
    return {name: weight.requires_grad_() for name, weight in weights.items()}


def learning_rate(recipe: Recipe, step: int) -> float:
    if step < recipe.warm_up:
        return recipe.learning_rate * (step + 1) / recipe.warm_up
    done = (step - recipe.warm_up) / max(1, recipe.steps - recipe.warm_up)
    return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * done))


@torch.no_grad()
def validation_loss(recipe: Recipe, weights: dict[str, Tensor], held_out: Tensor) -> float:
    """Mean cross-entropy in nats over non-overlapping blocks of the context length."""
    context = recipe.config.context
    blocks = (len(held_out) - 1) // context
    inputs = held_out[: blocks * context].view(blocks, context)
    targets = held_out[1 : blocks * context + 1].view(blocks, context)
    total = 0.0
    for some, wanted in zip(inputs.split(64), targets.split(64), strict=True):
        logits = recipe.model.forward(weights, recipe.config, some)
        total += F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum").item()
    return total / targets.numel()


def train(recipe: Recipe, text: Tensor, report: Any = print) -> tuple[dict[str, Tensor], float]:
    """The best weights seen and their validation loss."""
    torch.manual_seed(recipe.seed)
    generator = torch.Generator().manual_seed(recipe.seed)
    weights = initial_weights(recipe.config, generator)
    training, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    if len(held_out) <= recipe.config.context:
        raise ValueError(f"the text has {len(text)} characters; it needs more than {10 * recipe.config.context}")
    matrices = [weight for weight in weights.values() if weight.dim() > 1]
    vectors = [weight for weight in weights.values() if weight.dim() == 1]
    groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.99))
    context = recipe.config.context
    kept = {name: weight.detach().clone() for name, weight in weights.items()}
    best, best_loss = kept, math.inf

    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step)
        starts = torch.randint(0, len(training) - context - 1, (recipe.batch,), generator=generator)
        blocks = torch.stack([training[start : start + context + 1] for start in starts.tolist()])
        logits = recipe.model.forward(
            weights, recipe.config, blocks[:, :-1], lambda x: F.dropout(x, recipe.dropout, training=True)
        )
        loss = F.cross_entropy(logits.flatten(0, 1), blocks[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), 1.0)
        optimizer.step()
        pace = 1 - min(recipe.average, step / (step + 10))  # an average of few steps forgets its beginning faster
        for name, weight in weights.items():
            kept[name] = kept[name].lerp(weight.detach(), pace)
        if (step + 1) % 100 == 0 or step + 1 == recipe.steps:
            validation = validation_loss(recipe, kept, held_out)
            report(f"step {step + 1}/{recipe.steps}: training {loss.item():.3f}, validation {validation:.4f}")
            if validation < best_loss:
                best, best_loss = dict(kept), validation
    if math.isinf(best_loss):
        raise FloatingPointError("the training diverged: no validation loss is finite; lower the learning rate")
    return best, best_loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(RECIPES))
    parser.add_argument("text", type=Path, help="a UTF-8 text file")
    parser.add_argument("out", type=Path, help="a folder for the weights; made if it is not there")
    chosen = parser.parse_args()
    recipe = RECIPES[chosen.model]
    text = chosen.text.read_text(encoding="utf-8")
    vocabulary = Vocabulary.from_text(text, recipe.config.vocab_size)
    try:
        weights, loss = train(recipe, torch.tensor(vocabulary.encode(text)), lambda line: print(line, flush=True))
    except (ValueError, FloatingPointError) as error:
        parser.error(str(error))
    chosen.out.mkdir(parents=True, exist_ok=True)
    save_file(weights, chosen.out / "model.safetensors", metadata={"format": "pt", "validation": f"{loss:.4f}"})
    written = json.dumps(config_json(recipe.config), indent=2) + "\n"
    (chosen.out / "config.json").write_text(written, encoding="utf-8")
    vocabulary.save(chosen.out / "characters.json")
    print(f"kept the weights with validation {loss:.4f} in {chosen.out}")


if __name__ == "__main__":
    main()

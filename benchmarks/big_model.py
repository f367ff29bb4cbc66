"""Memory and forward passes of a check of a large model, scaled down; its output is kept in `docs/evidence/big_model.md`.

A random llama in bfloat16, some 300 MB with a vocabulary of 64,000, is checked by the command line in a process of its own,
with a budget, once without a second copy of its weights and once with one. Passes are counted inside the model, by nobody of
the harness; memory is what the kernel says was held at most.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

BUDGET = 500
CLAUSES = "[gd]*"
"""Decoding, and the library's own `generate`."""

RUN = """
import json, resource, sys, time
import torch
from transformers.models.llama.modeling_llama import LlamaModel
from kvconform.interface import cli
torch.set_num_threads(1)
passes, plain = [], LlamaModel.forward
def counted(self, *given, **more):
    passes.append(1)
    return plain(self, *given, **more)
LlamaModel.forward = counted
loaded = []
from kvconform.harness import registry
resolve = registry.resolve
def resolved(text):
    found = resolve(text)
    loaded.extend((len(passes), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
    return found
registry.resolve = resolved
began = time.monotonic()
try:
    cli.main()
except SystemExit as end:
    code = end.code
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
report = {"code": code, "passes": len(passes) - loaded[0], "loading": loaded[0], "loaded": loaded[1], "most": most,
          "seconds": time.monotonic() - began}
print("FIGURES " + json.dumps(report))
"""


def built(folder: Path) -> int:
    """A random model, peaked like a trained one; the bytes of its weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    sizes = {"hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2, "head_dim": 128, "vocab_size": 64_000}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4, eos_token_id=2))
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            gain = 4 if "lm_head" in name else 1.4 if "q_proj" in name or "k_proj" in name else 1
            torch.nn.init.normal_(weight, std=1 if "embed" in name else gain * weight.shape[1] ** -0.5)
    model.save_pretrained(folder)
    return sum(weight.nbytes for weight in model.parameters())


def checked(folder: Path, copies: str, clauses: str = CLAUSES, budget: int = BUDGET) -> tuple[dict[str, float], str]:
    """Figures of one check, and what it printed."""
    target = f"hf:{folder}?copies={copies}"
    given = ["check", target, "--clause", clauses, "--budget", f"{budget}passes", "--max-examples", "0", "--dtype", "bfloat16"]
    done = subprocess.run([sys.executable, "-c", RUN, *given], capture_output=True, text=True, check=False)
    printed, _, figures = done.stdout.partition("FIGURES ")
    if not figures:
        sys.exit(done.stderr)
    return json.loads(figures), printed.replace(str(folder), "FOLDER")


def main() -> None:
    mib = 2**20
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        weights = built(folder)
        print("# A large model, scaled down\n")
        print(
            f"`python benchmarks/big_model.py`: a random llama in bfloat16, {weights / mib:.0f} MiB of weights, a vocabulary of"
        )
        print(
            f"64,000, checked with `--budget {BUDGET}passes` in a process of its own, one thread. Growth is the memory held at"
        )
        print("most beyond what was held once the model had been loaded (torch, transformers and one set of weights).\n")
        print("| copies | exit | passes | of loading | once loaded | at most | growth | growth ÷ weights | seconds |")
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
        texts, most = list[str](), list[float]()
        for copies in ("no", "yes"):
            found, text = checked(folder, copies)
            texts.append(text)
            most.append(found["most"])
            growth = found["most"] - found["loaded"]
            print(
                f"| {copies} | {found['code']} | {found['passes']} | {found['loading']} | {found['loaded'] / mib:.0f} MiB "
                f"| {found['most'] / mib:.0f} MiB | {growth / mib:.0f} MiB | {growth / weights:.2f} | {found['seconds']:.0f} |"
            )
        cost = (most[1] - most[0]) / weights
        print(f"\nThe copy costs {cost:.1f} times the weights. Without it there grow: pages of the weights' file")
        print("that are read when first used, at most 256 MiB of remembered logits, and slices of comparisons.")
        print("\nWithout a copy the run said:\n")
        print("\n".join(f"    {line.rstrip()[:150]}".rstrip() for line in texts[0].strip().splitlines()))


if __name__ == "__main__":
    main()

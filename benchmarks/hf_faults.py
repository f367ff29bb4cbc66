"""Faults injected into models of transformers: `python benchmarks/hf_faults.py > docs/evidence/hf_faults.md`."""

from __future__ import annotations

import sys
from dataclasses import replace

import torch
import transformers
from kvconform.harness.fault import Kind
from kvconform.harness.judging import PROFILES
from kvconform.harness.mutation import Outcome
from kvconform.harness.mutation_run import chosen_faults, run_mutation

MODELS = ("llama", "gpt2", "gemma3_text", "mixtral", "falcon_h1", "lfm2")


def main() -> int:
    torch.set_num_threads(1)
    faults = [fault for fault in chosen_faults("*") if fault.family != "checks"]
    print(
        "# Faults injected into models of transformers\n\nMade by `python benchmarks/hf_faults.py`; tiny random models,", end=""
    )
    print(f" float64, torch {torch.__version__}, transformers {transformers.__version__}.\n")
    columns = ("model", "asked", "caught", "in the listed family", "proved equivalent", "not applicable", "right ones passed")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    outside: list[str] = []
    caught, asked = 0, 0
    for model in MODELS:
        run = run_mutation(f"arch:{model}", faults, replace(PROFILES["quick"], examples=8))
        by = {outcome: [m for m in run.mutants if m.outcome is outcome] for outcome in Outcome}
        here = sum(m.kind is Kind.FAULT and m.outcome not in (Outcome.NOT_APPLICABLE, Outcome.PROVED) for m in run.mutants)
        strange = [m for m in by[Outcome.CAUGHT] if m.clause.split(".")[0] != m.listed.split(".")[0]]
        listed = len(by[Outcome.CAUGHT]) - len(strange)
        caught, asked = caught + listed, asked + here
        outside += [f"- {m.fault} on {model}: caught by {m.clause}, listed {m.listed}" for m in strange]
        outside += [f"- {m.fault} on {model}: {m.outcome}, {m.detail}" for m in by[Outcome.PROVED]]
        outside += [f"- {problem}" for problem in run.problems]
        print(f"| {model} | {here} | {len(by[Outcome.CAUGHT])} | {listed} | {len(by[Outcome.PROVED])} ", end="")
        print(f"| {len(by[Outcome.NOT_APPLICABLE])} | {len(by[Outcome.PASSED])} |", flush=True)
    print(f"\n{caught} of {asked} ({caught / asked:.1%}) are caught in the listed family. The others:\n")
    print("\n".join(outside))
    return 0 if caught >= 0.95 * asked else 1


if __name__ == "__main__":
    sys.exit(main())

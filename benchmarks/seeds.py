"""The mutation check over many seeds: `python benchmarks/seeds.py > docs/evidence/seeds.md`.

Every fault must be caught by its family and no control flagged, whatever is drawn; and how many programs it took. The
plainly correct caches are left to `thorough.py`.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from statistics import median

import torch
from kvconform.harness.fault import Kind
from kvconform.harness.judging import PROFILES
from kvconform.harness.mutation import Mutant, Outcome
from kvconform.harness.mutation_run import chosen_faults, run_mutation

TARGETS = tuple(f"builtin:{model}/concat" for model in ("gpt", "llama", "window", "hybrid"))


def cell(seed: int, target: str) -> tuple[int, str, tuple[Mutant, ...], tuple[str, ...]]:
    """The mutation check of one model with one seed."""
    torch.set_num_threads(1)
    chosen = [fault for fault in chosen_faults("*") if fault.kind is not Kind.CORRECT]
    run = run_mutation(target, chosen, replace(PROFILES["quick"], seed=seed))
    return seed, target, run.mutants, run.problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    print(
        f"# The mutation check over {asked.seeds} seeds\n\nMade by `python benchmarks/seeds.py --seeds {asked.seeds}`;", end=""
    )
    print(f" profile quick, float64, torch {torch.__version__}.\n")
    print(
        "| seed | model | faults | caught | controls | passed | problems |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    needed: dict[str, list[int]] = defaultdict(list)
    wrong = 0
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(cell, seed, target) for seed in range(asked.seeds) for target in TARGETS]
        for future in waiting:
            seed, target, mutants, problems = future.result()
            ran = [mutant for mutant in mutants if mutant.outcome not in (Outcome.NOT_APPLICABLE, Outcome.PROVED)]
            faults = [mutant for mutant in ran if mutant.kind is Kind.FAULT]
            caught = [mutant for mutant in faults if mutant.outcome is Outcome.CAUGHT]
            right = [mutant for mutant in ran if mutant.kind is not Kind.FAULT]
            passed = [mutant for mutant in right if mutant.outcome is Outcome.PASSED]
            for mutant in caught:
                needed[mutant.fault].append(mutant.examples or 0)
            wrong += len(problems)
            print(
                f"| {seed} | {target} | {len(faults)} | {len(caught)} | {len(right)} | {len(passed)} "
                f"| {'; '.join(problems) or '—'} |",
                flush=True,
            )
    print("\n## Programs needed, over all seeds and models\n\n| fault | median | most |\n|---|---|---|")
    for fault, counts in sorted(needed.items(), key=lambda entry: (-median(entry[1]), entry[0])):
        print(f"| {fault} | {median(counts):g} | {max(counts)} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

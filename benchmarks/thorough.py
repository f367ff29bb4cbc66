"""Many generated programs on every correct implementation: `python benchmarks/thorough.py > docs/evidence/thorough.md`.

States that nothing failed, and how varied the programs were: ops a program, live caches, pairs of ops, landmark relations.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from statistics import median

import torch
from kvconform.cases.any_order import EVERYTHING
from kvconform.harness import coverage, registry
from kvconform.harness.fault import Kind
from kvconform.harness.generate import Mix, programs
from kvconform.harness.history import histories
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Program
from kvconform.harness.trial import Judged, Subject, Verdict, attempt

MODELS = ("gpt", "llama", "window", "hybrid")
MIX = Mix(ops=EVERYTHING, rows=3, caches=4, steps=(6, 15), ragged=True)


@dataclass
class Cell:
    """What one implementation showed in one precision."""

    name: str
    dtype: str
    programs: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    ops: list[int] = field(default_factory=list)
    several: int = 0
    pairs: Counter[str] = field(default_factory=Counter)
    relations: Counter[str] = field(default_factory=Counter)
    largest: float = 0.0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def cell(name: str, dtype: str, count: int) -> Cell:
    """Run one implementation in one precision."""
    from random import Random

    from hypothesis import HealthCheck, Phase, find, settings
    from hypothesis.errors import NoSuchExample

    torch.set_num_threads(1)
    resolved, precision = registry.resolve(name), getattr(torch, dtype)
    subject = Subject(resolved.implementation.to(precision), Oracle(resolved.reference, precision))
    found, started, drawn = Cell(name, dtype), time.monotonic(), list[Program]()

    def run(program: Program) -> bool:
        drawn.append(program)
        trial = attempt(logits_match, program, subject, Judged.ALL)
        found.verdicts[str(trial.verdict)] += 1
        found.largest = max(found.largest, trial.difference)
        if trial.verdict is not Verdict.PASSED:
            found.failures.append(f"{trial.verdict}: {trial.detail}: {program}")
        return False

    chosen = settings(
        max_examples=count, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    try:
        find(programs(subject.scope, MIX), run, settings=chosen, random=Random(f"{name} {dtype}"))
    except NoSuchExample:
        found.programs = len(drawn)
    found.ops = [len(program) for program in drawn]
    found.several = sum(max(len(history.caches) for history in histories(program)) > 1 for program in drawn)
    found.pairs = coverage.pairs(drawn)
    for relation, times in coverage.relations(drawn, subject.scope).items():
        found.relations[relation.partition(" ")[2]] += times
    found.seconds = time.monotonic() - started
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=2000, help="programs for each implementation and precision")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--from-cell", type=int, default=0, help="go on from this cell, where a run was cut short")
    asked = parser.parse_args()
    ways = [way for way in registry.faults().values() if way.kind is not Kind.FAULT]
    # Each way on its first model, and the plain cache on every one.
    names = [f"builtin:{way.models[0]}/{way.name}" for way in ways] + [f"builtin:{model}/concat" for model in MODELS[1:]]
    cells = [(name, dtype) for name in names for dtype in ("float32", "float64")][asked.from_cell :]
    print("# Many programs on every correct implementation\n\nMade by `python benchmarks/thorough.py", end="")
    print(f" --programs {asked.programs}`; torch {torch.__version__}.\n")
    columns = ("implementation", "precision", "programs", "passed", "other", "median ops", "two caches or more")
    columns = (*columns, "pairs", "rarest pair", "rarest landmark relation", "max Δ")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    failures: list[str] = []
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(cell, name, dtype, asked.programs) for name, dtype in cells]
        for future in waiting:
            done = future.result()
            passed = done.verdicts["passed"]
            print(
                f"| {done.name} | {done.dtype} | {done.programs} | {passed} | {done.programs - passed} "
                f"| {median(done.ops):g} | {done.several / max(done.programs, 1):.0%} | {len(done.pairs)} "
                f"| {_rarest(done.pairs)} "
                f"| {_rarest(done.relations)} | {done.largest:.2g} |",
                flush=True,
            )
            failures += [f"- {done.name} {done.dtype}: {failure}" for failure in done.failures[:3]]
    print("\n" + ("\n".join(failures) if failures else "Nothing failed."))
    return 1 if failures else 0


def _rarest(counts: Counter[str]) -> str:
    if not counts:
        return "—"
    name, count = min(counts.items(), key=lambda entry: entry[1])
    return f"{name}: {count}"


if __name__ == "__main__":
    sys.exit(main())

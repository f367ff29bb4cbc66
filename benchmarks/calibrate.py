"""Where the factors of the tolerances come from: `python benchmarks/calibrate.py > docs/evidence/calibration.md`.

Clean programs on every correct implementation, float32 and float64, as difference ÷ allowed by `rounding`; the smallest
fault of the catalogue on the same scale; honest and faulty runs of the noisy engine as ratios.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
from random import Random
from statistics import median, quantiles

import torch
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample
from kvconform.harness import registry
from kvconform.harness.fault import Kind
from kvconform.harness.generate import Mix, programs
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Program
from kvconform.harness.scope import Scope, unsupported
from kvconform.harness.tolerance import BUG_FACTOR, FLOOR_FACTOR, SCALE_ULPS, Rounding, allowance
from kvconform.harness.trial import Judged, Subject, Verdict, attempt, longest_rows

MIX = Mix(
    ops=(("append", 6), ("fork", 2), ("crop", 2), ("reset", 1), ("select", 2), ("join", 1), ("restore", 1)),
    rows=3,
    caches=3,
    steps=(2, 7),
    ragged=True,
)
MODELS = ("gpt", "llama", "window", "hybrid")


def drawn(scope: Scope, count: int, seed: str, mix: Mix = MIX) -> list[Program]:
    """So many programs of the mix."""
    found: list[Program] = []

    def note(program: Program) -> bool:
        found.append(program)
        return False

    chosen = settings(
        max_examples=count, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    with suppress(NoSuchExample):
        find(programs(scope, mix), note, settings=chosen, random=Random(seed))
    return [program for program in found if unsupported(program, scope) is None]


def share(program: Program, subject: Subject) -> float | None:
    """Largest difference ÷ what `rounding` allows; None where nothing was compared or the program broke."""
    trial = attempt(logits_match, program, subject, Judged.WARM)
    if trial.allowance is None or trial.positions == 0:
        return None
    scale, oracle = trial.allowance.scale, subject.oracle
    floor = max(map(oracle.floor, longest_rows(program)))
    return trial.difference / allowance(Rounding(), scale, floor, oracle.epsilon).allowed


def clean(total: int) -> None:
    ways = [f for f in registry.faults().values() if f.kind is not Kind.FAULT and f.name != "eight_bit"]
    cells = [(model, way) for model in MODELS for way in ways if model in way.models]
    print(f"## Clean programs\n\n{len(cells)} correct implementations and controls; difference ÷ allowed by rounding\n")
    print("| precision | programs | median | 99 % | largest | over a half |\n|---|---|---|---|---|---|")
    for dtype in (torch.float32, torch.float64):
        oracles = {model: Oracle(registry.resolve(f"builtin:{model}/concat").reference, dtype) for model in MODELS}
        found: list[float] = []
        for model, way in cells:
            implementation = registry.resolve(f"builtin:{model}/{way.name}").implementation.to(dtype)
            subject = Subject(implementation, oracles[model])
            per_cell = total // len(cells) + 1
            for program in drawn(subject.scope, per_cell, f"{model} {way.name}"):
                got = share(program, subject)
                if got is not None:
                    found.append(got)
        ends = quantiles(found, n=100)
        over = sum(one > 0.5 for one in found)
        name = str(dtype).removeprefix("torch.")
        print(f"| {name} | {len(found)} | {median(found):.3f} | {ends[98]:.3f} | {max(found):.3f} | {over} |", flush=True)


def faulty() -> None:
    print("\n## The smallest faults\n\nSmallest median of difference ÷ allowed (float32) over 40 programs on which it shows\n")
    print("| fault | model | median | least shown |\n|---|---|---|---|")
    rows: list[tuple[float, str]] = []
    for model in ("gpt", "llama"):
        oracle = Oracle(registry.resolve(f"builtin:{model}/concat").reference, torch.float32)
        for fault in registry.faults().values():
            if fault.kind is not Kind.FAULT or model not in fault.models or fault.family in ("checks", "candle"):
                continue
            subject = Subject(registry.resolve(f"builtin:{model}/{fault.name}").implementation, oracle)
            shares = [share(program, subject) for program in drawn(subject.scope, 40, f"{model} {fault.name}")]
            shown = [one for one in shares if one is not None and one > 1]
            if shown:
                rows.append((median(shown), f"| {fault.name} | {model} | {median(shown):.3g} | {min(shown):.3g} |"))
    for _, line in sorted(rows)[:12]:
        print(line)
    print(f"\nA bug begins at {BUG_FACTOR:g} × allowed.")


def noisy(count: int) -> None:
    print("\n## Ratios of the noisy engine (llama with 8-bit activations)\n")
    print(
        "| cache | programs | pooled | single programs: median | 99 % | largest | failed alone |\n|---|---|---|---|---|---|---|"
    )
    ways = ("concat", "static", "paged", "chunked", "pos_zero", "pos_minus_3", "pos_per_call", "no_cat", "kv_mismatch")
    ways = (*ways, "no_mask", "mask_top_left", "first_call_not_stored", "layers_swapped", "stored_in_half")
    oracle = Oracle(registry.resolve("builtin:llama/concat").reference, torch.float32)
    appends = Mix(ops=(("append", 1),), rows=2, caches=2, steps=(2, 6))
    for way in ways:
        subject = Subject(registry.resolve(f"builtin:noisy/{way}").implementation, oracle)
        trials = [attempt(logits_match, p, subject, Judged.ALL) for p in drawn(subject.scope, count, way, appends)]
        pools = [trial.pool for trial in trials if trial.pool is not None and trial.pool.positions]
        raised = sum(
            trial.verdict is Verdict.FAILED and trial.pool is not None and not trial.pool.positions for trial in trials
        )
        total = pools[0]
        for pool in pools[1:]:
            total += pool
        ratios = sorted(pool.ratio for pool in pools)
        failed = sum(trial.verdict is Verdict.FAILED for trial in trials)
        last = ratios[int(0.99 * (len(ratios) - 1))]
        print(
            f"| {way} | {len(trials)} | {total.ratio:.3g} | {median(ratios):.3g} | {last:.3g} | {ratios[-1]:.3g} "
            f"| {failed}{f', {raised} raised' if raised else ''} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=10_000, help="clean programs a precision")
    parser.add_argument("--noisy", type=int, default=100, help="programs for each cache of the noisy engine")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"# Calibration of the tolerances\n\nMade by `python benchmarks/calibrate.py --programs {asked.programs}`.")
    print(f"Rounding: max({FLOOR_FACTOR:g} × floor, {SCALE_ULPS:g} ulp of the scale); torch {torch.__version__}.\n")
    clean(asked.programs)
    faulty()
    noisy(asked.noisy)


if __name__ == "__main__":
    main()

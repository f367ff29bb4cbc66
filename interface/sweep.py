"""`kvconform sweep`: many targets, in parallel, resumable."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ..harness.errors import KvconformError
from . import options
from .output import show


def sweep(
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="TARGET", help="Targets, or patterns of them, as builtin:gpt/*.")
    ] = None,
    arch: Annotated[
        list[str] | None, typer.Option("--arch", metavar="PATTERN", help="The same as arch:PATTERN; repeatable.")
    ] = None,
    cache: Annotated[str, typer.Option("--cache", help="Caches to sweep over, as dynamic,static.")] = "",
    attn: Annotated[str, typer.Option("--attn", help="Attentions to sweep over, as eager,sdpa.")] = "",
    dtypes: Annotated[str, typer.Option("--dtype", help="Precisions to judge in, comma-separated.")] = "float64",
    pattern: options.Clauses = "*",
    programs: Annotated[int, typer.Option("--programs", min=1, help="Programs that a cell is asked at least.")] = 30,
    max_examples: Annotated[int, typer.Option("--max-examples", min=0, help="Generated programs a clause.")] = 2,
    seed: options.Seed = 0,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="Processes side by side; as many as cores without.")
    ] = None,
    limit: Annotated[float, typer.Option("--limit", min=1, help="Seconds that one cell may take.")] = 120.0,
    memory: Annotated[float, typer.Option("--memory", min=0, help="GiB that one process may hold; 0 for any.")] = 6.0,
    budget: options.Budget = "",
    known: options.Known = None,
    strict: options.Strict = False,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on where the last sweep in this folder ended, or begin anew.")
    ] = True,
    only_failures: options.OnlyFailures = False,
    as_json: options.AsJson = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for the journal and the reports.")] = Path("kvconform-sweep"),
    junit: options.Junit = None,
) -> None:
    """Ask many targets, side by side, and group what fails by cause. A sweep that was ended, even killed, goes on where it
    was when it is run again. Exit code 0: all hold; 1: some do not; 2: it cannot be told, or is not finished."""
    from dataclasses import replace

    import torch

    from ..harness import registry
    from ..harness.conformance import chosen
    from ..harness.known import Seen
    from ..harness.results import exit_code
    from ..harness.run import versions
    from ..harness.sweeps.run import Plan, run_sweep
    from ..harness.sweeps.sweep import SWEEP, Limits, expanded
    from ..reports.folder import writable
    from ..reports.journal import Journal
    from ..reports.sweep import sweep_report
    from .progress import sweep_progress

    began, seconds = time.monotonic(), options.seconds(budget)
    entries = options.known_deviations(known)
    profile = replace(
        SWEEP, examples=max_examples, seed=seed, known=entries, deadline=None if seconds is None else began + seconds
    )
    varied = {name: _words(name, text) for name, text in (("cache", cache), ("attn", attn)) if text}
    clauses = chosen(registry.clauses(), pattern)
    names = [*(targets or ()), *(f"arch:{name}" for name in arch or ())]
    cells = expanded(names, varied, options.dtype_names(dtypes) or ["float64"])
    if not cells:
        raise KvconformError("nothing is there to sweep over; name targets, as builtin:gpt/* (`kvconform list targets`)")
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # a process a core
    for folder in (out, junit and junit.parent):
        if folder is not None:
            writable(folder)
    head = {
        "profile": f"{profile.name} with {profile.examples} examples, {programs} programs, seed {seed}",
        "clauses": pattern,
        "limits": f"{limit:g} s, {memory:g} GiB",
        "known": [f"{entry}: {entry.told} {entry.op} {entry.dtype}" for entry in entries],
        **versions(),
    }
    journal = Journal(out / "journal.jsonl", head, fresh=not resume)
    there = sum(cell.key in journal.finished for cell in cells)
    if journal.changed:
        _tell(f"begins afresh, for {journal.changed}; what was there is kept in {out / 'journal.old.jsonl'}")
    elif there:
        _tell(f"goes on: {there} of {len(cells)} cells are finished (--fresh begins anew)")
    limits = Limits(limit, int(memory * 2**30) or None)
    plan = Plan(cells, clauses, profile, programs, limits, processes or len(os.sched_getaffinity(0)))
    with sweep_progress(len(cells), there) as progress:
        run = run_sweep(" ".join(["sweep", *names]), plan, journal, progress)
    odd = options.stale_entries(entries, map(Seen.of, run.cases))
    if strict:
        run = replace(run, problems=(*run.problems, *odd))
    told = [] if strict else [f"known deviation {line}" for line in odd]
    show(run, "\n".join([*told, sweep_report(run, only_failures)]), as_json, out, junit)
    code = exit_code(run.cases)
    raise typer.Exit(1 if odd and strict else code or (2 if run.problems else 0))


def _words(name: str, text: str) -> list[str]:
    found = [word.strip() for word in text.split(",") if word.strip()]
    if not found:
        raise KvconformError(f"--{name} {text!r} names nothing; write values with commas between them")
    return list(dict.fromkeys(found))


def _tell(line: str) -> None:
    print(f"sweep {line}", file=sys.stderr)

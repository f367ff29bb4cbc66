"""The command line. What needs torch is imported inside the commands, so that --help is quick."""

from __future__ import annotations

import os
import sys
import time
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..harness.errors import KvconformError
from . import options, report_commands
from .arguments import Group
from .explain import explain
from .output import show
from .sweep import sweep
from .traces import compare, record

if TYPE_CHECKING:
    from ..harness.judging import Profile

app = typer.Typer(
    cls=Group,
    help="Differential conformance tests for the key/value caches of decoder language models.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

TargetName = Annotated[str, typer.Argument(metavar="TARGET", help="What is judged, as builtin:gpt/concat.")]


def main() -> None:
    """Entry point: what a user can cause ends in one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):  # an engine's message may hold what is no text
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False, default_map=_default_map())
    except KvconformError as error:
        _stop(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
    except OSError as error:
        _stop(f"cannot write the output: {error.strerror or error}")
    except KeyboardInterrupt:
        _stop("interrupted", 130)
    except Exception as error:
        if not hasattr(error, "format_message"):  # what typer raises for a call that is wrong has it
            if os.environ.get("KVCONFORM_TRACEBACK"):
                raise
            from ..harness.place import raised_at

            whose = "your code raises" if (place := raised_at(error)) else "a defect in kvconform, not in your model:"
            _stop(f"{whose} {type(error).__name__}: {error}{place} (KVCONFORM_TRACEBACK=1 shows where)")
        context = getattr(error, "ctx", None)
        asked = f"kvconform {context.info_name}" if context is not None and context.parent is not None else "kvconform"
        _stop(f"{error.format_message()} ({asked} --help shows what there is)")  # type: ignore[attr-defined]
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _stop(line: str, code: int = 2) -> None:
    sys.stdout.flush()
    print(f"kvconform: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(code)


def _default_map() -> dict[str, Any]:
    """Defaults of every command from `[tool.kvconform]`."""
    found = {name.replace("-", "_"): value for name, value in options.defaults().items()}
    names = {"clause": "pattern", "profile": "profile_name", "dtype": "dtypes"}
    renamed = {names.get(name, name): value for name, value in found.items()}
    return dict.fromkeys(("check", "table", "mutate", "replay", "sweep"), renamed)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"kvconform {installed('kvconform')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


@app.command()
def check(
    target: TargetName,
    pattern: options.Clauses = "*",
    profile_name: options.ProfileName = "default",
    max_examples: options.Examples = None,
    budget: options.Budget = "",
    seed: options.Seed = 0,
    dtypes: options.Dtypes = "",
    reference: options.ReferenceName = "",
    device: options.Device = "",
    time_limit: options.TimeLimit = 60.0,
    stall_limit: options.StallLimit = 5.0,
    isolate: options.Isolate = None,
    known: options.Known = None,
    strict: options.Strict = False,
    locate: options.Locate = False,
    only_failures: options.OnlyFailures = False,
    as_json: options.AsJson = False,
    out: options.Out = None,
    junit: options.Junit = None,
) -> None:
    """Ask the contract of one implementation. Exit code 0: it holds; 1: it does not; 2: it cannot be told."""
    from dataclasses import replace

    options.glance(target, reference)
    from ..harness import registry, saved
    from ..harness.conformance import chosen
    from ..harness.known import Seen
    from ..harness.results import exit_code
    from ..harness.sources import judged_by, placed
    from ..reports.as_text import as_text
    from .api import guarding_of, run_check, sentences
    from .progress import progress

    kept = tuple(saved.load())
    names, entries = options.dtype_names(dtypes), options.known_deviations(known)
    profile = replace(_profile(profile_name, max_examples, budget, seed), saved=kept, known=entries)
    total = len(chosen(registry.clauses(), pattern)) * (len(names) or 2)
    apart = target.partition(":")[0] not in options.TOGETHER if isolate is None else isolate
    _prepare(out, target, junit)
    target = placed(target, device)
    guarding = guarding_of(target, time_limit, apart, stall_limit)
    resolved = judged_by(registry.resolve(target), placed(reference, device, strict=False) or None)
    with progress(f"check {target}", total) as began:
        run = run_check(target, resolved, pattern, profile, names, began, guarding, locate)
    saved.keep(kept, run.cases, resolved.given or "")
    odd = options.stale_entries(entries, map(Seen.of, run.cases))
    run = replace(run, problems=tuple(odd) if strict else ())
    told = [] if as_json else [f"known deviation {line}" for line in odd]
    show(run, "\n".join([*told, as_text(run, sentences(), only_failures)]), as_json, out, junit)
    raise typer.Exit(1 if odd and strict else exit_code(run.cases))


@app.command()
def table(
    patterns: Annotated[list[str] | None, typer.Argument(metavar="TARGET", help="As builtin:gpt/*; all without.")] = None,
    max_examples: Annotated[int, typer.Option("--max-examples", min=0, help="Generated programs a clause.")] = 0,
    seed: options.Seed = 0,
    only_failures: Annotated[bool, typer.Option("--only-failures", help="Show only rows that are not as expected.")] = False,
    as_json: options.AsJson = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for the report files.")] = Path("kvconform-report"),
    junit: options.Junit = None,
) -> None:
    """The failure table of the built-in implementations. Exit code 0: every fault is caught, everything else passes."""
    from ..harness.table_run import listed, run_table
    from ..reports.as_text import as_text
    from .api import sentences
    from .progress import progress

    profile = _profile("quick", max_examples, "", seed)
    chosen = listed(patterns) if patterns else [one for one in listed(["*"]) if one.shown]
    _prepare(out, junit=junit)
    with progress("table", len(chosen)) as began:
        run = run_table(chosen, profile, began)
    show(run, as_text(run, sentences(), only_failures), as_json, out, junit)
    raise typer.Exit(0 if not run.problems and run.rows else 1)


@app.command()
def mutate(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The built-in models without one.")] = "",
    profile_name: options.ProfileName = "quick",
    max_examples: options.Examples = None,
    budget: options.Budget = "",
    seed: options.Seed = 0,
    dtypes: options.Dtypes = "",
    faults: Annotated[str, typer.Option("--fault", help="Inject only faults whose name matches this pattern.")] = "*",
    diagnose: Annotated[bool, typer.Option("--diagnose", help="Say too whether each fault is named right.")] = False,
    only_failures: options.OnlyFailures = False,
    as_json: options.AsJson = False,
    out: options.Out = None,
    junit: options.Junit = None,
) -> None:
    """Inject every fault and show which clause catches it. Exit code 0: all that could be tried are caught; 1: a fault
    survives or a control is flagged; 2: something errored, or no fault could be tried."""
    options.glance(target)
    from ..harness.mutation import exit_code
    from ..harness.mutation_run import chosen_faults, run_mutation
    from ..reports.as_text import as_text
    from .api import sentences
    from .progress import progress

    chosen, profile = chosen_faults(faults), _profile(profile_name, max_examples, budget, seed)
    _prepare(out, target or "builtin:", junit)
    with progress("mutate", len(chosen) * (1 if target else 4)) as began:
        run = run_mutation(target, chosen, profile, options.dtype_names(dtypes), began, diagnose)
    show(run, as_text(run, sentences(), only_failures), as_json, out, junit)
    raise typer.Exit(exit_code(run.mutants))


@app.command()
def replay(
    target: TargetName,
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help='As "append a 5 9 3; append a 7".')],
    pattern: Annotated[
        str, typer.Option("--clause", help="Judge as this clause does; all appends, by rounding, without.")
    ] = "",
    dtypes: options.Dtypes = "",
    reference: options.ReferenceName = "",
    device: options.Device = "",
    locate: options.Locate = False,
) -> None:
    """Run one program step by step. Exit code 0: it passed; 1: it failed; 2: it cannot be told."""
    options.glance(target, reference)
    from ..harness import registry
    from ..harness.replay import kept_failure, replayed
    from ..harness.sources import judged_by, placed

    names = options.dtype_names(dtypes)
    if not reference and (kept := kept_failure(program)):
        reference = kept.reference
    _prepare(None, target)
    target = placed(target, device)
    resolved = judged_by(registry.resolve(target), placed(reference, device, strict=False) or None)
    code = 0
    for text, worst in replayed(target, resolved, program, pattern, names, locate):
        typer.echo(text)
        code = 1 if 1 in (code, worst) else max(code, worst)
    raise typer.Exit(code)


app.command()(sweep)


@app.command(name="list")
def list_(
    what: Annotated[str, typer.Argument(metavar="clauses|targets|faults")],
    override: Annotated[bool, typer.Option("--override", help="With faults: print the override that is the bug.")] = False,
) -> None:
    """Show the clauses of the contract, the targets that can be named, or the catalogue of faults."""
    from ..reports.listing import LISTINGS, fault_overrides

    if what not in LISTINGS:
        raise KvconformError(f"no list of {what!r}; there are {', '.join(LISTINGS)}")
    typer.echo(fault_overrides() if override and what == "faults" else LISTINGS[what]())


def _profile(name: str, examples: int | None, budget: str, seed: int) -> Profile:
    from .api import profile_named

    passes = options.passes(budget)
    limit = options.seconds(budget) if passes is None else None
    deadline = None if limit is None else time.monotonic() + limit
    return profile_named(name, examples=examples, seed=seed, deadline=deadline, passes=passes)


def _prepare(out: Path | None, target: str = "", junit: Path | None = None) -> None:
    """Before work begins: folders for reports that can be written to, and one thread for tiny models, built-in and drawn,
    whose threads would wait for each other longer than they compute."""
    for folder in (out, junit and junit.parent):
        if folder is not None:
            from ..reports.folder import writable

            writable(folder)
    if target.startswith(("builtin:", "arch:")) and "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(1)


app.command()(explain)
app.command()(report_commands.report)
app.command()(report_commands.diff)
app.command()(record)
app.command()(compare)

if __name__ == "__main__":
    main()

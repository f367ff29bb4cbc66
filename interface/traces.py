"""`kvconform record` and `kvconform compare`: logits that go from one engine to another as a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..harness.errors import KvconformError
from . import options

if TYPE_CHECKING:
    from ..harness.program import Program, Row


def record(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Whose reference is recorded, as builtin:gpt/concat.")],
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help='As "append a 5 9 3; append a 7", or @FILE that holds it.')
    ] = "",
    tokens: Annotated[str, typer.Option("--tokens", help='Instead of a program: "5 9 3 7", or @FILE.')] = "",
    prefill: Annotated[
        int, typer.Option("--prefill", min=0, help="With --tokens: so many in the first call, then one a call. 0: all.")
    ] = 0,
    implementation: Annotated[
        bool, typer.Option("--implementation", help="Record what the implementation gives, not what its reference does.")
    ] = False,
    dtype: Annotated[str, typer.Option("--dtype", help="Precision to record in, as float64; the target's own without.")] = "",
    out: Annotated[Path, typer.Option("--out", help="The safetensors file to write.")] = Path("ref.safetensors"),
) -> None:
    """Write the logits that a program should give to a file, for `kvconform compare`."""
    options.glance(target)
    from ..harness import registry
    from ..harness.traces.record import record_implementation, record_reference

    names = options.dtype_names(dtype)
    if len(names) > 1:
        raise KvconformError(f"a trace is of one precision; choose one of --dtype {dtype}")
    asked = _program(program, tokens, prefill)
    if out.suffix != ".safetensors":
        raise KvconformError(f"--out {out}: a trace is a safetensors file; let its name end in .safetensors")
    if not out.absolute().parent.is_dir():
        raise KvconformError(f"--out {out}: there is no folder {out.absolute().parent}")
    resolved = registry.resolve(target)
    write = record_implementation if implementation else record_reference
    header = write(target, resolved, asked, names[0] if names else "", out)
    whose = "the implementation" if implementation else f"the reference ({header.source})"
    noise = "" if header.floor is None else f", floor {header.floor:.3g}"
    typer.echo(f"{out}: {whose} of {target} in {header.dtype}, scale {header.scale:.3g}{noise}")


def compare(
    ref: Annotated[Path, typer.Argument(metavar="REF", help="What is due: from kvconform record, or any trace.")],
    got: Annotated[Path, typer.Argument(metavar="GOT", help="What an engine gave: safetensors or npy.")],
    positions: Annotated[
        str, typer.Option("--positions", help="Which positions GOT holds: last, decode, or 0,4,16-32. All without.")
    ] = "",
    tolerance: Annotated[
        float | None, typer.Option("--tolerance", help="Largest |Δlogit| that passes, instead of a measured one.")
    ] = None,
    reference: Annotated[
        str,
        typer.Option(
            "--reference", metavar="TARGET", help="Compute what is due, and its noise, anew: a target on the same weights."
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Judge logits that any engine wrote to a file. Exit code 0: they are right; 1: they are not; 2: it cannot be told."""
    options.glance(reference)
    from ..harness import registry
    from ..harness.sources import reference_of
    from ..harness.traces.compare import judge_traces
    from ..harness.traces.read import open_trace
    from ..harness.trial import Verdict
    from ..reports.trace import comparison_json, comparison_text

    if tolerance is not None and not 0 <= tolerance < float("inf"):
        raise KvconformError(f"--tolerance {tolerance} is no size; write a number such as 1e-3")
    due, given = open_trace(ref), open_trace(got)
    by = reference_of(registry.resolve(reference)) if reference else None
    found = judge_traces(due, given, positions=positions, tolerance=tolerance, reference=by)
    typer.echo((comparison_json if as_json else comparison_text)(found, str(ref), str(got)))
    raise typer.Exit({Verdict.PASSED: 0, Verdict.FAILED: 1}.get(found.verdict, 2))


def _program(program: str, tokens: str, prefill: int) -> Program:
    """The program that the call names. Raises `KvconformError` where it names none, or two."""
    from ..harness.history import histories
    from ..harness.program import Program
    from ..harness.traces.layout import simple_program

    if bool(program) == bool(tokens):
        raise KvconformError('give a program ("append a 5 9 3; append a 7") or --tokens "5 9 3 7", one of the two')
    if prefill and not tokens:
        raise KvconformError("--prefill goes with --tokens; a program says itself what each call holds")
    if tokens:
        return simple_program(_tokens(_read(tokens)), prefill)
    found = Program.parse(_read(program))
    histories(found)
    return found


def _read(text: str) -> str:
    """The text itself, or that of the file behind an @."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KvconformError(f"cannot read {text[1:]}: {getattr(error, 'strerror', None) or 'it is no text'}") from None


def _tokens(text: str) -> Row:
    words = re.split(r"[\s,]+", text.strip(" \t\n[],"))
    for word in words:
        if not re.fullmatch(r"[0-9]{1,18}", word):
            raise KvconformError(f"--tokens: {word[:40]!r} is no whole number from 0 on")
    return tuple(map(int, words))

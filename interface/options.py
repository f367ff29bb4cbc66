"""Options that several commands share, and the defaults from `[tool.kvconform]` in pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..harness.errors import KvconformError

if TYPE_CHECKING:
    from ..harness.known import Known as Entry
    from ..harness.known import Seen

Clauses = Annotated[str, typer.Option("--clause", help="Ask only clauses whose id matches this pattern, as branch.*")]
ProfileName = Annotated[str, typer.Option("--profile", help="How much is asked: quick, default or thorough.")]
Examples = Annotated[
    int | None,
    typer.Option(
        "--max-examples",
        min=0,
        help="Generated programs a clause. Default: the profile's: quick 15, default 60, thorough 2000.",
    ),
]
Budget = Annotated[
    str, typer.Option("--budget", help="Stop asking after this time, or so many forward passes: 90s, 5m, 1h, 200passes.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the generated programs; the same seed draws the same ones.")]
Dtypes = Annotated[str, typer.Option("--dtype", help="Precisions to judge in, comma-separated, as float64,float32.")]
TimeLimit = Annotated[float, typer.Option("--time-limit", min=0, help="Seconds that one program may take; 0 for any.")]
StallLimit = Annotated[
    float,
    typer.Option("--stall-limit", min=0, help="Seconds that an engine may pause in the middle of a reply; 0 for any."),
]
ReferenceName = Annotated[
    str,
    typer.Option(
        "--reference",
        metavar="TARGET",
        help="What it is judged by: a target on the same weights, as hf:FOLDER. Default: what its own target brings, else its "
        "own full, else its own single calls.",
    ),
]
Device = Annotated[str, typer.Option("--device", help="Where models run, as cuda; for targets that take it.")]
Isolate = Annotated[
    bool | None,
    typer.Option(
        "--isolate/--no-isolate",
        help="Run it in a process of its own, so that a crash costs one program. Default: not for models in Python.",
    ),
]
TOGETHER = ("builtin", "hf", "arch", "model", "py")
"""Schemes whose targets share our process unless told otherwise: models do not kill it, and a worker loads them again."""
Locate = Annotated[bool, typer.Option("--locate", help="Say in which layer and tensor a failure begins; for models in torch.")]
OnlyFailures = Annotated[bool, typer.Option("--only-failures", help="Show only what did not pass.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result file to standard output instead of text.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for result.jsonl, report.md and report.html.")]
Junit = Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML to this file, for CI systems.")]

Known = Annotated[Path | None, typer.Option("--known", help="File of known deviations, which leave the exit code alone.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Fail on an entry of known deviations that no longer fails, or matches nothing.")
]

DTYPES = ("float64", "float32", "bfloat16", "float16", "quieter")
KNOWN = {
    "target",
    "clause",
    "profile",
    "max-examples",
    "budget",
    "seed",
    "dtype",
    "only-failures",
    "out",
    "junit",
    "reference",
    "device",
    "time-limit",
    "stall-limit",
    "isolate",
    "known",
    "strict",
    "locate",
}


def glance(*targets: str) -> None:
    """Raises `TargetError` for what can be seen to be wrong with targets before torch is loaded; an empty one is none."""
    from ..harness import registry

    for target in filter(None, targets):
        registry.glance(target)


def defaults(folder: Path | None = None) -> dict[str, Any]:
    """`[tool.kvconform]` of the nearest pyproject.toml from `folder` upwards. Raises `KvconformError` where it is wrong."""
    start = (folder or Path.cwd()).resolve()
    for place in (start, *start.parents):
        path = place / "pyproject.toml"
        if path.is_file():
            found = _section(path)
            if unknown := sorted(set(found) - KNOWN):
                raise KvconformError(
                    f"[tool.kvconform] in {path} has no option {unknown[0]!r}; it takes {', '.join(sorted(KNOWN))}"
                )
            if isinstance(known := found.get("known"), str):
                found["known"] = str(path.parent / known)
            return found
    return {}


def known_deviations(path: Path | None) -> tuple[Entry, ...]:
    """The entries of a file; none without one. Raises `KvconformError` where it is wrong."""
    from ..harness.known import load

    return load(path) if path else ()


def stale_entries(entries: Sequence[Entry], seen: Iterable[Seen]) -> list[str]:
    """A line for each entry that no longer fails or matches nothing."""
    from ..harness import registry
    from ..harness.known import stale

    if not entries:
        return []
    return stale(entries, seen, [one.target for scheme in registry.schemes().values() for one in scheme.listing()])


def _section(path: Path) -> dict[str, Any]:
    """`[tool.kvconform]` of a file, empty where it has none."""
    try:
        found: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KvconformError(f"{path} is no valid TOML: {error}") from None
    for name in ("tool", "kvconform"):
        found = found.get(name, {})
        if not isinstance(found, dict):
            raise KvconformError(f"{name} in {path} is no table; write [tool.kvconform] and the options below it")
    return found


def seconds(budget: str) -> float | None:
    """A time such as 90s, 5m or 1h in seconds; None for the empty string."""
    if not budget:
        return None
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (budget[:-1], budget[-1]) if budget[-1] in units else (budget, "s")
    try:
        found = float(number) * units[unit]
    except ValueError:
        found = -1.0
    if not 0 < found < 1e9:
        raise KvconformError(f"--budget {budget!r} is no time; write it as 90s, 5m or 1h, or as 200passes")
    return found


def passes(budget: str) -> int | None:
    """A number of forward passes such as 200passes; None for a time. Raises `KvconformError` for a number that is none."""
    if not (unit := re.search(r"\s*pass(es)?$", budget)):
        return None
    number = budget[: unit.start()]
    if not number.isascii() or not number.isdecimal() or not 0 < int(number) < 10**9:
        raise KvconformError(f"--budget {budget!r} is no number of forward passes; write it as 200passes")
    return int(number)


def dtype_names(text: str) -> list[str]:
    """The precisions asked for, checked by name."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in DTYPES:
            raise KvconformError(f"--dtype {name!r} is not known; the precisions are {', '.join(DTYPES)}")
    return names

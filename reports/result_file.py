"""The result file: JSON Lines with a header and a footer, the source of every other report."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

from ..harness.diagnosis.diagnosis import Confidence, Diagnosis
from ..harness.errors import ResultError
from ..harness.fault import Kind
from ..harness.mutation import Mutant, Outcome
from ..harness.results import Case, Cell, Finding
from ..harness.run import SCHEMA_VERSION, Header, Run
from ..harness.sweeps.grouping import Group
from ..harness.table import Danger, TableRow
from ..harness.trial import Verdict

RECORDS = ("case", "row", "mutant", "cell", "group")
FIGURES = {"largest", "allowed", "noise", "deviation", "ratio", "usual", "difference", "floor", "prefill", "incremental"}
ENUMS: dict[str, type[Enum]] = {"verdict": Verdict, "kind": Kind, "danger": Danger, "outcome": Outcome}


def lines(run: Run) -> Iterator[str]:
    """The file's lines: a header, a record for each case, row and mutant, a footer with the counts."""
    yield line("header", asdict(run.header))
    for kind, records in records_of(run):
        for record in records:
            identity = {} if isinstance(record, TableRow) else {"id": record.id}
            yield line(kind, identity | asdict(record))
    counted = {kind: len(records) for kind, records in records_of(run)}
    footer = {"records": counted, "counts": run.counts, "problems": run.problems, "seconds": round(run.seconds, 3)}
    yield line("footer", footer)


def records_of(run: Run) -> tuple[tuple[str, Sequence[Case | TableRow | Mutant | Cell | Group]], ...]:
    """The records between head and foot by kind."""
    return ("case", run.cases), ("row", run.rows), ("mutant", run.mutants), ("cell", run.cells), ("group", run.groups)


def write(run: Run, stream: TextIO) -> None:
    for line in lines(run):
        stream.write(line + "\n")


def read(path: Path) -> Run:
    """Read a result file. Raises `ResultError` where it is not one, or was cut off."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise ResultError(f"cannot read the result file {path}: {why}") from None
    records: dict[str, list[dict[str, Any]]] = {kind: [] for kind in ("header", *RECORDS, "footer")}
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        try:
            record = json.loads(line)
            if record["type"] == "header":
                _of_this_schema(path, record.get("schema"))
            records[record.pop("type")].append(record)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise ResultError(f"line {number} of {path} is no record of a kvconform result file") from None
    if len(records["header"]) != 1 or len(records["footer"]) != 1:
        raise ResultError(f"{path} has no header or no footer: it is no whole kvconform result file; run the command again")
    header, footer = records["header"][0], records["footer"][0]
    counted = {kind: len(records[kind]) for kind in RECORDS}
    if not isinstance(footer.get("records"), dict) or dict.fromkeys(RECORDS, 0) | footer["records"] != counted:
        raise ResultError(f"{path} has lost records, or has some twice: its footer counts {footer.get('records')}")
    try:
        return Run(
            header=_header(header),
            cases=tuple(read_case(record) for record in records["case"]),
            rows=tuple(TableRow(**_typed(record)) for record in records["row"]),
            mutants=tuple(Mutant(**_typed(record)) for record in records["mutant"]),
            cells=tuple(read_cell(record) for record in records["cell"]),
            groups=tuple(_group(record) for record in records["group"]),
            problems=tuple(footer["problems"]),
            seconds=footer["seconds"],
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ResultError(f"{path} does not hold what a kvconform result file holds: {error}") from None


def _of_this_schema(path: Path, schema: object) -> None:
    """Told before anything else of the file is read, which may hold records that only another version knows."""
    if schema != SCHEMA_VERSION:
        newer = isinstance(schema, int) and schema > SCHEMA_VERSION
        mend = "update kvconform" if newer else "run the command again"
        raise ResultError(f"{path} has schema {schema}; this kvconform reads {SCHEMA_VERSION}; {mend}")


def line(kind: str, content: dict[str, Any]) -> str:
    """One record as a line of JSON."""
    return json.dumps({"type": kind, **_plain(content)}, allow_nan=False)


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN; they are written as the strings inf and nan."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(abs(value))
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _typed(record: dict[str, Any]) -> dict[str, Any]:
    record.pop("id", None)
    return {
        name: ENUMS[name](value) if name in ENUMS else _figure(value) if name in FIGURES else value
        for name, value in record.items()
    }


def _figure(value: Any) -> Any:
    """A number, where one was written as a string."""
    return float(value) if value in ("inf", "nan") else value


def _header(record: dict[str, Any]) -> Header:
    targets = tuple(record.pop("targets"))
    return Header(**record, targets=targets)


def read_case(record: dict[str, Any]) -> Case:
    found = tuple(read_finding(finding) for finding in record.pop("findings"))
    replayed = tuple((program, outcome) for program, outcome in record.pop("replayed"))
    return Case(**_typed(record), findings=found, replayed=replayed)


def read_cell(record: dict[str, Any]) -> Cell:
    return Cell(**_typed(record))


def _group(record: dict[str, Any]) -> Group:
    record.pop("id", None)
    finding, common = read_finding(record.pop("finding")), record.pop("common")
    return Group(finding, common, **{name: tuple(value) for name, value in record.items()})


def read_finding(record: dict[str, Any]) -> Finding:
    known = {field.name for field in fields(Finding)}
    curve = tuple((int(token), float(gap)) for token, gap in record.pop("curve"))
    landmarks = tuple(map(int, record.pop("landmarks", ())))
    told = record.pop("diagnosis")
    return Finding(
        **{name: _figure(value) if name in FIGURES else value for name, value in record.items() if name in known},
        curve=curve,
        landmarks=landmarks,
        diagnosis=None if told is None else _diagnosis(told),
    )


def _diagnosis(record: dict[str, Any]) -> Diagnosis:
    confidence, margin = Confidence(record.pop("confidence")), _figure(record.pop("margin"))
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
    return Diagnosis(confidence, margin=margin, **plain)

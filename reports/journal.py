"""What a sweep has finished, on disk as it goes: a killed sweep goes on where it was.

The file holds the lines of a result file: a head, then for each finished cell its cases and, closing it, its cell; later
findings that were shrunk, under the ids that they had. A line that was torn, and cases that no cell closes, are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from ..harness.errors import ResultError
from ..harness.results import Case, Finding
from ..harness.sweeps.sweep import Swept
from .result_file import line, read_case, read_cell, read_finding


@dataclass
class Kept:
    """What a journal holds. `size`: bytes up to the end of its last whole record."""

    head: dict[str, Any] = field(default_factory=dict[str, Any])
    finished: dict[str, Swept] = field(default_factory=dict[str, Swept])
    shrunk: dict[str, Finding] = field(default_factory=dict[str, Finding])
    size: int = 0


def read(path: Path) -> Kept:
    """What can be relied on in a journal; nothing where there is none."""
    kept = Kept()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return kept
    except OSError as error:
        raise ResultError(f"cannot read the journal {path}: {error.strerror}") from None
    cases: list[Case] = []
    at = 0
    for raw in data.split(b"\n")[:-1]:  # behind the last end of a line stands nothing, or what was torn
        at += len(raw) + 1
        try:
            record = json.loads(raw)
            match record.pop("type"):
                case "journal":
                    kept.head = record
                case "case":
                    cases.append(read_case(record))
                    continue  # it counts once its cell is closed
                case "cell":
                    cell = read_cell(record)
                    kept.finished[cell.key] = Swept(cell, tuple(cases))
                    cases = []
                case "shrunk":
                    kept.shrunk[record["of"]] = read_finding(record["finding"])
                case _:
                    break
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            break
        if not kept.head:
            break
        kept.size = at
    return kept


class Journal:
    """Writes it. `head` says what was asked and by what; a journal with another one is put aside, for `changed` says why."""

    def __init__(self, path: Path, head: Mapping[str, Any], fresh: bool = False) -> None:
        """Raises `ResultError` where the file cannot be written."""
        self.path = path
        wanted = json.loads(json.dumps(dict(head)))
        old = Kept() if fresh else read(path)
        self.changed = _difference(old.head, wanted) if old.head else ""
        kept = old if old.head == wanted else Kept(wanted)
        self.finished, self.shrunk = kept.finished, kept.shrunk
        try:
            if self.changed:
                path.replace(path.with_suffix(".old.jsonl"))
            self.stream: TextIO = path.open("r+" if kept.size else "w", encoding="utf-8", newline="\n")
            self.stream.seek(kept.size)
            self.stream.truncate()
        except OSError as error:
            raise ResultError(f"cannot write the journal {path}: {error.strerror}; give another --out") from None
        if not kept.size:
            self._write(line("journal", wanted))

    def keep(self, swept: Swept) -> None:
        self._write(*(line("case", asdict(case)) for case in swept.cases), line("cell", asdict(swept.cell)))

    def keep_shrunk(self, of: str, finding: Finding) -> None:
        self._write(line("shrunk", {"of": of, "finding": asdict(finding)}))

    def _write(self, *lines: str) -> None:
        self.stream.write("".join(f"{one}\n" for one in lines))
        self.stream.flush()
        os.fsync(self.stream.fileno())


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The first thing that is not as it was."""
    for name in dict.fromkeys((*new, *old)):
        if old.get(name) != new.get(name):
            return f"{name} is {new.get(name)}, and was {old.get(name)}"
    return ""

"""Programs that failed, kept in a folder beside the work, to be run first the next time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import KvconformError, ProgramError
from .program import Program
from .results import Case, content_id

FOLDER = Path(".kvconform")
FILE = "failures.jsonl"


@dataclass(frozen=True)
class Saved:
    """A program that failed a clause, judged by a reference where one was given."""

    target: str
    clause: str
    dtype: str
    program: str
    reference: str = ""

    @property
    def id(self) -> str:
        return content_id(self.target, self.clause, self.dtype, self.program, self.reference)

    @property
    def case(self) -> tuple[str, str, str, str]:
        """What it was asked of: the same program need not fail by another reference."""
        return self.target, self.clause, self.dtype, self.reference


def load(folder: Path = FOLDER) -> list[Saved]:
    """What is kept; nothing where there is no such folder. Raises `KvconformError` where the file is damaged."""
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        entries = [Saved(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        for entry in entries:
            Program.parse(entry.program)
    except (OSError, ValueError, TypeError, ProgramError):
        raise KvconformError(f"{path} is damaged; delete it and run again (only kept failures are lost)") from None
    return entries


def programs(entries: Iterable[Saved], target: str, clause: str, dtype: str, reference: str = "") -> list[Program]:
    """The kept programs of one case."""
    return [Program.parse(one.program) for one in entries if one.case == (target, clause, dtype, reference)]


def keep(entries: Iterable[Saved], cases: Iterable[Case], reference: str = "", folder: Path = FOLDER) -> None:
    """Keep what still fails by this reference and what is new; drop what was fixed. A folder that cannot be written to is
    left alone."""
    ran = list(cases)
    asked = {(case.target, case.clause, case.dtype, reference) for case in ran}
    untouched = [one for one in entries if one.case not in asked]
    found = [finding for case in ran for finding in case.findings if not finding.known]
    failed = [Saved(finding.target, finding.clause, finding.dtype, finding.program, reference) for finding in found]
    still = [
        Saved(case.target, case.clause, case.dtype, program, reference)
        for case in ran
        for program, outcome in case.replayed
        if outcome != "FIXED" and not case.findings
    ]
    wanted = list(dict.fromkeys([*untouched, *still, *failed]))
    path = folder / FILE
    if not wanted and not path.exists():
        return
    try:
        folder.mkdir(exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text("".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in wanted), encoding="utf-8")
        new.replace(path)
    except OSError:
        return

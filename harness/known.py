"""Known deviations: failures that are listed in a file with a reason, and leave the exit code alone."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .clause import matches
from .errors import KvconformError

if TYPE_CHECKING:
    from .results import Case


@dataclass(frozen=True)
class Known:
    """One entry: which failures it lists, by shell patterns, and why they are there. `version` says for which version of
    a package it holds, as `transformers<5.25`; `place` is where it stands."""

    target: str
    clause: str
    reason: str
    link: str = ""
    version: str = ""
    op: str = "*"
    dtype: str = "*"
    place: str = ""

    def covers(self, target: str, clause: str, dtype: str) -> bool:
        """Is this case one that it is about?"""
        return fnmatchcase(target, self.target) and matches(clause, self.clause) and fnmatchcase(dtype, self.dtype)

    def excuses(self, target: str, clause: str, dtype: str, op: str) -> bool:
        """Is a failure of this case at this kind of op listed?"""
        return self.covers(target, clause, dtype) and fnmatchcase(op, self.op)

    @property
    def told(self) -> str:
        return self.reason + (f" ({self.link})" if self.link else "")

    def __str__(self) -> str:
        return f"{self.place}: {self.target} {self.clause}"


def listed(entries: Iterable[Known], target: str, clause: str, dtype: str, op: str) -> Known | None:
    """The first entry that lists a failure."""
    return next((entry for entry in entries if entry.excuses(target, clause, dtype, op)), None)


REQUIRED = ("target", "clause", "reason")
FORM = '[[known]] target = "builtin:gpt/*" clause = "branch.*" reason = "why"'


def load(path: Path) -> tuple[Known, ...]:
    """Read a file of entries; those for another installed version are left out. Raises `KvconformError` where it is wrong."""
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KvconformError(f"cannot read the known deviations {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KvconformError(f"{path} is no valid TOML: {error}") from None
    entries = found.pop("known", [])
    if found or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        odd = f" It also has {next(iter(found))!r}." if found else ""
        raise KvconformError(f"{path} holds entries of the form {FORM}, and nothing else.{odd}")
    read = [one for number, entry in enumerate(entries, 1) for one in _each(entry, f"{path} entry {number}")]
    return tuple(entry for entry in read if _holds(entry))


SEVERAL = ("target", "clause")
"""What may be a list: the entry then stands for one of each target and each clause, and each of them has to fail."""


def _each(entry: dict[str, Any], place: str) -> list[Known]:
    lists = {name: entry[name] for name in SEVERAL if isinstance(entry.get(name), list)}
    if empty := [name for name, values in lists.items() if not values]:
        raise KvconformError(f"{place}: {empty[0]} must be a text that is not empty, or a list of such")
    chosen = (dict(zip(lists, values, strict=True)) for values in product(*lists.values()))
    return [_entry({**entry, **one}, place) for one in chosen]


def _entry(entry: dict[str, Any], place: str) -> Known:
    names = [field.name for field in fields(Known) if field.name != "place"]
    if unknown := [name for name in entry if name not in names]:
        raise KvconformError(f"{place} has {unknown[0]!r}; an entry takes {', '.join(names)}")
    if wrong := [name for name, value in entry.items() if not isinstance(value, str) or not value.strip()]:
        raise KvconformError(f"{place}: {wrong[0]} must be a text that is not empty")
    if missing := [name for name in REQUIRED if name not in entry]:
        raise KvconformError(f"{place} has no {missing[0]}; write {FORM}")
    return Known(**entry, place=place)


def _holds(entry: Known) -> bool:
    """Is the entry for what is installed?"""
    if not entry.version:
        return True
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        wanted = Requirement(entry.version)
    except InvalidRequirement:
        raise KvconformError(f"{entry.place}: version {entry.version!r} is no requirement; write transformers<5.25") from None
    try:
        return wanted.specifier.contains(version(wanted.name), prereleases=True)
    except PackageNotFoundError:
        raise KvconformError(f"{entry.place}: version names {wanted.name!r}, which is not installed") from None


@dataclass(frozen=True)
class Seen:
    """What an entry is held against: a case that was asked, and the kinds of op at which it failed."""

    target: str
    clause: str
    dtype: str
    verdict: str
    ops: tuple[str, ...] = ()

    @classmethod
    def of(cls, case: Case) -> Seen:
        ops = tuple(finding.op for finding in case.findings)
        return cls(case.target, case.clause, case.dtype, str(case.verdict), ops)


def stale(entries: Sequence[Known], seen: Iterable[Seen], elsewhere: Iterable[str] = ()) -> list[str]:
    """A line for each entry that no longer fails or matches nothing. One that is for other targets which can be named in
    advance, `elsewhere`, is left alone."""
    cases, others = list(seen), list(elsewhere)
    return [f"{entry} {what}" for entry in entries if (what := _stale(entry, cases, others))]


def _stale(entry: Known, cases: Sequence[Seen], elsewhere: Sequence[str]) -> str:
    covered = [case for case in cases if entry.covers(case.target, case.clause, case.dtype)]
    if not covered:
        here = any(fnmatchcase(case.target, entry.target) for case in cases)
        bare = entry.target.replace("[?]", "?").partition("?")[0]  # targets are named in advance without their options
        there = any(fnmatchcase(target, pattern) for target in elsewhere for pattern in (entry.target, bare))
        return "" if there and not here else "matches nothing that was asked"
    if any(_used(entry, case) for case in covered):
        return ""
    verdicts = {case.verdict for case in covered}
    if verdicts & {"passed", "known", "failed"}:
        return "no longer fails: take it out"
    return "" if verdicts & {"errored", "inconclusive"} else "matches only what is unsupported"


def _used(entry: Known, case: Seen) -> bool:
    if not case.ops:
        return case.verdict in ("failed", "known") and entry.op == "*"
    return any(fnmatchcase(op, entry.op) for op in case.ops)

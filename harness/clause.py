"""A clause: one numbered sentence of the contract, and the programs by which it is asked. Data, not a test function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .generate import Mix
from .match import logits_match
from .program import Program
from .scope import Scope
from .trial import Check, Judged


def matches(clause: str, pattern: str) -> bool:
    """Does a clause's id match a shell pattern, or begin with it?"""
    return fnmatchcase(clause, pattern) or clause.startswith(pattern)


def no_programs(scope: Scope) -> Iterable[Program]:
    return ()


@dataclass(frozen=True)
class Clause:
    """One promise. `needs` are capabilities, or conditions that `scope` knows; `fixed` gives the contract's own
    programs for an implementation's scope, `mix` says what further ones are made of."""

    id: str
    sentence: str
    why: str
    needs: tuple[str, ...] = ()
    fixed: Callable[[Scope], Iterable[Program]] = no_programs
    mix: Mix | None = None
    judged: Judged = Judged.ALL
    check: Check = logits_match
    ready: Callable[[], None] | None = None
    """What has to be done once before any program, lest a program's time limit pays for it."""

    @property
    def family(self) -> str:
        return self.id.partition(".")[0]

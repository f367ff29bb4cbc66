"""Programs that tell hypotheses apart, and confirm the one that is left: the contract's own, the cheapest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from ..clause import Clause
from ..errors import ProgramError
from ..program import Append, Program
from ..scope import Scope, unsupported

LONGEST = 90
"""Tokens of a program that is still cheap."""


def battery(scope: Scope, clauses: Sequence[Clause], about: Program) -> Iterator[Program]:
    """Programs within the scope: first those with the ops of `about`, then, family by family in turn, all others."""
    kinds = {op.kind for op in about.ops} - {"append"}
    ragged = _is_ragged(about)
    known: dict[str, list[Program]] = {}
    for clause in clauses:
        if clause.family != "reference" and scope.missing(clause.needs) is None:
            known.setdefault(clause.family, []).extend(_runnable(clause.fixed(scope), scope))
    told: set[Program] = set()
    for alike in (True, False):
        families = [sorted((p for p in some if _alike(p, kinds, ragged) is alike), key=_cost) for some in known.values()]
        for turn in zip_longest(*families):
            for program in turn:
                if program is not None and program not in told:
                    told.add(program)
                    yield program


def _runnable(programs: Iterable[Program], scope: Scope) -> Iterator[Program]:
    for program in programs:
        try:
            if program.tokens <= max(LONGEST, 2 * (scope.max_length or 0)) and unsupported(program, scope) is None:
                yield program
        except ProgramError:
            continue


def _alike(program: Program, kinds: set[str], ragged: bool) -> bool:
    return kinds <= {op.kind for op in program.ops} and (not ragged or _is_ragged(program))


def _is_ragged(program: Program) -> bool:
    return any(isinstance(op, Append) and len({len(row) for row in op.rows}) > 1 for op in program.ops)


def _cost(program: Program) -> tuple[int, int]:
    return len(program.ops) + program.tokens // 8, program.tokens


def beyond(program: Program, step: int) -> Program:
    """A program whose op at `step` had to be refused and was accepted, as if it were legal, with one more token behind."""
    op = program.ops[step]
    if not isinstance(op, Append) or not all(op.rows):
        return program
    following = Append(op.cache, tuple((1 + at,) for at in range(len(op.rows))))
    return Program((*program.ops[:step], replace(op, refused=False), following))

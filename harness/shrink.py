"""The smallest program that still shows the same thing.

Hypothesis draws programs; shrinking works on the program itself, so that a fixed program, a user's and a drawn one
shrink alike, within a bounded number of runs, which matters where one run takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .errors import ProgramError
from .history import History
from .program import Append, Crop, Op, Program, Select
from .scope import Scope, unsupported

ATTEMPTS = 300
"""Runs that shrinking one finding may cost."""


def shrink(program: Program, same: Callable[[Program], bool], scope: Scope, attempts: int = ATTEMPTS) -> Program:
    """The smallest legal program found for which `same` holds; `program` itself where there is no smaller one."""
    tried = {program}
    improved = True
    while improved and attempts > 0:
        improved = False
        for candidate in _smaller(program):
            if candidate in tried or not _runs(candidate, scope):
                continue
            tried.add(candidate)
            attempts -= 1
            if same(candidate):
                program, improved = candidate, True
                break
            if attempts <= 0:
                break
    return program


def _runs(program: Program, scope: Scope) -> bool:
    """Can the program be given to the implementation, with every op marked `!` still one that must be refused?"""
    try:
        return bool(program.ops) and unsupported(program, scope) is None
    except ProgramError:
        return False


def _smaller(program: Program) -> Iterator[Program]:
    """Candidates, the boldest first."""
    count = len(program.ops)
    for size in (count // 2, count // 4):
        if size > 1:
            yield from (_repaired(program.ops[:at] + program.ops[at + size :]) for at in range(0, count, size))
    yield from (_repaired(program.ops[:at] + program.ops[at + 1 :]) for at in reversed(range(count)))
    for at, op in enumerate(program.ops):
        for simpler in _simpler(op):
            yield _repaired((*program.ops[:at], simpler, *program.ops[at + 1 :]))
    yield from _fewer_rows(program)
    yield _plain(program)


def _simpler(op: Op) -> Iterator[Op]:
    match op:
        case Append(_, rows):
            width = max(map(len, rows), default=0)
            for kept in dict.fromkeys((1, width // 2, width - 1)):
                if 0 < kept < width:
                    yield replace(op, rows=tuple(row[:kept] for row in rows))
        case Crop(_, length):
            for smaller in dict.fromkeys((0, length // 2, length - 1)):
                if 0 <= smaller < length:
                    yield replace(op, length=smaller)
        case Select(_, rows):
            if len(rows) > 1:
                yield from (replace(op, rows=rows[:at] + rows[at + 1 :]) for at in range(len(rows)))
        case _:
            return


def _fewer_rows(program: Program) -> Iterator[Program]:
    """Every cache with one row less at its first append; appends that no longer fit lose their last row too."""
    most = max((len(op.rows) for op in program.ops if isinstance(op, Append)), default=1)
    for row in range(most if most > 1 else 0):
        ops = (
            replace(op, rows=op.rows[:row] + op.rows[row + 1 :]) if isinstance(op, Append) and len(op.rows) == most else op
            for op in program.ops
        )
        yield _repaired(tuple(ops))


def _plain(program: Program) -> Program:
    """Tokens renamed to 1, 2, 3, … and caches to a, b, c, … in the order in which they appear."""
    tokens: dict[int, int] = {}
    caches: dict[str, str] = {}
    ops: list[Op] = []
    for op in program.ops:
        if isinstance(op, Append) and not op.refused:
            rows = tuple(tuple(tokens.setdefault(token, len(tokens) + 1) for token in row) for row in op.rows)
            op = replace(op, rows=rows)
        named = {place: getattr(op, place) for place in ("cache", "target", "source") if hasattr(op, place)}
        plain = {place: caches.setdefault(name, _letters(len(caches))) for place, name in named.items()}
        ops.append(replace(op, **plain))  # pyright: ignore[reportArgumentType]
    return Program(tuple(ops))


def _letters(number: int) -> str:
    """a to z, then aa, ab, …"""
    more, last = divmod(number, 26)
    return (_letters(more - 1) if more else "") + chr(ord("a") + last)


def _repaired(ops: tuple[Op, ...]) -> Program:
    """Drop or mend what a removal has made illegal: ops on caches that are not there, crops past the end."""
    history, kept = History(), list[Op]()
    for op in ops:
        if isinstance(op, Crop) and not op.refused:
            op = replace(op, length=min(op.length, history.length(op.cache)))
        if isinstance(op, Select) and not op.refused:
            held = len(history.caches.get(op.cache, ()))
            op = replace(op, rows=tuple(row for row in op.rows if row < held))
            if not op.rows:
                continue
        if isinstance(op, Append) and not op.refused:
            held = len(history.caches.get(op.cache, op.rows))
            if len(op.rows) > held and any(history.caches[op.cache]):
                op = replace(op, rows=op.rows[:held])
        try:
            history = history.after(op)
        except ProgramError:
            continue
        kept.append(op)
    return Program(tuple(kept))

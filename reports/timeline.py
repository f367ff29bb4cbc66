"""A program drawn as a column of ops beside the caches that live meanwhile, the way a version history is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from ..harness.errors import ProgramError
from ..harness.history import History, histories
from ..harness.program import Fork, Join, Op, Program, print_op

LONGEST = 1000
"""Characters of a program that can still be seen at a glance."""


@dataclass(frozen=True)
class Beat:
    """One op: the lanes of the caches beside it, its text, and how many tokens its cache holds afterwards."""

    rails: str
    text: str
    length: int


def timeline(text: str) -> list[Beat]:
    """The beats of a program; none where it cannot be read, is not legal, or is too long to be seen at a glance."""
    if len(text) > LONGEST:
        return []
    try:
        program = Program.parse(text)
        states = histories(program)
    except ProgramError:
        return []
    lanes = list(dict.fromkeys(name for op in program.ops for name in _touched(op)))
    return [
        Beat(_rails(op, states[index], states[index + 1], lanes), print_op(op), states[index + 1].length(op.cache))
        for index, op in enumerate(program.ops)
    ]


def _touched(op: Op) -> tuple[str, ...]:
    match op:
        case Fork(cache, target):
            return cache, target
        case Join(cache, source):
            return cache, source
        case _:
            return (op.cache,)


def _rails(op: Op, before: History, after: History, lanes: list[str]) -> str:
    """`●` at the op's cache, `│` at those that live on beside it, and a bow to the cache that a fork or a join touches."""
    touched = sorted(map(lanes.index, _touched(op)))
    drawn = ""
    for lane, name in enumerate(lanes):
        inside = touched[0] <= lane < touched[-1]
        if name == op.cache:
            mark = "○" if op.refused else "●"
        elif lane in touched:
            bows = "╮╭" if isinstance(op, Fork) else "╯╰"
            mark = bows[lane == touched[0]]
        elif name in before.caches and name in after.caches:
            mark = "┼" if inside and lane > touched[0] else "│"
        else:
            mark = "─" if inside and lane > touched[0] else " "
        drawn += mark + ("─" if inside else " ")
    return drawn.rstrip()

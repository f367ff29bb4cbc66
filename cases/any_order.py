"""Any legal sequence of operations."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.clause import Clause
from ..harness.generate import Mix, some_tokens
from ..harness.history import History
from ..harness.program import Append, Crop, Fork, Join, Op, Program, Reset, Restore, Select
from ..harness.scope import NEEDS, Scope, unsupported

EVERYTHING = (
    ("append", 2),
    ("fork", 11),
    ("crop", 5),
    ("reset", 4),
    ("select", 4),
    ("join", 9),
    ("restore", 4),
    ("drop", 9),
)


def pairs(scope: Scope) -> Iterable[Program]:
    """Every op directly behind every other, on two rows where there can be two, and two appends behind them."""
    rows = 1 if scope.max_rows == 1 or "select" not in scope.capabilities else 2
    one, other = (_append(scope, name, rows, 6, seed) for name, seed in (("a", 100), ("z", 200)))
    begun = [one] if scope.max_caches == 1 else [one, other]
    able = [kind for kind in NEEDS.values() if kind in scope.capabilities]
    for first in able:
        for second in able:
            history = _after(History(), begun)
            ops: list[Op] = [*begun]
            for step, kind in enumerate((first, second)):
                op = _op(kind, history, "bc"[step])
                if op is None:
                    break
                ops.append(op)
                history = history.after(op)
            else:
                for name in sorted(history.caches):
                    held = len(history.caches[name])
                    ops += [_append(scope, name, held, 3, 300), _append(scope, name, held, 1, 400)]
                program = Program(tuple(ops))
                if unsupported(program, scope) is None:
                    yield program


def _append(scope: Scope, name: str, rows: int, width: int, seed: int) -> Append:
    most = min(width, scope.max_append or width)
    return Append(name, tuple(some_tokens(scope, most, seed=seed + row) for row in range(rows)))


def _after(history: History, ops: Iterable[Op]) -> History:
    for op in ops:
        history = history.after(op)
    return history


def _op(kind: str, history: History, fresh: str) -> Op | None:
    rows = history.caches["a"]
    match kind:
        case "fork":
            return Fork("a", fresh)
        case "crop":
            return Crop("a", max(len(rows[0]) - 2, 0)) if len({len(row) for row in rows}) == 1 else None
        case "reset":
            return Reset("a")
        case "select":
            return Select("a", tuple(reversed(range(len(rows)))))
        case "join":
            return Join("a", "z") if "z" in history.caches else None
        case _:
            return Restore("a")


CLAUSES = (
    Clause(
        id="any.pair",
        sentence="Any operation directly behind any other leaves the caches right.",
        why="A reset behind a restore, a crop behind a fork: each is right alone and wrong together.",
        fixed=pairs,
    ),
    Clause(
        id="any.program",
        sentence="Any legal sequence of operations gives the reference's logits.",
        why="Some bugs need one particular order: a fork of a fork, a crop after a join, a restore after a reset.",
        mix=Mix(ops=EVERYTHING, rows=3, caches=4, steps=(3, 9), ragged=True),
    ),
)

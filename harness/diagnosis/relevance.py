"""In which programs can a fault show at all?"""

from __future__ import annotations

from ..program import Append, Program

NEEDS = {
    "reset": "reset",
    "branch": "fork",
    "crop": "crop",
    "reorder": "select",
    "join": "join",
    "restore": "restore",
    "restored_reset": "reset",
    "restored_ragged": "restore",
}
"""By the scenario in which a fault is shown: the op without which it changes nothing."""


def could_show(scenario: str, program: Program) -> bool:
    """Has the program what a fault of this scenario needs?"""
    if needed := NEEDS.get(scenario):
        return any(op.kind == needed for op in program.ops)
    if scenario == "turns":
        return len({op.cache for op in program.ops}) > 1
    if scenario == "refused":
        return any(op.refused for op in program.ops)
    if scenario == "second_row":
        return any(isinstance(op, Append) and len(op.rows) > 1 for op in program.ops) or any(
            op.kind in ("join", "select") for op in program.ops
        )
    return True


def same_ops(program: Program, about: Program) -> bool:
    """Has a program no kind of op that the other has not, and no ragged or several rows where that one has none?"""
    return _kinds(program) <= _kinds(about)


def _kinds(program: Program) -> set[str]:
    found = {op.kind for op in program.ops} - {"drop"}
    appends = [op for op in program.ops if isinstance(op, Append)]
    found |= {"rows" for op in appends if len(op.rows) > 1} | {"ragged" for op in appends if len(set(map(len, op.rows))) > 1}
    found |= {"refused" for op in program.ops if op.refused}
    return found | {"caches" for _ in range(len({op.cache for op in program.ops}) > 1)}

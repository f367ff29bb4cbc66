"""What programs covered: which op followed which, and which op ended where relative to a landmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from .history import histories
from .program import Program
from .scope import Scope

RELATIONS = ("one below", "at", "one above", "twice")


def pairs(programs: Iterable[Program]) -> Counter[str]:
    """How often each op was directly followed by each other, as `crop > append`."""
    found: Counter[str] = Counter()
    for program in programs:
        kinds = [op.kind for op in program.ops]
        found.update(f"{one} > {other}" for one, other in pairwise(kinds))
    return found


def relations(programs: Iterable[Program], scope: Scope) -> Counter[str]:
    """How often each op left its cache one below, at, one above or at twice a landmark, as `append at 12`."""
    found: Counter[str] = Counter()
    for program in programs:
        for op, after in zip(program.ops, histories(program)[1:], strict=True):
            length = after.length(op.cache)
            for mark in scope.landmarks:
                near = {mark - 1: "one below", mark: "at", mark + 1: "one above", 2 * mark: "twice"}
                if length in near and not op.refused:
                    found[f"{op.kind} {near[length]} {mark}"] += 1
    return found


def summary(covered_pairs: Iterable[str], covered_relations: Iterable[str], scope_landmarks: int) -> str:
    """One line for the terminal."""
    count = len(set(covered_pairs))
    two = f"{count} pair{'s' * (count != 1)} of ops"
    if not scope_landmarks:
        return f"covered {two}"
    reached = {relation.partition(" ")[2] for relation in covered_relations}
    return f"covered {two}, {len(reached)} of {len(RELATIONS) * scope_landmarks} landmark relations"

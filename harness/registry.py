"""How the harness reaches clauses, targets and faults: through entry points, never by import."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .clause import Clause
    from .fault import Fault
    from .implementation import Implementation
    from .oracle import Reference
    from .target import Resolved, Scheme, Target

CLAUSES, SCHEMES, FAULTS, CARRIERS = "kvconform.clauses", "kvconform.schemes", "kvconform.faults", "kvconform.carriers"
"""Entry point groups: sequences of `Clause`, `Scheme`s by name, functions that give `Fault`s by name, and functions that
give, for a `Reference`, a correct implementation on its weights that faults can be injected into, or None."""


FOUNDATION = {
    "adapter": "the adapter is at fault, not the cache",
    "reference": "the reference cannot be relied on",
    "forward": "the adapter or the conversion of the model is at fault, not the cache",
}
"""Families of clauses that all others rest on, in this order, and what it means where one does not hold."""


@cache
def _loaded(group: str) -> dict[str, Any]:
    return {entry.name: entry.load() for entry in entry_points(group=group)}


def clauses() -> list[Clause]:
    """Every clause of the contract, those first that the others rest on."""
    found = [clause for some in _loaded(CLAUSES).values() for clause in cast("list[Clause]", some)]
    rank = {family: place for place, family in enumerate(FOUNDATION)}
    return sorted(found, key=lambda clause: rank.get(clause.family, len(rank)))


def schemes() -> Mapping[str, Scheme]:
    """Target schemes by the word before the colon."""
    return _loaded(SCHEMES)


def resolve(text: str) -> Resolved:
    """Load what a target string stands for. Raises `TargetError`, one line with the cause and the mend."""
    target = parsed(text)
    return schemes()[target.scheme].resolve(target)


def glance(text: str) -> None:
    """Raises `TargetError` for what can be seen to be wrong with a target before anything is loaded, torch included."""
    target = parsed(text)
    if look := schemes()[target.scheme].glance:
        look(target)


def parsed(text: str) -> Target:
    """Read a target string. Raises `TargetError`."""
    from .target import Target

    return Target.parse(text, schemes(), [name for name, scheme in schemes().items() if scheme.raw])


def faults() -> dict[str, Fault]:
    """Every built-in way to keep a cache by name: correct ones, controls, faults."""
    found: dict[str, Fault] = {}
    for give in _loaded(FAULTS).values():
        found |= cast("Callable[[], dict[str, Fault]]", give)()
    return found


def carrier(reference: Reference | None) -> Implementation | None:
    """A correct implementation on a reference's weights that faults can be injected into, where there is one."""
    if reference is None:
        return None
    found = (cast("Callable[[Reference], Implementation | None]", give)(reference) for give in _loaded(CARRIERS).values())
    return next((one for one in found if one is not None), None)

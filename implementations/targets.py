"""`builtin:MODEL/WAY`: a shipped model and a way to keep its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..harness.errors import TargetError, Unsupported
from ..harness.target import Resolved, Target, closest

if TYPE_CHECKING:
    from ..harness.fault import Fault

MODELS = ("gpt", "llama")


def catalogue() -> dict[str, Fault]:
    """Every built-in way, with its faults and controls."""
    from . import candle, correct, faults
    from .catalogue import CATALOGUE

    assert candle and correct and faults  # loading them fills the catalogue
    return CATALOGUE


def resolve(target: Target) -> Resolved:
    """Load `builtin:gpt/concat` and its like."""
    from ..reference.shipped import reference
    from .builtin import BuiltIn, model
    from .policy import Concat

    if target.options:
        raise TargetError(f"{str(target)!r}: a built-in takes no options; leave out everything from the question mark on")
    name, slash, way = target.address.partition("/")
    if name not in MODELS:
        raise closest(name, MODELS, "built-in model")
    ways = catalogue()
    if not slash or way not in ways:
        raise closest(way, ways, f"built-in way to keep a cache of {name}, as in builtin:{name}/concat, called")
    try:
        implementation = ways[way].inject(BuiltIn(model(name), Concat))
    except Unsupported as reason:
        raise TargetError(f"{str(target)!r} is not there: {reason}") from None
    return Resolved(implementation, reference(name))

"""`arch:NAME?…`: a tiny random model of an architecture as a target. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...harness.errors import Unsupported
from ...harness.fault import Kind
from ...harness.target import Listed, Resolved, Scheme, Target, closest
from .names import architectures
from .targets import PRELOADED, SWEPT, TAKES, resolved

if TYPE_CHECKING:
    from .model import Model
    from .options import Options


def resolve(target: Target) -> Resolved:
    """Load `arch:llama?cache=static` and its like. Raises `TargetError`, with cause and mend."""
    from .options import parsed

    options = parsed(target)
    return resolved(target, options, drawn(target, options))


def drawn(target: Target, options: Options) -> Model:
    """The tiny random model of a target. Raises `TargetError`."""
    if target.address not in architectures():
        raise closest(target.address, architectures(), "architecture of the installed transformers called")
    from .load import quiet, ready, told
    from .tiny import build

    with told(target), quiet():
        module: Any = build(target.address, options.seed)
        if options.attn:
            _attend(module, options.attn)
    return ready(module, target, options)


def _attend(module: Any, attn: str) -> None:
    """Raises `Unsupported` with the library's own words where this architecture does not have it."""
    try:
        module.set_attn_implementation(attn)
    except ValueError as refusal:
        raise Unsupported(" ".join(str(refusal).split())[:300]) from None


def listing() -> Iterable[Listed]:
    """A tiny random model of every decoder architecture."""
    sentence = "A tiny random model of this architecture."
    return (Listed(f"arch:{name}", Kind.CORRECT, sentence, shown=False) for name in architectures())


ARCH = Scheme(
    resolve,
    listing,
    swept=("arch:*",),
    options=SWEPT,
    shares=lambda target: target.address,
    preload=PRELOADED,
    takes=TAKES,
)

"""`builtin:MODEL/WAY`: a shipped model and a way to keep its cache."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..harness.errors import TargetError, Unsupported, UnsupportedTarget
from ..harness.fault import Kind
from ..harness.oracle import Reference
from ..harness.target import Listed, Resolved, Sample, Scheme, Target, closest

if TYPE_CHECKING:
    from ..harness.fault import Fault
    from ..harness.implementation import Implementation

MODELS = ("gpt", "llama", "window", "hybrid", "noisy")


def catalogue() -> dict[str, Fault]:
    """Every built-in way, with its faults and controls."""
    from . import candle, correct
    from .catalogue import CATALOGUE
    from .faults import checks, generating, operations, positions, state, storage, visibility, window
    from .forms import counters, masks, moves, stores

    _ = counters, masks, moves, stores  # loading them has registered the forms
    shown = (correct, positions, storage, visibility, window, state, operations, generating, checks, candle)
    order = {module.__name__.rpartition(".")[2]: place for place, module in enumerate(shown)}
    kinds = list(Kind)
    return dict(sorted(CATALOGUE.items(), key=lambda entry: (kinds.index(entry[1].kind), order.get(entry[1].family, -1))))


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
        raise closest(way, ways, f"way to keep the cache of builtin:{name}/… called")
    try:
        right = BuiltIn(model(name), Concat)
        implementation = ways[way].inject(right)
    except Unsupported as reason:
        raise UnsupportedTarget(f"{str(target)!r} is not there: {reason}") from None
    plain: Reference = reference("llama" if name == "noisy" else name)
    spoil = ways[way].spoil
    return Resolved(implementation, spoil(plain) if spoil else plain, name, ways[way], sample(), carrier=right)


def carrier(reference: Reference) -> Implementation | None:
    """A correct cache over the weights of a reference of this package."""
    from ..reference.shipped import PlainReference
    from .builtin import BuiltIn, cached
    from .policy import Concat

    return BuiltIn(cached(reference.name, reference), Concat) if isinstance(reference, PlainReference) else None


def listing() -> Iterable[Listed]:
    """Every built-in target, model by model."""
    return (
        Listed(f"builtin:{name}/{way.name}", way.kind, way.sentence, _shown(name, way))
        for name in MODELS
        for way in catalogue().values()
        if name in way.models
    )


def _shown(model: str, way: Fault) -> bool:
    """The table shows trained models, and others for what only they have."""
    return way.family != "checks" and (model in ("gpt", "llama") or way.models == (model,))


def sample() -> Sample:
    """Wang Zhihuan's "On the Stork Tower": 13 characters as the prompt, 20 more behind it; 32 of Li Bai's before."""
    from ..reference.shipped import vocabulary

    words = vocabulary()
    return Sample(
        prompt=tuple(words.encode("白日依山盡，黃河入海流。欲")),
        continuation=tuple(words.encode("窮千里目，更上一層樓。白日依山盡，黃河入")),
        earlier=tuple(words.encode("牀前明月光，疑是地上霜。舉頭望明月，低頭思故鄉。花間一壺酒，獨酌")),
        decode=words.decode,
    )


BUILTIN = Scheme(
    resolve,
    listing,
    mutated=tuple(f"builtin:{name}/concat" for name in MODELS if name != "noisy"),
    shares=lambda target: target.address.partition("/")[0],
    preload=(f"{__package__}.builtin",),
)

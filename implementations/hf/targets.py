"""`hf:PATH_OR_NAME?…`: a model of transformers as a target. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...harness.errors import Unsupported, UnsupportedTarget
from ...harness.target import Resolved, Scheme, Target, closest

if TYPE_CHECKING:
    from .caches import Kind
    from .model import Model
    from .options import Options


def resolve(target: Target) -> Resolved:
    """Load `hf:FOLDER?cache=static` and its like. Raises `TargetError`, with cause and mend."""
    from .load import loaded
    from .options import parsed

    options = parsed(target)
    return resolved(target, options, loaded(target, options))


def resolved(target: Target, options: Options, model: Model) -> Resolved:
    """A model with the cache that the options ask for, and its own plain pass as the reference. Raises `TargetError`."""
    from .adapter import Transformers
    from .caches import kind_named
    from .plain import Plain

    try:
        kind = kind_named(options, model.config)
        implementation = Transformers(model, kind, str(target), options.positions == "explicit")
    except Unsupported as reason:
        raise UnsupportedTarget(f"{str(target)!r} cannot be asked: {reason}") from reason
    name = f"{target.scheme}:{target.address}"
    right = Resolved(implementation, Plain(model), name, carrier=implementation, tags=_tags(model, kind))
    return _with_fault(target, options.fault, right) if options.fault else right


def _with_fault(target: Target, name: str, right: Resolved) -> Resolved:
    """The same with its cache kept by a way of the catalogue. Raises `TargetError`."""
    from ..targets import catalogue

    ways = catalogue()
    if name not in ways:
        raise closest(name, ways, "fault")
    try:
        implementation = ways[name].inject(right.implementation)
    except Unsupported as reason:
        raise UnsupportedTarget(f"{str(target)!r} is not there: {reason}") from reason
    implementation.name = str(target)
    return replace(right, implementation=implementation, fault=ways[name])


def _tags(model: Model, kind: Kind) -> dict[str, str]:
    """What several architectures may have in common: kinds of layer, in the cache and in the configuration."""
    from .caches import layer_classes

    types: list[str] = getattr(model.config, "layer_types", None) or []
    found = {
        "cache layers": layer_classes(kind, model.config),
        "layer types": sorted(set(types)),
        "model class": [type(model.module).__name__],
    }
    return {name: ", ".join(values) for name, values in found.items() if values}


LOADED = "transformers.models.llama.modeling_llama"
"""Some model: what it imports, every model does."""
SWEPT: Mapping[str, tuple[str, ...]] = {"cache": ("dynamic", "static"), "attn": ("eager", "sdpa")}
TAKES = ("device",)
PRELOADED = (*(f"{__package__}.{name}" for name in ("load", "tiny", "adapter", "plain")), LOADED)

HF = Scheme(resolve, options=SWEPT, shares=lambda target: target.address, preload=PRELOADED, takes=TAKES)

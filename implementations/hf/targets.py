"""`hf:PATH_OR_NAME?…`: a model of transformers as a target. Importing this imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...harness.errors import Unsupported, UnsupportedTarget
from ...harness.target import Resolved, Scheme, Target

if TYPE_CHECKING:
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
    return Resolved(implementation, Plain(model), f"{target.scheme}:{target.address}", carrier=implementation)


HF = Scheme(resolve)

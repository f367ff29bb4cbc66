"""The templates' environment: whatever comes from a target is shown as text, and never obeyed."""

from __future__ import annotations

import hashlib
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from .table import figure
from .text import many, visible


def template(name: str, further: Mapping[str, Callable[..., Any]]) -> Template:
    """A template of this folder, with the filters below and further ones."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = environment.filters
    filters.update(further, block=_block, beside=_beside, digest=_digest, many=many)
    return environment.get_template(name)


def times(size: float | None, allowed: float | None) -> str:
    """How many times what was allowed; nothing where that cannot be said."""
    if not size or not allowed or not math.isfinite(size):
        return ""
    ratio = size / allowed
    return f"{ratio:,.0f}" if 10 <= ratio < 1e6 else f"{ratio:.2g}".replace("e+", "e")


def _shown(value: Any) -> Any:
    """Everything that the template prints passes here, before it is escaped: no text can bring more than its letters."""
    if value is None or isinstance(value, float):
        return figure(value)
    return value if isinstance(value, int | Markup) else visible(str(value))


def _block(text: str) -> Markup:
    """A text that keeps its lines."""
    return Markup(escape(visible(text, kept="\n")))


def _beside(text: str, other: str) -> list[tuple[bool, str]]:
    """A text in runs of characters that are, or are not, at the same place in another text."""
    changed = [at >= len(other) or other[at] != sign for at, sign in enumerate(text)]
    pairs = groupby(zip(changed, text, strict=True), key=lambda pair: pair[0])
    return [(differs, "".join(sign for _, sign in run)) for differs, run in pairs]


def _digest(script: str) -> str:
    """For the page's policy: this script may run, and none that a target might smuggle in."""
    return b64encode(hashlib.sha256(script.encode()).digest()).decode()

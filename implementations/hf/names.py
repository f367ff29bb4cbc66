"""Which decoder architectures the installed transformers has, read from its source: nothing of it is imported."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_CAUSAL = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
_IMAGE_TEXT = "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"


def architectures() -> tuple[str, ...]:
    """Model types in transformers' words: causal language models first, then vision-language models that are no such.

    Empty where transformers is not installed or no longer keeps its mapping as a literal list of pairs.
    """
    return (*causal(), *(name for name in image_text() if name not in causal()))


def causal() -> tuple[str, ...]:
    """Model types of the causal language model mapping."""
    return tuple(_mapping(_CAUSAL))


def image_text() -> tuple[str, ...]:
    """Model types of the mapping of models that take images and text and give text."""
    return tuple(_mapping(_IMAGE_TEXT))


def model_class(model_type: str) -> str | None:
    """The class that the library's mapping gives to a model type; None where it has none."""
    return _mapping(_CAUSAL).get(model_type) or _mapping(_IMAGE_TEXT).get(model_type)


@cache
def _mapping(name: str) -> dict[str, str]:
    """One of the mappings in `models/auto/modeling_auto.py`. Importing that file imports torch: 4 s."""
    spec = find_spec("transformers")
    if spec is None or spec.origin is None:
        return {}
    source = Path(spec.origin).parent / "models" / "auto" / "modeling_auto.py"
    for statement in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in statement.targets):
            return _pairs(statement.value)
    return {}


def _pairs(value: ast.expr) -> dict[str, str]:
    """`OrderedDict([(key, value), …])` as a dict. A value can be a tuple of classes, of which the first counts."""
    listed = value.args[0] if isinstance(value, ast.Call) and value.args else value
    literal = ast.literal_eval(listed)
    pairs = literal.items() if isinstance(literal, dict) else literal
    return {str(key): classes if isinstance(classes, str) else str(classes[0]) for key, classes in pairs}

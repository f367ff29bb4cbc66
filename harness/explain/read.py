"""Read an error text: whatever of it any reader knows."""

from __future__ import annotations

import re

from . import candle, llama_cpp, masks, onnx, pytorch, transformers_cache
from .explanation import Explanation, Reader

READERS: tuple[Reader, ...] = (
    *masks.READERS,
    *candle.READERS,
    *transformers_cache.READERS,
    *pytorch.READERS,
    *llama_cpp.READERS,
    *onnx.READERS,
)
LONGEST = 200_000
"""Characters of a text that are read: its end, where the error stands."""
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
MARGINS = re.compile(r"^[ \t]*(?:[│|❱>]+[ \t]*)+", re.MULTILINE)


def explain(text: str) -> Explanation | None:
    """What the text means, by the first reader that knows it; None where none does."""
    plain = cleaned(text)
    return next((found for reader in READERS if (found := reader.read(plain))), None)


def cleaned(text: str) -> str:
    """A text without colours, without the margins of a boxed traceback, and no longer than bearable."""
    return MARGINS.sub("", ESCAPES.sub("", text[-LONGEST:]).replace("\r", "\n"))

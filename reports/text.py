"""Text from elsewhere: whatever comes from a target is shown as text, and never obeyed, wherever a report is read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

Written = Callable[[str], str]
"""How a text from elsewhere is written in a report of some kind."""
LONGEST = 1500
"""Characters that are shown of one text; the result file has the rest."""


def many(count: int, word: str) -> str:
    """A number and its noun."""
    return f"{count:,} {word}{'s' * (count != 1)}"


def visible(text: str, kept: str = "", longest: int = LONGEST) -> str:
    """A text of bearable length in which characters that steer, hide or turn others are written out."""
    signs = (
        c if c in kept or c.isprintable() or unicodedata.category(c) == "Zs" else "⏎" if c == "\n" else f"\\u{ord(c):04x}"
        for c in text[:longest]
    )
    more = f" … {many(len(text) - longest, 'character')} more" if len(text) > longest else ""
    return "".join(signs) + more


def code(text: str, longest: int = LONGEST) -> str:
    """As a code span of markdown: nothing in it is markup, a link, a mention or a reference."""
    clean = visible(text, longest=longest).strip()
    if clean in ("", "—"):
        return "—"
    ticks = "`" * (_longest_run(clean) + 1)
    pad = " " if clean.startswith("`") or clean.endswith("`") else ""
    return f"{ticks}{pad}{clean}{pad}{ticks}"


def cell(text: str, longest: int = 200) -> str:
    """As a code span in a table of markdown, where a bar would end the cell; a backslash before it would free it again."""
    return code(text.replace("\\|", "\\│"), longest).replace("|", "\\|")


def fenced(text: str, longest: int = LONGEST, language: str = "") -> str:
    """As a block of code in markdown."""
    clean = visible(text, kept="\n", longest=longest)
    fence = "`" * max(3, _longest_run(clean) + 1)
    return f"{fence}{language}\n{clean}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)

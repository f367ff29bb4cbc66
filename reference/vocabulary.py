"""The character vocabulary of the shipped models: two specials, then the most frequent characters of the text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PADDING, UNKNOWN = "<pad>", "<unk>"


@dataclass(frozen=True)
class Vocabulary:
    """Characters in token order; a character that is not among them is `<unk>`, token 1."""

    characters: tuple[str, ...]

    @classmethod
    def from_text(cls, text: str, size: int) -> Vocabulary:
        # Ties are broken by code point, so that the same text always gives the same tokens.
        ranked = sorted(Counter(text).items(), key=lambda entry: (-entry[1], entry[0]))
        return cls((PADDING, UNKNOWN, *(character for character, _ in ranked[: max(size - 2, 0)])))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        return cls(tuple(json.loads(path.read_text(encoding="utf-8"))))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.characters, ensure_ascii=False) + "\n", encoding="utf-8")

    @cached_property
    def tokens(self) -> dict[str, int]:
        return {character: token for token, character in enumerate(self.characters)}

    def encode(self, text: str) -> list[int]:
        return [self.tokens.get(character, 1) for character in text]

    def decode(self, tokens: Iterable[int]) -> str:
        return "".join(self.characters[token] if token > 1 else "□" for token in tokens)

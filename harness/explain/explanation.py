"""What an error text means, in numbers, and how to mend it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Explanation:
    """`quoted` are the words that were read, `numbers` what they count, each with its name."""

    engine: str
    quoted: str
    means: str
    mend: str
    numbers: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        width = max((len(name) for name, _ in self.numbers), default=0)
        lines = [f"{self.engine}: {self.quoted}"]
        lines += [f"  {name:<{width}}  {value}" for name, value in self.numbers]
        lines += [f"  means: {self.means}", f"  mend:  {self.mend}"]
        return "\n".join(lines)


@dataclass(frozen=True)
class Told:
    """What a reader makes of its match."""

    means: str
    mend: str
    numbers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Reader:
    """A form of words that an engine uses, and what is told where they stand in a text. `tell` gives None where the
    numbers show that something else is meant."""

    engine: str
    words: re.Pattern[str]
    tell: Callable[[re.Match[str]], Told | None]

    def read(self, text: str) -> Explanation | None:
        for found in self.words.finditer(text):
            if told := self.tell(found):
                quoted = " ".join(found.group().split())
                return Explanation(self.engine, quoted, told.means, told.mend, told.numbers)
        return None


def reader(engine: str, words: str) -> Callable[[Callable[[re.Match[str]], Told | None]], Reader]:
    """Make a reader of a function; spaces in `words` stand for any white space, so that a text may be wrapped."""
    pattern = re.compile(re.sub(r" (?!\?)", r"\\s+", words))
    return lambda tell: Reader(engine, pattern, tell)


def says(engine: str, words: str, means: str, mend: str) -> Reader:
    """A reader of words without numbers."""
    return reader(engine, words)(lambda found: Told(means, mend))


def ints(text: str) -> list[int]:
    """The whole numbers in a text, a hundred digits at most each."""
    return [int(word) for word in re.findall(r"-?\d{1,100}", text)]

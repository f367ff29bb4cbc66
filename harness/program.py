"""Programs: lists of cache operations as plain data, with a one-line text form.

    append a 5 9 3; fork a b; append b 7; crop a 2; append c 4 4 | 8 2; select c 1 1; append a! 999999

Rows are separated by `|`. A `!` behind the first cache name says that the op must be refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from .errors import ProgramError

Row = tuple[int, ...]
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Append:
    """Feed new tokens, one tuple a row. The first append to a name creates the cache."""

    kind: ClassVar[str] = "append"
    cache: str
    rows: tuple[Row, ...]
    refused: bool = False

    def operands(self) -> str:
        return " | ".join(" ".join(map(str, row)) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Fork:
    """Copy a cache under a new name; both go on, independently."""

    kind: ClassVar[str] = "fork"
    cache: str
    target: str
    refused: bool = False

    def operands(self) -> str:
        return self.target


@dataclass(frozen=True, slots=True)
class Crop:
    """Roll back to the first `length` tokens; 0 leaves an empty cache."""

    kind: ClassVar[str] = "crop"
    cache: str
    length: int
    refused: bool = False

    def operands(self) -> str:
        return str(self.length)


@dataclass(frozen=True, slots=True)
class Reset:
    """Empty a cache, which must then be as good as new."""

    kind: ClassVar[str] = "reset"
    cache: str
    refused: bool = False

    def operands(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Select:
    """New row i is old row `rows[i]`: reorder, repeat, drop."""

    kind: ClassVar[str] = "select"
    cache: str
    rows: tuple[int, ...]
    refused: bool = False

    def operands(self) -> str:
        return " ".join(map(str, self.rows))


@dataclass(frozen=True, slots=True)
class Join:
    """The source's rows become further rows of the cache, and the source is gone."""

    kind: ClassVar[str] = "join"
    cache: str
    source: str
    refused: bool = False

    def operands(self) -> str:
        return self.source


@dataclass(frozen=True, slots=True)
class Restore:
    """Dump to bytes, forget, load."""

    kind: ClassVar[str] = "restore"
    cache: str
    refused: bool = False

    def operands(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a cache; its name is free again."""

    kind: ClassVar[str] = "drop"
    cache: str
    refused: bool = False

    def operands(self) -> str:
        return ""


Op = Append | Fork | Crop | Reset | Select | Join | Restore | Drop
KINDS: dict[str, type[Op]] = {op.kind: op for op in (Append, Fork, Crop, Reset, Select, Join, Restore, Drop)}


def print_op(op: Op) -> str:
    return " ".join(f"{op.kind} {op.cache}{'!' * op.refused} {op.operands()}".split())


def parse_op(text: str) -> Op:
    """One op. Raises `ProgramError` with the op and what it lacks."""
    kind, _, rest = text.strip().partition(" ")
    if kind not in KINDS:
        raise ProgramError(f"no op {kind!r} in {text.strip()!r}; the ops are {', '.join(KINDS)}")
    first, _, operands = rest.strip().partition(" ")
    cache, refused = first.removesuffix("!"), first.endswith("!")
    if not NAME.fullmatch(cache):
        raise ProgramError(f"{text.strip()!r} needs a cache name (a letter, then letters, digits or _) after {kind!r}")
    words = operands.split()
    if kind == "append":
        rows = tuple(_numbers(part.split(), text) for part in operands.split("|"))
        return Append(cache, rows, refused)
    if kind == "select":
        if not words:
            raise ProgramError(f"{text.strip()!r} needs the rows to keep: select {cache} 1 0")
        return Select(cache, _numbers(words, text), refused)
    if kind == "crop":
        if len(words) != 1:
            raise ProgramError(f"{text.strip()!r} needs one length: crop {cache} 2")
        return Crop(cache, _numbers(words, text)[0], refused)
    if kind in ("fork", "join"):
        if len(words) != 1 or not NAME.fullmatch(words[0]):
            raise ProgramError(f"{text.strip()!r} needs a second cache name: {kind} {cache} b")
        return Fork(cache, words[0], refused) if kind == "fork" else Join(cache, words[0], refused)
    if words:
        raise ProgramError(f"{text.strip()!r} has words too many; {kind} takes a cache name only")
    return {"reset": Reset, "restore": Restore, "drop": Drop}[kind](cache, refused)


def _numbers(words: Iterable[str], text: str) -> tuple[int, ...]:
    for word in words:
        if not re.fullmatch(r"[0-9]{1,18}", word):
            raise ProgramError(f"{word!r} in {text.strip()!r} is no whole number from 0 on")
    return tuple(int(word) for word in words)


@dataclass(frozen=True, slots=True)
class Program:
    """Operations in order. `str` prints it, `Program.parse` reads it back."""

    ops: tuple[Op, ...]

    def __str__(self) -> str:
        return "; ".join(map(print_op, self.ops))

    def __len__(self) -> int:
        return len(self.ops)

    @classmethod
    def parse(cls, text: str) -> Program:
        """Read the text form. Raises `ProgramError`, one line."""
        parts = [part for part in re.split(r"[;\n]", text) if part.strip()]
        if not parts:
            raise ProgramError("the program is empty; write ops such as: append a 5 9 3; append a 7")
        return cls(tuple(map(parse_op, parts)))

    @property
    def tokens(self) -> int:
        """How many tokens are fed, refused ones included."""
        return sum(len(row) for op in self.ops if isinstance(op, Append) for row in op.rows)

    def with_op(self, index: int, op: Op) -> Program:
        return replace(self, ops=(*self.ops[:index], op, *self.ops[index + 1 :]))

    def without(self, index: int) -> Program:
        return replace(self, ops=self.ops[:index] + self.ops[index + 1 :])

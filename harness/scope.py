"""What programs an implementation can be given: its limits and capabilities, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from .errors import ProgramError
from .history import History
from .implementation import Implementation
from .program import Append, Crop, Fork, Join, Op, Program, Reset, Restore, Row, Select, print_op

NEEDS: dict[type, str] = {
    Fork: "fork",
    Crop: "crop",
    Reset: "reset",
    Select: "select",
    Join: "join",
    Restore: "restore",
}


@dataclass(frozen=True)
class Scope:
    """Limits and capabilities, from `Implementation`'s attributes of the same names."""

    vocab_size: int
    special: frozenset[int] = frozenset()
    capabilities: frozenset[str] = frozenset(NEEDS.values())
    max_length: int | None = None
    max_rows: int | None = None
    max_append: int | None = None
    max_caches: int | None = None
    landmarks: tuple[int, ...] = ()
    ragged: str = "no"
    crop_floor: Callable[[Sequence[int]], int] = lambda lengths: 0

    @classmethod
    def of(cls, implementation: Implementation) -> Scope:
        return cls(
            vocab_size=implementation.vocab_size,
            special=implementation.special,
            capabilities=implementation.capabilities,
            max_length=implementation.max_length,
            max_rows=implementation.max_rows,
            max_append=implementation.max_append,
            max_caches=implementation.max_caches,
            landmarks=implementation.landmarks,
            ragged=implementation.ragged,
            crop_floor=implementation.crop_floor,
        )

    def missing(self, needs: Iterable[str]) -> str | None:
        """Why a clause with these needs cannot be asked, or None."""
        for need in needs:
            if need in CONDITIONS:
                if reason := CONDITIONS[need](self):
                    return reason
            elif need not in self.capabilities:
                return f"it has no {need}"
        return None

    def must_refuse(self, op: Op, before: History) -> bool:
        """Is an op marked `!` really one that the implementation has to refuse?"""
        asked = replace(op, refused=False)
        try:
            return self.lacks(asked, before) is not None
        except ProgramError:
            return not isinstance(op, Fork | Join)  # names are the program's own; no implementation sees them

    def lacks(self, op: Op, before: History) -> str | None:
        """Why the implementation cannot be given `op`, in the user's terms; None where it can."""
        if op.refused:
            return None
        needed = NEEDS.get(type(op))
        if needed and needed not in self.capabilities:
            return f"it has no {needed}"
        after = before.after(op)
        if self.max_caches is not None and len(after.caches) > self.max_caches:
            return f"it keeps {self.max_caches} cache(s) alive at once"
        rows = after.caches.get(op.cache, ())
        if self.max_rows is not None and len(rows) > self.max_rows:
            return f"its caches have at most {self.max_rows} row(s)"
        if self.max_length is not None and after.length(op.cache) > self.max_length:
            return f"it holds at most {self.max_length} positions"
        if self.ragged == "no" and len({len(row) for row in rows}) > 1:
            return "its rows must be of one length"
        if isinstance(op, Append):
            return self._lacks_append(op, before)
        return None

    def _lacks_append(self, op: Append, before: History) -> str | None:
        if any(token >= self.vocab_size for row in op.rows for token in row):
            return f"its vocabulary has {self.vocab_size} tokens"
        if special := self.special & {token for row in op.rows for token in row}:
            return f"its token {min(special)} is no text"
        if self.max_append is not None and max(map(len, op.rows)) > self.max_append:
            return f"it takes at most {self.max_append} token(s) in one call"
        old = before.caches.get(op.cache)
        if old is not None and len(old) != len(op.rows) and "reset_rows" not in self.capabilities:
            return "it has no reset_rows: an emptied cache keeps its number of rows"
        return None

    def text(self, random: Random, count: int) -> Row:
        """So many drawn tokens. Token 0 is left to padding, and no special one is among them."""
        drawn: list[int] = []
        while len(drawn) < count:
            if (token := random.randrange(1, self.vocab_size)) not in self.special:
                drawn.append(token)
        return tuple(drawn)


LEAST = 8
"""Positions that the programs of a limit need."""
REACH = 1024
"""Positions that programs are grown to for the sake of a limit."""

CONDITIONS: dict[str, Callable[[Scope], str | None]] = {
    "limit": lambda scope: _limit(scope.max_length),
    "several tokens": lambda scope: "it takes one token at a time" if scope.max_append == 1 else None,
    "several caches": lambda scope: "it keeps one cache alive at once" if scope.max_caches == 1 else None,
    "batch": lambda scope: "its caches have one row" if scope.max_rows == 1 else None,
    "ragged": lambda scope: "its rows must be of one length" if scope.ragged == "no" else None,
    "landmark": lambda scope: None if scope.landmarks else "it names no landmark, as a window would be",
}
"""What a clause may need that is no method: a limit within reach, batches, several tokens in a call."""


def _limit(max_length: int | None) -> str | None:
    if max_length is None:
        return "it has no limit"
    if max_length < LEAST:
        return f"its limit of {max_length} positions leaves no room to go on from"
    return f"its limit of {max_length:,} positions lies beyond the reach of {REACH:,}" if max_length > REACH else None


def unsupported(program: Program, scope: Scope) -> str | None:
    """Why a legal program cannot be run, or None. Raises `ProgramError` where it is not legal at all."""
    history, lengths = History(), dict[str, list[int]]()
    for op in program.ops:
        if reason := scope.lacks(op, history):
            return reason
        floor = scope.crop_floor(lengths.get(op.cache, [])) if isinstance(op, Crop) else 0
        kept = op.length if isinstance(op, Crop) else floor
        if kept < floor and not op.refused:
            return f"its rollback reaches back to {floor} here, not to {kept}"
        if op.refused and kept >= floor and not scope.must_refuse(op, history):
            raise ProgramError(
                f"{print_op(op)[:80]!r} need not be refused by what the implementation says of itself; leave out the !"
            )
        history = history.after(op)
        note_length(op, history, lengths)
    return None


def note_length(op: Op, after: History, lengths: dict[str, list[int]]) -> None:
    """Keep, for each cache, its lengths since it was empty: what a rollback's reach depends on."""
    if op.refused:
        return
    if isinstance(op, Fork):
        lengths[op.target] = list(lengths.get(op.cache, []))
    if isinstance(op, Join):  # what the source has lost is lost to its rows in the target too
        lengths[op.cache] = lengths.get(op.cache, []) + lengths.pop(op.source, [])
    now = after.length(op.cache)
    if now == 0:
        lengths.pop(op.cache, None)
    else:
        lengths.setdefault(op.cache, []).append(now)

"""What a program means: for each cache, the tokens that each row holds. No tensors, no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .errors import ProgramError
from .program import Append, Crop, Drop, Fork, Join, Op, Program, Reset, Restore, Row, Select, print_op

Rows = tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The rows of every live cache. `after` gives the next history; an illegal op is a `ProgramError`."""

    caches: Mapping[str, Rows] = field(default_factory=dict[str, Rows])

    def after(self, op: Op) -> History:
        """The history once `op` has run; a refused op leaves all as it was. Raises `ProgramError`."""
        if op.refused:
            if not isinstance(op, Append):
                self._rows(op)
            return self
        caches = dict(self.caches)
        match op:
            case Append(cache, rows):
                if not rows or any(token < 0 for row in rows for token in row):
                    raise _illegal(op, "an append has at least one row, and tokens from 0 on")
                if any(not row for row in rows):
                    raise _illegal(op, "an empty append is legal only as a refused op: append a!")
                old = caches.get(cache)
                if old is None or (len(old) != len(rows) and not any(old)):
                    old = ((),) * len(rows)
                if len(old) != len(rows):
                    raise _illegal(op, f"cache {cache} has {len(old)} rows")
                caches[cache] = tuple(past + new for past, new in zip(old, rows, strict=True))
            case Fork(cache, target):
                if target in caches:
                    raise _illegal(op, f"{target} is alive already; fork to a fresh name")
                caches[target] = self._rows(op)
            case Crop(cache, length):
                rows = self._rows(op)
                if len({len(row) for row in rows}) > 1:
                    raise _illegal(op, "its rows differ in length, and a crop is the same for all rows")
                if length < 0:
                    raise _illegal(op, "a length is 0 or more")
                if length > len(rows[0]):
                    raise _illegal(op, f"cache {cache} holds {len(rows[0])} tokens")
                caches[cache] = tuple(row[:length] for row in rows)
            case Reset(cache):
                caches[cache] = ((),) * len(self._rows(op))
            case Select(cache, picks):
                rows = self._rows(op)
                if not picks or min(picks) < 0:
                    raise _illegal(op, "it names no row, or a negative one")
                if max(picks) >= len(rows):
                    raise _illegal(op, f"cache {cache} has {len(rows)} rows, counted from 0")
                caches[cache] = tuple(rows[pick] for pick in picks)
            case Join(cache, source):
                if source == cache or source not in caches:
                    raise _illegal(op, f"there is no other live cache {source}")
                caches[cache] = self._rows(op) + caches.pop(source)
            case Restore(_):
                self._rows(op)
            case Drop(cache):
                self._rows(op)
                del caches[cache]
        return History(caches)

    def _rows(self, op: Op) -> Rows:
        if op.cache not in self.caches:
            raise _illegal(op, f"there is no live cache {op.cache}; append to it first")
        return self.caches[op.cache]

    def length(self, cache: str) -> int:
        """Tokens in the longest row; 0 where there is no such cache."""
        return max(map(len, self.caches.get(cache, ())), default=0)


def histories(program: Program) -> list[History]:
    """The history before each op, and the one after the last. Raises `ProgramError` for an illegal program."""
    found = [History()]
    for op in program.ops:
        found.append(found[-1].after(op))
    return found


def _illegal(op: Op, why: str) -> ProgramError:
    return ProgramError(f"{print_op(op)[:120]!r} is not legal here: {why}")

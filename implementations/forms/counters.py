"""Forms of faults of the position counter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Self

from torch import Tensor

from ...harness.program import Append, Program
from ..builtin import BuiltIn
from ..catalogue import form
from ..policy import CacheShape, Concat


def shifts(target: BuiltIn, program: Program) -> Iterable[int]:
    """Small ones, a hundred, and the lengths of the program's calls, either way."""
    lengths = {len(row) for op in program.ops if isinstance(op, Append) for row in op.rows}
    steps = {*range(1, 9), 100, *lengths}
    return sorted((sign * step for step in steps if step for sign in (1, -1)), key=abs)


def offsets(target: BuiltIn, program: Program) -> Iterable[int]:
    return (1, -1, 2, -2, 3)


SHIFTED = "positions behind a prefill are shifted by {value:+}"


@form("pos_minus_3", SHIFTED, name="pos_shifted", values=shifts)
class Shifted(Concat):
    value: ClassVar[int] = 0

    def positions(self, count: int) -> Tensor:
        return super().positions(count) + (self.value if self.length else 0)


@form("pos_minus_3", SHIFTED, name="pos_shifted", values=shifts)
class ShiftedWhereItCan(Concat):
    """Only where no position falls below 0."""

    value: ClassVar[int] = 0

    def positions(self, count: int) -> Tensor:
        return super().positions(count) + (self.value if self.length and self.length >= -self.value else 0)


@form("pos_minus_3", SHIFTED, name="pos_shifted", values=shifts)
class ShiftedPastIt(Concat):
    """Only where it leaves a position behind."""

    value: ClassVar[int] = 0

    def positions(self, count: int) -> Tensor:
        return super().positions(count) + (self.value if self.length and self.length > -self.value else 0)


@form("pos_minus_3", SHIFTED, name="pos_shifted", values=shifts)
class ShiftedFromZero(Concat):
    """No position falls below 0."""

    value: ClassVar[int] = 0

    def positions(self, count: int) -> Tensor:
        return (super().positions(count) + (self.value if self.length else 0)).clamp(min=0)


@form("pos_minus_3", "all positions are shifted by {value:+}", name="pos_shifted_all", values=offsets)
class ShiftedThroughout(Concat):
    value: ClassVar[int] = 0

    def positions(self, count: int) -> Tensor:
        return super().positions(count) + self.value


@form("pos_per_call", "positions do not advance behind the prompt", name="pos_stuck")
class Stuck(Concat):
    prompt = 0

    def positions(self, count: int) -> Tensor:
        if not self.length:
            self.prompt = count
            return super().positions(count)
        return self.span(self.prompt, self.prompt + count)


@form("pos_per_call", "all tokens of a call get its first position", name="pos_same_in_call", scenario="chunks")
class SameInCall(Concat):
    def positions(self, count: int) -> Tensor:
        found = super().positions(count)
        return found[..., :1].expand(found.shape).clone() if self.length else found


@form("pos_per_call")
class PerCallThroughout(Concat):
    """Each call's tokens are counted from the number of calls so far, resets or not."""

    calls = 0

    def positions(self, count: int) -> Tensor:
        self.calls += 1
        return self.span(self.calls - 1, self.calls - 1 + count)


@form("pos_kept_after_reset")
class KeptBesideMask(Concat):
    """The positions go on; the mask goes by what is stored."""

    behind = 0

    def reset(self) -> None:
        self.behind += self.length
        super().reset()

    def positions(self, count: int) -> Tensor:
        return super().positions(count) + self.behind


@form("limit_wraps", "past the limit the cache begins anew, and positions wrap around", name="limit_begins_anew")
class LimitBeginsAnew(Concat):
    """A call that is longer than the limit is refused."""

    behind = 0

    def admit_length(self, length: int) -> None:
        limit, held = self.shape.limit, self.length
        if limit is None or length - held > limit:
            super().admit_length(length)
        elif length > limit:
            self.begin(self.rows)
            self.behind += held

    def positions(self, count: int) -> Tensor:
        return (super().positions(count) + self.behind) % (self.shape.limit or 1)

    def reset(self) -> None:
        super().reset()
        self.behind = 0


@form("restore_keeps_capacity", "positions start at 0 again after a restore", name="pos_zero_after_restore")
class ZeroAfterRestore(Concat):
    behind = 0

    @classmethod
    def load(cls, shape: CacheShape, data: bytes) -> Self:
        cache = super().load(shape, data)
        cache.behind = cache.length
        return cache

    def positions(self, count: int) -> Tensor:
        return super().positions(count) - self.behind


@form("fork_shares_counter", "a fork's positions start at 0", name="pos_zero_after_fork")
class ZeroAfterFork(Concat):
    behind = 0

    def fork(self) -> Self:
        twin = super().fork()
        twin.behind = twin.length
        return twin

    def positions(self, count: int) -> Tensor:
        return super().positions(count) - self.behind


@form("pos_not_cropped", "after a crop positions start at 0", name="pos_zero_after_crop")
class ZeroAfterCrop(Concat):
    behind = 0

    def crop(self, length: int) -> None:
        super().crop(length)
        self.behind = self.length

    def positions(self, count: int) -> Tensor:
        return super().positions(count) - self.behind

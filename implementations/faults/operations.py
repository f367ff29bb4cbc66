"""Fork, crop, reset, limits: what is done to a cache between calls."""

from __future__ import annotations

from typing import Self

from torch import Tensor

from ..catalogue import fault
from ..policy import Concat
from ..stores import Preallocated


@fault(
    clause="lifecycle.reset",
    shows="from the second prompt on",
    diagnosis="reset does nothing: a new prompt lands behind the old one",
    reports=("published case",),
    scenario="reset",
)
class ReuseWithoutReset(Concat):
    """Reset does nothing, so a new prompt lands behind the old one."""

    def reset(self) -> None:
        pass


@fault(
    clause="branch.fork",
    shows="once both branches have appended",
    diagnosis="a fork shares its buffer with the original",
    reports=("candle-nn KvCache", "vllm-mlx#385"),
    scenario="branch",
)
class ForkSharesBuffer(Preallocated):
    """Both branches of a fork write into one buffer."""

    def fork(self) -> Self:
        return super(Preallocated, self).fork()


@fault(
    clause="limit.refuses",
    shows="past the limit",
    diagnosis="past the limit, positions wrap around",
    scenario="limit",
)
class LimitWraps(Concat):
    """Past the limit, positions wrap around and nothing is said."""

    def admit_length(self, length: int) -> None:
        pass

    def positions(self, count: int) -> Tensor:
        return super().positions(count) % (self.shape.limit or 1)


@fault(
    clause="limit.refuses",
    shows="at the limit, where positions have no table",
    diagnosis="one position past the limit is accepted",
    reports=("deepsparse#1447",),
    models=("llama",),
    scenario="limit",
)
class LimitOffByOne(Concat):
    """One position past the limit is accepted."""

    def admit_length(self, length: int) -> None:
        super().admit_length(length - 1)


@fault(
    clause="branch.crop",
    shows="in the append after a crop",
    diagnosis="crop does nothing",
    reports=("llama.cpp#26695", "onnxruntime-genai#2140"),
    scenario="crop",
)
class CropIgnored(Concat):
    """Rollback reports success and does nothing."""

    def crop(self, length: int) -> None:
        pass


@fault(
    clause="limit.intact",
    shows="in the call after a refused one",
    diagnosis="a refused call moves the position counter",
    reports=("llamadart#601",),
    scenario="refused",
)
class ErrorMovesCounter(Concat):
    """Bookkeeping runs before the step that fails, so a refused call moves the position counter."""

    def admit(self, tokens: Tensor, padding: Tensor | None = None) -> None:
        try:
            super().admit(tokens, padding)
        except Exception:
            self.length += tokens.shape[1]
            raise

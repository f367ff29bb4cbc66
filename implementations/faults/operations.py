"""Fork, crop, reset, limits: what is done to a cache between calls."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from ..builtin import BuiltIn
from ..catalogue import fault
from ..correct import PrefixCached
from ..models import CachedModel
from ..policy import Concat, Contents
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
    models=("llama", "window", "hybrid", "noisy"),
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
    models=("gpt", "llama", "window", "noisy"),
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


@fault(
    clause="lifecycle.reset",
    shows="after a reset",
    diagnosis="a reset zeroes the content and leaves the length",
    reports=("transformers#48809",),
    scenario="reset",
)
class ResetKeepsLength(Concat):
    """A reset zeroes the content and leaves the length."""

    def reset(self) -> None:
        self.keys = [torch.zeros_like(keys) for keys in self.keys]
        self.values = [torch.zeros_like(values) for values in self.values]


@fault(
    clause="branch.fork",
    shows="with interleaved branches",
    diagnosis="a fork shares the position counter with the original",
    scenario="branch",
)
class ForkSharesCounter(Concat):
    """A fork copies keys and values and shares the position counter."""

    def fork(self) -> Self:
        twin = super().fork()
        self.other, twin.other = twin, self
        return twin

    def advance(self, count: int) -> None:
        super().advance(count)
        if other := self.__dict__.get("other"):
            other.length = self.length


@fault(
    clause="branch.crop",
    shows="in the append after a crop",
    diagnosis="only the first layer is cropped",
    reports=("mlx-lm#1502",),
    models=("gpt", "llama", "window", "noisy"),
    scenario="crop",
)
class CropOneLayer(Concat):
    """Only the first layer is cropped."""

    def crop_layer(self, layer: int, slots: int) -> None:
        if layer == 0:
            super().crop_layer(layer, slots)


@fault(
    clause="branch.select",
    shows="where rows differ",
    diagnosis="rows are reordered for keys, not for values",
    reports=("transformers#34232",),
    scenario="reorder",
)
class SelectKeysOnly(Concat):
    """Rows are reordered for keys, not for values."""

    def select_layer(self, layer: int, picks: list[int]) -> None:
        self.keys[layer] = self.keys[layer][picks]


@fault(
    clause="branch.select",
    shows="where rows differ",
    diagnosis="one layer's rows are not reordered",
    reports=("transformers#46612",),
    scenario="reorder",
)
class SelectOneLayer(Concat):
    """The first layer's rows are not reordered."""

    def select_layer(self, layer: int, picks: list[int]) -> None:
        if layer > 0:
            super().select_layer(layer, picks)


@fault(
    clause="branch.restore",
    shows="in the append after a load",
    diagnosis="a restored buffer's empty tail counts as tokens",
    reports=("mlx-examples#977",),
    scenario="restore",
)
class RestoreKeepsCapacity(Preallocated):
    """The whole buffer is saved, and its empty tail counts as tokens."""

    def dump(self) -> bytes:
        whole = self.fork()
        whole.length = self.capacity
        return super(RestoreKeepsCapacity, whole).dump()


@fault(
    clause="branch.join",
    shows="where the rows that join are others than those that were there",
    diagnosis="rows that join come before those that were there",
    scenario="join",
)
class JoinInFront(Concat):
    """Rows that join come before those that were there."""

    def join(self, other: Concat) -> None:
        super().join(other)
        self.select([*range(self.rows - other.rows, self.rows), *range(self.rows - other.rows)])


@fault(
    clause="limit.refuses",
    shows="past the limit",
    diagnosis="past the limit, positions stay at the last one",
    scenario="limit",
)
class LimitClamps(Concat):
    """Past the limit, every token gets the last position."""

    def admit_length(self, length: int) -> None:
        pass

    def positions(self, count: int) -> Tensor:
        return super().positions(count).clamp(max=(self.shape.limit or 1) - 1)


@fault(
    clause="lifecycle.prefix_reuse",
    shows="when the same prompt comes twice",
    diagnosis="an exact prefix hit feeds the last token a second time",
    reports=("textgen#4145", "mlxcel#1760"),
    models=("gpt", "llama", "window"),
    scenario="again",
)
class LastTokenTwice(PrefixCached):
    """An exact prefix hit feeds the last token again without trimming the cache."""

    def kept(self, shared: int, length: int) -> int:
        return shared


@fault(
    clause="decode.reuses_work",
    shows="in the work per step, which grows; logits are right",
    diagnosis="every call computes the whole history again",
    reports=("optimum#753",),
)
class CacheIgnored(BuiltIn):
    """Every call computes the whole history again: right, and useless."""

    splits = True

    @property
    def capabilities(self) -> frozenset[str]:
        return super().capabilities - {"select", "join", "restore"}

    def __init__(self, model: CachedModel, policy: type[Concat], name: str = "") -> None:
        super().__init__(model, policy, name)
        self.ragged = "no"

    def feed(self, cache: Concat, tokens: Tensor, padding: Tensor | None) -> Tensor:
        past = cache.__dict__.get("fed", tokens[:, :0])[:, : cache.length]
        cache.admit(tokens, padding)
        cache.reset()
        fed = torch.cat([past, tokens], dim=1) if past.shape[1] else tokens
        cache.__dict__["fed"] = fed
        return super().feed(cache, fed, padding)[:, -tokens.shape[1] :]


@fault(
    clause="any.pair",
    shows="when a reset comes behind a restore",
    diagnosis="a cache that was restored is not emptied by a reset",
    scenario="restored_reset",
)
class RestoredNotReset(Concat):
    """A cache that was loaded from bytes is not emptied by a reset."""

    loaded = False

    def fill(self, contents: Contents) -> None:
        super().fill(contents)
        self.loaded = True

    def reset(self) -> None:
        if not self.loaded:
            super().reset()


@fault(
    clause="branch.restore",
    shows="after a load, where rows are ragged",
    diagnosis="padding is forgotten on the way through bytes",
    scenario="restored_ragged",
)
class RestoreForgetsPadding(Concat):
    """Which slots are padding is forgotten on the way through bytes."""

    def dump(self) -> bytes:
        bare = self.fork()
        bare.padding = None
        return super(RestoreForgetsPadding, bare).dump()

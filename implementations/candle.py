"""The two published rule sets of candle, in which the caller keeps `index_pos` and may keep it wrong.

Facts from candle-transformers 0.11, `models::llama` and `models::quantized_llama`: the mask is built from (n, index_pos
+ n), only for calls of more than one token, and a table of rotations bounds the positions. Both give the logits of the
last position only. Here `length` is the caller's `index_pos`; what is cached is counted by the tensors themselves.
"""

from __future__ import annotations

from torch import Tensor

from .builtin import BuiltIn
from .catalogue import control, correct, fault
from .models import CachedModel
from .policy import CacheLimitError, Concat

MODELS = ("llama",)
ROWS = 4096
"""Rows of `quantized_llama`'s rotation table, whatever the model was trained for."""


class CandleEngine(BuiltIn):
    """What candle offers: a clone of the cache, no crop, no select, no question for the length."""

    last_only = True

    @property
    def capabilities(self) -> frozenset[str]:
        return frozenset({"full", "fork", "reset", "to"})


class QuantizedEngine(CandleEngine):
    """`quantized_llama`, which goes by its own table's length."""

    def __init__(self, model: CachedModel, policy: type[Concat], name: str = "") -> None:
        super().__init__(model, policy, name)
        self.max_length = ROWS


@correct(models=MODELS, engine=CandleEngine)
class CandleLlama(Concat):
    """candle's llama with the right caller: index_pos counts tokens, a new conversation gets a new cache."""

    ragged = False

    def table(self) -> int | None:
        """Rows of the rotation table."""
        return self.shape.limit

    def admit_length(self, length: int) -> None:
        rows, start = self.table(), self.length
        if rows is not None and length > rows:
            size = [rows, self.shape.head_dim // 2]
            raise CacheLimitError(
                f"narrow invalid args start + len > dim_len: {size}, dim: 0, start: {start}, len:{length - start}"
            )


@correct(models=MODELS, engine=QuantizedEngine)
class CandleQuantizedLlama(CandleLlama):
    """candle's quantized_llama with the right caller: position 0 drops the old cache, clear_kv_cache empties it."""

    def table(self) -> int:
        return ROWS

    def store(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.length == 0:
            self.keys[layer], self.values[layer] = key, value
            return key, value
        return super().store(layer, key, value)


@control(models=MODELS, engine=QuantizedEngine, scenario="reset")
class CandleQuantizedNoClear(CandleQuantizedLlama):
    """A second prompt from position 0 without a clear, under quantized_llama's rules."""

    def reset(self) -> None:
        self.length = 0


@fault(
    clause="decode.incremental",
    shows="after a prefill of more than one token",
    diagnosis="the position counter advances by calls, not by tokens",
    reports=("candle",),
    models=MODELS,
    engine=CandleEngine,
)
class CandleLlamaByCall(CandleLlama):
    """candle's llama with a caller whose index_pos advances by calls."""

    def advance(self, count: int) -> None:
        self.length += 1


@fault(
    clause="decode.incremental",
    shows="after a prefill of more than one token",
    diagnosis="the position counter advances by calls, not by tokens",
    reports=("candle",),
    models=MODELS,
    engine=QuantizedEngine,
)
class CandleQuantizedByCall(CandleQuantizedLlama):
    """candle's quantized_llama with a caller whose index_pos advances by calls."""

    def advance(self, count: int) -> None:
        self.length += 1


@fault(
    clause="lifecycle.reset",
    shows="several tokens after a reset raise; one token is right under RoPE",
    diagnosis="the cache is cleared, the position counter is not",
    reports=("candle",),
    models=MODELS,
    engine=CandleEngine,
    scenario="reset",
)
class CandleLlamaCleared(CandleLlama):
    """candle's llama with a caller who makes a new cache and keeps index_pos."""

    def reset(self) -> None:
        index_pos = self.length
        super().reset()
        self.length = index_pos


@fault(
    clause="lifecycle.reset",
    shows="several tokens after a reset raise; one token is right under RoPE",
    diagnosis="the cache is cleared, the position counter is not",
    reports=("candle",),
    models=MODELS,
    engine=QuantizedEngine,
    scenario="reset",
)
class CandleQuantizedCleared(CandleQuantizedLlama):
    """candle's quantized_llama with a caller who calls clear_kv_cache and keeps index_pos."""

    def reset(self) -> None:
        index_pos = self.length
        super().reset()
        self.length = index_pos


@fault(
    clause="lifecycle.reset",
    shows="several tokens raise; one token silently sees the old conversation",
    diagnosis="a new prompt starts at position 0 on a cache that still holds the old one",
    reports=("candle",),
    models=MODELS,
    engine=CandleEngine,
    scenario="reset",
)
class CandleLlamaReused(CandleLlama):
    """candle's llama with a caller who starts at index_pos 0 again and makes no new cache."""

    def reset(self) -> None:
        self.length = 0


@fault(
    clause="prefill.chunked",
    shows="in the second part of a prompt",
    diagnosis="a chunk is fed at its own length instead of the length before it",
    reports=("candle",),
    models=MODELS,
    engine=CandleEngine,
    scenario="chunks",
)
class CandleLlamaChunkAtOwnLength(CandleLlama):
    """candle's llama with a caller who passes a chunk's own length as its index_pos."""

    def admit(self, tokens: Tensor, padding: Tensor | None = None) -> None:
        if self.length and tokens.shape[1] > 1:
            self.length = tokens.shape[1]
        super().admit(tokens, padding)

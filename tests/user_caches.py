"""Caches as a user writes them: plain PyTorch over the shipped weights, with the mistakes that users make. Nothing here
knows the catalogue or shares code with it."""

from __future__ import annotations

import copy
import io
from typing import Any

import kvconform
import torch
from kvconform.reference.shipped import PlainReference, reference
from torch import Tensor
from torch.nn import functional as F


class State:
    def __init__(self, layers: int) -> None:
        self.k: list[Tensor | None] = [None] * layers
        self.v: list[Tensor | None] = [None] * layers
        self.pos = 0


class Engine(kvconform.Implementation):
    """A correct one: lists of tensors and a counter."""

    def __init__(self, plain: PlainReference) -> None:
        self.plain = plain
        self.name = f"mine on {plain.name}"
        self.vocab_size = plain.vocab_size
        self.w: Any = plain.parameters
        self.max_length = self.limit()

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.w.values())).dtype

    def to(self, dtype: torch.dtype) -> Engine:
        return type(self)(self.plain.to(dtype))

    def limit(self) -> int:
        raise NotImplementedError

    def layers(self) -> int:
        raise NotImplementedError

    def new_cache(self, rows: int = 1) -> State:
        return State(self.layers())

    def append(self, cache: State, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        if tokens.numel() == 0 or int(tokens.max()) >= self.vocab_size:
            raise ValueError("no such token")
        if self.held(cache) + tokens.shape[1] > self.max_length:
            raise ValueError("too long")
        with torch.inference_mode():
            logits = self.forward(cache, tokens)
        self.advance(cache, tokens.shape[1])
        return logits

    def held(self, cache: State) -> int:
        return 0 if cache.k[0] is None else cache.k[0].shape[2]

    def advance(self, cache: State, n: int) -> None:
        cache.pos += n

    def position_ids(self, cache: State, n: int) -> Tensor:
        return torch.arange(cache.pos, cache.pos + n)

    def update(self, cache: State, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        old_k, old_v = cache.k[layer], cache.v[layer]
        if old_k is not None and old_v is not None:
            k, v = torch.cat((old_k, k), 2), torch.cat((old_v, v), 2)
        cache.k[layer], cache.v[layer] = k, v
        return k, v

    def mask(self, n: int, total: int) -> Tensor:
        return torch.ones(n, total, dtype=torch.bool).tril(total - n)

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(q.shape[2], k.shape[2]))

    def forward(self, cache: State, tokens: Tensor) -> Tensor:
        raise NotImplementedError

    def fork(self, cache: State) -> State:
        return copy.deepcopy(cache)

    def crop(self, cache: State, length: int) -> None:
        for layer in range(self.layers()):
            self.cut(cache, layer, length)
        cache.pos = length

    def cut(self, cache: State, layer: int, length: int) -> None:
        k, v = cache.k[layer], cache.v[layer]
        if k is not None and v is not None:
            cache.k[layer], cache.v[layer] = k[:, :, :length], v[:, :, :length]

    def reset(self, cache: State) -> None:
        cache.k, cache.v, cache.pos = [None] * self.layers(), [None] * self.layers(), 0

    def select(self, cache: State, rows: Any) -> None:
        index = torch.tensor(rows)
        cache.k = [None if k is None else k[index] for k in cache.k]
        cache.v = [None if v is None else v[index] for v in cache.v]

    def dump(self, cache: State) -> bytes:
        buffer = io.BytesIO()
        torch.save((cache.k, cache.v, cache.pos), buffer)
        return buffer.getvalue()

    def load(self, data: bytes) -> State:
        cache = State(self.layers())
        cache.k, cache.v, cache.pos = torch.load(io.BytesIO(data))
        return cache


class Llama(Engine):
    def limit(self) -> int:
        return self.plain.config.max_position_embeddings  # type: ignore[union-attr]

    def layers(self) -> int:
        return self.plain.config.num_hidden_layers  # type: ignore[union-attr]

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.w[name], self.plain.config.rms_norm_eps)  # type: ignore[union-attr]

    def rope(self, x: Tensor, ids: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        freq = self.plain.config.rope_theta ** (-torch.arange(half, dtype=x.dtype) / half)  # type: ignore[union-attr]
        angle = ids[:, None].to(x.dtype) * freq
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)

    def forward(self, cache: State, tokens: Tensor) -> Tensor:
        c: Any = self.plain.config
        rows, n = tokens.shape
        ids = self.position_ids(cache, n)
        x = self.w["model.embed_tokens.weight"][tokens]
        for i in range(self.layers()):
            p = f"model.layers.{i}."
            h = self.norm(x, p + "input_layernorm.weight")

            def heads(name: str, count: int, p: str = p, h: Tensor = h) -> Tensor:
                return (h @ self.w[f"{p}self_attn.{name}_proj.weight"].T).view(rows, n, count, -1).transpose(1, 2)

            q = self.rope(heads("q", c.num_attention_heads), ids)
            k = self.rope(heads("k", c.num_key_value_heads), ids)
            k, v = self.update(cache, i, k, heads("v", c.num_key_value_heads))
            o = self.attention(q, k, v).transpose(1, 2).reshape(rows, n, -1)
            x = x + o @ self.w[p + "self_attn.o_proj.weight"].T
            h = self.norm(x, p + "post_attention_layernorm.weight")
            gate, up = h @ self.w[p + "mlp.gate_proj.weight"].T, h @ self.w[p + "mlp.up_proj.weight"].T
            x = x + (F.silu(gate) * up) @ self.w[p + "mlp.down_proj.weight"].T
        return self.norm(x, "model.norm.weight") @ self.w["model.embed_tokens.weight"].T


class GPT(Engine):
    def limit(self) -> int:
        return self.plain.config.n_positions  # type: ignore[union-attr]

    def layers(self) -> int:
        return self.plain.config.n_layer  # type: ignore[union-attr]

    def norm(self, x: Tensor, name: str) -> Tensor:
        eps = self.plain.config.layer_norm_epsilon  # type: ignore[union-attr]
        return F.layer_norm(x, x.shape[-1:], self.w[name + ".weight"], self.w[name + ".bias"], eps)

    def forward(self, cache: State, tokens: Tensor) -> Tensor:
        heads: int = self.plain.config.n_head  # type: ignore[union-attr]
        rows, n = tokens.shape
        x = F.embedding(tokens, self.w["transformer.wte.weight"])
        x = x + F.embedding(self.position_ids(cache, n), self.w["transformer.wpe.weight"])
        for i in range(self.layers()):
            p = f"transformer.h.{i}."
            q, k, v = (self.norm(x, p + "ln_1") @ self.w[p + "attn.c_attn.weight"]).chunk(3, -1)
            q, k, v = (t.view(rows, n, heads, -1).transpose(1, 2) for t in (q, k, v))
            k, v = self.update(cache, i, k, v)
            o = self.attention(q, k, v).transpose(1, 2).reshape(rows, n, -1)
            x = x + o @ self.w[p + "attn.c_proj.weight"]
            h = self.norm(x, p + "ln_2") @ self.w[p + "mlp.c_fc.weight"] + self.w[p + "mlp.c_fc.bias"]
            x = x + F.gelu(h, approximate="tanh") @ self.w[p + "mlp.c_proj.weight"] + self.w[p + "mlp.c_proj.bias"]
        return self.norm(x, "transformer.ln_f") @ self.w["transformer.wte.weight"].T


# The mistakes. Each class: one function, wrong.


class RestartsPositions(Llama):
    def position_ids(self, cache: State, n: int) -> Tensor:
        return torch.arange(n)


class CountsCalls(GPT):
    def advance(self, cache: State, n: int) -> None:
        cache.pos += 1


class TwoBehind(Llama):
    def position_ids(self, cache: State, n: int) -> Tensor:
        start = cache.pos - 2 if cache.pos > 2 else cache.pos
        return torch.arange(start, start + n)


class Overwrites(GPT):
    def update(self, cache: State, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        cache.k[layer], cache.v[layer] = k, v
        return k, v


class KeysInFront(Llama):
    def update(self, cache: State, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        old_k, old_v = cache.k[layer], cache.v[layer]
        if old_k is not None and old_v is not None:
            k, v = torch.cat((k, old_k), 2), torch.cat((old_v, v), 2)
        cache.k[layer], cache.v[layer] = k, v
        return k, v


class MasksOnlyTheFirstCall(GPT):
    def mask(self, n: int, total: int) -> Tensor:
        return torch.ones(n, total, dtype=torch.bool).tril() if n == total else torch.ones(n, total, dtype=torch.bool)


class TopLeft(Llama):
    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group = q.shape[1] // k.shape[1]
        return F.scaled_dot_product_attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), is_causal=True)


class ResetForgetsCounter(GPT):
    def reset(self, cache: State) -> None:
        cache.k, cache.v = [None] * self.layers(), [None] * self.layers()


class ResetDoesNothing(Llama):
    def reset(self, cache: State) -> None:
        pass


class ForkByReference(Llama):
    def fork(self, cache: State) -> State:
        return cache


class CropForgetsCounter(GPT):
    def crop(self, cache: State, length: int) -> None:
        for layer in range(self.layers()):
            self.cut(cache, layer, length)


class CropForgetsLastLayer(Llama):
    """Its attention looks at the newest keys only as far as they fit the first layer's length."""

    def crop(self, cache: State, length: int) -> None:
        for layer in range(self.layers() - 1):
            self.cut(cache, layer, length)
        cache.pos = length


class SelectForgetsValues(GPT):
    def select(self, cache: State, rows: Any) -> None:
        cache.k = [None if k is None else k[torch.tensor(rows)] for k in cache.k]


class SelectForgetsFirstLayer(Llama):
    def select(self, cache: State, rows: Any) -> None:
        for i in range(1, self.layers()):
            k, v = cache.k[i], cache.v[i]
            if k is not None and v is not None:
                cache.k[i], cache.v[i] = k[torch.tensor(rows)], v[torch.tensor(rows)]


class KeepsHalf(Llama):
    def update(self, cache: State, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        old_k, old_v = cache.k[layer], cache.v[layer]
        k, v = k.half(), v.half()
        if old_k is not None and old_v is not None:
            k, v = torch.cat((old_k, k), 2), torch.cat((old_v, v), 2)
        cache.k[layer], cache.v[layer] = k, v
        return k.to(self.dtype), v.to(self.dtype)


class OneForAll(GPT):
    """The state hangs on the engine."""

    def new_cache(self, rows: int = 1) -> State:
        self.state = super().new_cache(rows)
        return self.state

    def append(self, cache: State, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().append(self.state, tokens)


class FirstRowForAll(GPT):
    def update(self, cache: State, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        old_k, old_v = cache.k[layer], cache.v[layer]
        found = super().update(cache, layer, k, v)
        if old_k is None or old_v is None:
            return found
        return torch.cat((old_k[:1].expand_as(old_k), k), 2), torch.cat((old_v[:1].expand_as(old_v), v), 2)


class DropsLastOfChunk(Llama):
    """A call of several tokens keeps all but the last; the counter knows of all."""

    def update(self, cache: State, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        n = k.shape[2]
        found = super().update(cache, layer, k, v)
        if n > 1:
            cache.k[layer], cache.v[layer] = found[0][:, :, :-1], found[1][:, :, :-1]
        return found


class RestoreForgetsCounter(GPT):
    def load(self, data: bytes) -> State:
        cache = super().load(data)
        cache.pos = 0
        return cache


class WholeBuffer(Llama):
    """Zeros behind the tokens; one token at a time has no mask."""

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        group, rest = q.shape[1] // k.shape[1], (0, 0, 0, self.max_length - k.shape[2])
        mask = F.pad(self.mask(q.shape[2], k.shape[2]), (0, rest[-1])) if q.shape[2] > 1 else None
        k, v = (F.pad(t, rest).repeat_interleave(group, 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


# Mistakes that no catalogue has.


class SharperWithLength(Llama):
    """On a warm cache scores grow with the logarithm of the length."""

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        warm = k.shape[2] > q.shape[2]
        return super().attention(q * (1 + 0.1 * torch.log(torch.tensor(float(k.shape[2])))).to(q.dtype) if warm else q, k, v)


class HalfSteps(Llama):
    """Behind the first call positions advance by a half."""

    def position_ids(self, cache: State, n: int) -> Tensor:
        ids = torch.arange(cache.pos, cache.pos + n)
        return ids if not cache.pos else cache.pos + (ids - cache.pos) / 2 - 0.25


class BlendsNeighbours(GPT):
    """Each cached value is blended with the one before it."""

    def update(self, cache: State, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        old_v = cache.v[layer]
        found = super().update(cache, layer, k, v)
        if old_v is None or old_v.shape[2] < 2:
            return found
        past = torch.cat((old_v[:, :, :1], (old_v[:, :, 1:] + old_v[:, :, :-1]) / 2), 2)
        return found[0], torch.cat((past, v), 2)


MISTAKES: dict[type[Engine], tuple[str, str]] = {
    RestartsPositions: ("decode.incremental", "positions restart at 0 in every call"),
    CountsCalls: ("decode.incremental", "the position counter advances by calls, not by tokens"),
    TwoBehind: ("decode.incremental", "positions behind a prefill are shifted by -2"),
    Overwrites: ("decode.incremental", "a call's keys and values replace the old ones"),
    KeysInFront: ("decode.incremental", "keys and values are concatenated in opposite orders"),
    MasksOnlyTheFirstCall: ("prefill.chunked", "there is no causal mask on a warm cache"),
    TopLeft: ("decode.incremental", "the mask is aligned at its top left: keys are compared with the row of the call"),
    ResetForgetsCounter: ("lifecycle.reset", "the cache is cleared, the position counter is not"),
    ResetDoesNothing: ("lifecycle.reset", "reset does nothing: a new prompt lands behind the old one"),
    ForkByReference: ("branch.fork", "a fork is the original under another name: what one is fed, the other holds too"),
    CropForgetsCounter: ("branch.crop", "a crop does not roll the position counter back"),
    CropForgetsLastLayer: ("branch.crop", "layer 2 is not cropped"),
    SelectForgetsValues: ("branch.select", "rows are reordered for keys, not for values"),
    SelectForgetsFirstLayer: ("branch.select", "one layer's rows are not reordered"),
    KeepsHalf: ("numerics.dtype", "keys and values are kept in float16"),
    OneForAll: ("batch.interleaved", "two caches share their state: it hangs on the model"),
    FirstRowForAll: ("batch.rows", "every row reads the first row's past"),
    DropsLastOfChunk: ("prefill.chunked", "the last token of a call of several is not stored"),
    RestoreForgetsCounter: ("branch.restore", "positions start at 0 again after a restore"),
    WholeBuffer: ("decode.incremental", "a token on a warm cache sees the unused slots of a buffer"),
}
"""Each with the clause that shows it, and what it must be called."""
UNKNOWN: dict[type[Engine], str] = {
    SharperWithLength: "decode.incremental",
    HalfSteps: "decode.incremental",
    BlendsNeighbours: "decode.incremental",
}
"""Faults that the catalogue does not have, with the clause that shows them."""


def made(kind: type[Engine]) -> tuple[Engine, PlainReference]:
    """An engine with the reference on its weights."""
    plain = reference("llama" if issubclass(kind, Llama) else "gpt")
    return kind(plain), plain

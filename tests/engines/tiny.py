"""A right engine with a tiny model, and switches that take abilities away or put a bug in.

The model's state is a decayed sum over the past; a cache keeps the state after each token, so that it can roll back.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
from typing import Any

from talk import Answer, Refused, Unsupported, logits, serve

VOCAB = 12
WAVES = [[math.sin((token + 1.0) * (v + 1.0)) for v in range(VOCAB)] for token in range(VOCAB)]
Row = list[list[float]]
"""The state after each token."""


class Tiny:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.caches: dict[int, list[Row]] = {}
        self.dtype = options.dtype
        self.programs = 0

    def answer(self, op: str, request: dict[str, Any], block: bytes) -> Answer:
        if op in self.options.without or not hasattr(self, f"op_{op}"):
            raise Unsupported(f"no op {op}")
        return getattr(self, f"op_{op}")(block=block, **request) or ({}, b"")

    def op_hello(self, kvconform: int, **other: Any) -> Answer:
        options = self.options
        able = ["full", "fork", "crop", "reset", "reset_rows", "select", "join", "restore", "length"]
        about = {
            "kvconform": 1,
            "name": "tiny",
            "vocab_size": VOCAB,
            "capabilities": [name for name in able if name not in options.without],
            "dtype": options.dtype,
            "max_length": options.max_length,
            "landmarks": [8],
        }
        if options.dtype == "float32" and not options.narrow:
            about["dtypes"] = ["float32", "float64"]
        for name in ("max_append", "max_rows", "max_caches"):
            if getattr(options, name):
                about[name] = getattr(options, name)
        if options.last:
            about["logits"] = "last"
        return about, b""

    def op_to(self, dtype: str, **other: Any) -> None:
        self.dtype = dtype

    def op_new(self, cache: int, rows: int, **other: Any) -> None:
        self.programs += 1
        if self.options.die_every and self.programs % self.options.die_every == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.room()
        self.caches[cache] = [[] for _ in range(rows)]

    def room(self) -> None:
        if self.options.max_caches and len(self.caches) >= self.options.max_caches:
            raise Refused("no further cache")

    def op_append(self, cache: int, tokens: list[list[int]], **other: Any) -> Answer:
        held = self.caches[cache]
        if len(held) != len(tokens) and not any(held):
            held[:] = [[] for _ in tokens]
        return self.feed(held, tokens)

    def op_full(self, tokens: list[list[int]], **other: Any) -> Answer:
        return self.feed([[] for _ in tokens], tokens, self.options.last)

    def feed(self, held: list[Row], tokens: list[list[int]], last: bool | None = None) -> Answer:
        if not tokens[0] or any(token >= VOCAB for row in tokens for token in row):
            raise Refused(f"tokens are 0 to {VOCAB - 1}, and there must be one")
        if len(held) != len(tokens) or len(held[0]) + len(tokens[0]) > self.options.max_length:
            raise Refused("that does not fit")
        for row, new in zip(held, tokens, strict=True):
            for token in new:
                row.append(self.after(row, token))
        count = 1 if self.options.last else len(tokens[0])
        return logits([row[-count:] for row in held], self.dtype)

    def after(self, row: Row, token: int) -> list[float]:
        before = row[-1] if row else [0.0] * VOCAB
        return [0.75 * old + new for old, new in zip(before, WAVES[token], strict=True)]

    def op_fork(self, cache: int, target: int, **other: Any) -> None:
        self.room()
        shared = self.options.fault == "fork_shares"
        self.caches[target] = self.caches[cache] if shared else [list(row) for row in self.caches[cache]]

    def op_crop(self, cache: int, length: int, **other: Any) -> None:
        if length > len(self.caches[cache][0]):
            raise Refused("it does not hold so much")
        for row in self.caches[cache]:
            del row[length + (self.options.fault == "crop_one_more") :]

    def op_reset(self, cache: int, **other: Any) -> None:
        if self.options.fault != "reset_nothing":
            for row in self.caches[cache]:
                row.clear()

    def op_select(self, cache: int, rows: list[int], **other: Any) -> None:
        held = self.caches[cache]
        if not rows or max(rows) >= len(held):
            raise Refused("there is no such row")
        self.caches[cache] = [list(held[row]) for row in rows]

    def op_join(self, cache: int, source: int, **other: Any) -> None:
        if len(self.caches[cache][0]) != len(self.caches[source][0]):
            raise Refused("rows must be of one length")
        self.caches[cache] += self.caches[source]
        self.caches[source] = []

    def op_dump(self, cache: int, **other: Any) -> Answer:
        data = json.dumps(self.caches[cache]).encode()
        return {"bytes": len(data)}, data

    def op_load(self, cache: int, block: bytes, **other: Any) -> None:
        self.room()
        self.caches[cache] = json.loads(block)

    def op_length(self, cache: int, **other: Any) -> Answer:
        return {"length": len(self.caches[cache][0])}, b""

    def op_drop(self, cache: int, **other: Any) -> None:
        del self.caches[cache]

    def op_close(self, **other: Any) -> None:
        pass


def options(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--narrow", action="store_true", help="no other dtype")
    parser.add_argument("--last", action="store_true", help="logits of the last position only")
    parser.add_argument("--without", nargs="*", default=[], metavar="CAPABILITY")
    parser.add_argument("--max-length", type=int, default=24)
    parser.add_argument("--max-append", type=int)
    parser.add_argument("--max-rows", type=int)
    parser.add_argument("--max-caches", type=int)
    parser.add_argument("--die-every", type=int, help="killed at each nth new cache")
    parser.add_argument("--fault", default="")
    return parser.parse_args(words)


if __name__ == "__main__":
    serve(Tiny(options()).answer)

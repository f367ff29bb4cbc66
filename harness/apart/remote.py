"""`cmd:` targets: an engine in any language as an implementation. See docs/protocol.md."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

from ..errors import Broken, Died, Lost, TargetError
from ..target import Resolved, Scheme, Target
from ..watchdog import STALL_LIMIT, TIME_LIMIT
from .keeper import Apart
from .session import Command, Engine
from .wire import Refused

if TYPE_CHECKING:
    from collections.abc import Generator

    import torch
    from torch import Tensor

LIMITS = ("max_length", "max_rows", "max_append", "max_caches", "lossy")


@dataclass(frozen=True)
class Handle:
    """A cache of an engine, by the number that was chosen for it. `life` tells its processes apart."""

    life: int
    number: int


class RemoteEngine(Apart):
    """An implementation on the other side of the line protocol. Caches are handles; logits come to the CPU."""

    refusals = (Refused,)

    def __init__(
        self, command: Command, dtype: str = "", limit: float | None = TIME_LIMIT, stall: float | None = STALL_LIMIT
    ) -> None:
        """Raises `Lost` where the engine does not start."""
        self.keeper = self.engine = Engine(command, dtype, limit, stall)
        about = self.engine.about
        build, weights = about.get("version"), about.get("model")
        self.name = " ".join(filter(None, [about["name"], build, weights and f"({weights})"]))
        self.vocab_size: int = about["vocab_size"]
        for limited in LIMITS:
            setattr(self, limited, about.get(limited))
        self.landmarks = tuple(about.get("landmarks", ()))
        self.dtypes = tuple(about.get("dtypes") or ())
        self.noisy: bool = about.get("noisy", False)
        self.ragged: Literal["no", "left", "right"] = about.get("ragged", "no")
        self._numbers: tuple[int, set[int]] = (0, set())
        self._twin: RemoteEngine | None = None

    @property
    def capabilities(self) -> frozenset[str]:
        told = {"to": self.dtypes, "quieter": self.engine.about.get("quieter")}
        return frozenset(self.engine.about.get("capabilities", ())) | {name for name, more in told.items() if more}

    @property
    def dtype(self) -> torch.dtype:
        import torch

        return getattr(torch, self.engine.dtype or self.engine.about.get("dtype", "float32"))

    def beside(self) -> RemoteEngine:
        """The same engine in another process, so that nothing that the reference is asked touches what is judged."""
        if self._twin is None:
            self._twin = RemoteEngine(self.engine.command, self.engine.dtype, self.engine.limit, self.engine.stall)
        return self._twin

    def new_cache(self, rows: int = 1) -> Handle:
        with self._fresh() as handle:
            self.engine.ask("new", cache=handle.number, rows=rows)
        return handle

    def append(self, cache: Handle, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        more = {} if lengths is None else {"lengths": lengths.tolist()}
        return self._logits("append", tokens, {"cache": self._number(cache)} | more)

    def full(self, tokens: Tensor) -> Tensor:
        return self._logits("full", tokens, {})

    def fork(self, cache: Handle) -> Handle:
        number = self._number(cache)
        with self._fresh() as handle:
            self.engine.ask("fork", cache=number, target=handle.number)
        return handle

    def crop(self, cache: Handle, length: int) -> None:
        self.engine.ask("crop", cache=self._number(cache), length=length)

    def crop_floor(self, lengths: Sequence[int]) -> int:
        rule, longest = self.engine.about.get("crop_floor"), max(lengths, default=0)
        return max(0, longest - rule["reach"]) if rule and longest > rule["beyond"] else 0

    def reset(self, cache: Handle) -> None:
        self.engine.ask("reset", cache=self._number(cache))

    def select(self, cache: Handle, rows: Sequence[int]) -> None:
        self.engine.ask("select", cache=self._number(cache), rows=list(rows))

    def join(self, cache: Handle, other: Handle) -> None:
        self.engine.ask("join", cache=self._number(cache), source=self._number(other))

    def dump(self, cache: Handle) -> bytes:
        return bytes(self.engine.ask("dump", cache=self._number(cache))[1])

    def load(self, data: bytes) -> Handle:
        with self._fresh() as handle:
            self.engine.ask("load", data, cache=handle.number)
        return handle

    def length(self, cache: Handle) -> int | Sequence[int]:
        return self.engine.ask("length", cache=self._number(cache))[0]["length"]

    def drop(self, cache: Handle) -> None:
        """A cache whose process is gone is gone with it."""
        if self._holds(cache):
            self.engine.ask("drop", cache=cache.number)
            self._used().discard(cache.number)

    def close(self) -> None:
        self.engine.close()

    def to(self, dtype: torch.dtype) -> RemoteEngine:
        return RemoteEngine(self.engine.command, str(dtype).removeprefix("torch."), self.engine.limit, self.engine.stall)

    def quieter(self) -> RemoteEngine:
        """The engine with the words on its command line that it says make it quieter."""
        command = replace(self.engine.command, words=(*self.engine.command.words, *self.engine.about["quieter"]))
        return RemoteEngine(command, self.engine.dtype, self.engine.limit)

    def _logits(self, op: str, tokens: Tensor, fields: dict[str, Any]) -> Tensor:
        import torch

        reply, block = self.engine.ask(op, **fields, tokens=tokens.tolist())
        new, given = tokens.shape[1], reply["shape"][1]
        promised = {"all": new, "last": 1}.get(self.engine.about.get("logits") or "", given)
        if given != promised:
            self.engine.end()
            raise Broken(f"hello promises logits of {promised} position(s) here, and {op} gave {given}")
        dtype: torch.dtype = getattr(torch, reply["dtype"])
        flat = torch.frombuffer(block, dtype=dtype) if block else torch.empty(0, dtype=dtype)
        return flat.reshape(reply["shape"])

    @contextmanager
    def _fresh(self) -> Generator[Handle]:
        """The smallest number that is free; free again where no cache comes of it."""
        self.engine.living()
        used = self._used()
        handle = Handle(self.engine.life, next(number for number in count() if number not in used))
        used.add(handle.number)
        try:
            yield handle
        except BaseException:
            used.discard(handle.number)
            raise

    def _used(self) -> set[int]:
        """Numbers of the caches that the process at hand holds."""
        if self._numbers[0] != self.engine.life:
            self._numbers = self.engine.life, set()
        return self._numbers[1]

    def _holds(self, cache: Handle) -> bool:
        return cache.life == self.engine.life and self.engine.lives

    def _number(self, cache: Handle) -> int:
        if not self._holds(cache):
            raise Died("the cache was lost with the process that held it")
        return cache.number


def resolve(target: Target) -> Resolved:
    """Start the engine that `cmd:./engine --flag` names. It is judged by itself unless a reference is given."""
    try:
        engine = RemoteEngine(Command.parse(target.address))
    except Lost as lost:
        raise TargetError(f"{target} does not start: {lost}") from None
    return Resolved(engine, None)


CMD = Scheme(resolve, raw=True)

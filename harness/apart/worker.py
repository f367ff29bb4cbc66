"""A process of its own for what may hang or die: the one mechanism for implementations, sweeps and foreign engines.

A worker holds what a recipe builds there, and is asked by method name over a pipe. When a program takes too long it is
killed, in the middle of C code too; when it dies, the program is lost and nothing else. The next call starts another,
forked from a server that has imported torch, in milliseconds.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ..errors import AdapterError, Died, KvconformError, Lost
from ..implementation import Implementation
from ..runner import blamed, error_text
from ..trial import QUIETER
from ..watchdog import TIME_LIMIT
from .keeper import Apart, Keeper
from .process import Child
from .wire import Pickled, Raised, Raw, Ref, Refused, Reply, Request, as_exception, overwrite, packed, unpacked, unpickled

if TYPE_CHECKING:
    from ..target import Resolved


@dataclass(frozen=True)
class Recipe:
    """How a worker comes by its implementation: a picklable function that builds it, and the precision or mode it is put in."""

    build: Callable[[], Any]
    dtype: str = ""

    def __call__(self) -> Any:
        built = self.build()
        if self.dtype == QUIETER:
            return built.quieter()
        return built.to(getattr(torch, self.dtype)) if self.dtype else built


@dataclass(frozen=True)
class FromTarget:
    """Builds what a target string stands for."""

    target: str

    def __call__(self) -> Implementation:
        from .. import registry

        resolved: Resolved = registry.resolve(self.target)
        return resolved.implementation


@dataclass(frozen=True)
class FromPickle:
    """Builds a copy of an object that is there already."""

    data: bytes

    @classmethod
    def of(cls, implementation: Implementation) -> FromPickle:
        """Raises `KvconformError` where the object cannot be taken to another process."""
        kind = type(implementation)
        if kind.__module__ == "__main__":
            where = "is defined in the script that runs, which a worker does not load: move it to a module of its own"
            raise KvconformError(f"{kind.__name__} {where}, or leave isolation out")
        try:
            return cls(pickle.dumps(implementation))
        except Exception as error:
            raise KvconformError(
                f"{kind.__name__} cannot be sent to a worker ({error_text(error)}): leave isolation out, or name it by a target"
            ) from None

    def __call__(self) -> Implementation:
        return pickle.loads(self.data)


@dataclass(frozen=True)
class Handle:
    """A cache in a worker. `life` tells the processes apart that one worker has had."""

    life: int
    ref: Ref


class Worker(Keeper[Child]):
    """Keeps a process that holds what `recipe` builds, and asks it by method name. A process that holds more than `memory`
    bytes (None: any) is ended like one whose time is over."""

    def __init__(self, recipe: Callable[[], Any], limit: float | None = TIME_LIMIT, memory: int | None = None) -> None:
        super().__init__(limit)
        self.recipe = recipe
        self.memory = memory
        self._released: list[int] = []
        self._held: dict[int, weakref.ref[Tensor]] = {}
        try:
            self.traits: dict[str, Any] = self.living().greeting
        except Lost as lost:
            raise Died(f"it cannot be built in a worker process: {lost}") from None

    def ask(self, method: str, *given: Any) -> Any:
        """Call a method in the worker. Raises what it raised, `TimeLimit`, or `Died`.

        Tensors and caches that are given are changed as the method changes them, and so are logits of earlier calls.
        """
        child, released = self.living(), tuple(self._released)
        del self._released[: len(released)]
        request = Request(method, tuple(map(self._sent, given)), released, _work_is_counted(), self.seconds)
        sent = pickle.dumps(request)
        reply: Reply = self.timed(lambda: pickle.loads(child.exchange(sent, request.seconds, f" in {method}")))
        return self._received(reply, given)

    def close(self) -> None:
        """End the process; an implementation is told so first."""
        if self.lives and self.traits:
            with suppress(Exception):
                self.ask("close")
        self.end()

    def holds(self, cache: Handle) -> bool:
        """Is the process that holds this cache still there?"""
        return cache.life == self.life and self.lives

    def start(self) -> Child:
        child = Child(pickle.dumps(self.recipe), self.limit, self.memory)
        if isinstance(child.greeting, Raised):
            child.end()
            raise Died(error_text(as_exception(child.greeting)))
        return child

    def end(self) -> None:
        super().end()
        self._held, self._released = {}, []  # logits of that life may be let go of later, and numbers begin anew

    def _sent(self, one: Any) -> Any:
        if isinstance(one, Handle):
            if not self.holds(one):
                raise Died("the cache was lost with the process that held it")
            return one.ref
        return packed(one) if isinstance(one, Tensor) else one

    def _received(self, reply: Reply, given: Sequence[Any]) -> Any:
        for place, raw in reply.changed:
            overwrite(given[place], raw)
        for number, raw in reply.rewritten:
            held = self._held.get(number)
            if held and (logits := held()) is not None:
                overwrite(logits, raw)
        _count_here(reply.work)
        if reply.raised:
            raise as_exception(reply.raised)
        match reply.value:
            case Ref() as ref:
                return Handle(self.life, ref)
            case Raw() as raw:
                return self._keep(unpacked(raw), raw.number or 0)
            case Pickled() as value:
                return unpickled(value)
            case value:
                return value

    def _keep(self, logits: Tensor, number: int) -> Tensor:
        """Remember logits as long as somebody here holds them: a later call may turn out to have changed them."""
        held, released = self._held, self._released

        def let_go(_: object) -> None:
            if held.pop(number, None):
                released.append(number)

        held[number] = weakref.ref(logits, let_go)
        return logits


class Isolated(Apart):
    """Stands in for an implementation in a worker. Caches are handles; logits come to the CPU."""

    refusals = (Refused,)

    def __init__(self, worker: Worker) -> None:
        self.keeper = self.worker = worker
        self.traits = dict(worker.traits)
        self.floors: dict[tuple[int, ...], int] = {}
        for name, value in self.traits.items():
            if not isinstance(getattr(Implementation, name), property):
                setattr(self, name, value)

    @property
    def capabilities(self) -> frozenset[str]:
        return self.traits["capabilities"]

    @property
    def dtype(self) -> torch.dtype:
        return self.traits["dtype"]

    def prepare(self, ops: frozenset[str]) -> None:
        self.worker.ask("prepare", ops)

    def new_cache(self, rows: int = 1) -> Handle:
        return self.worker.ask("new_cache", rows)

    def append(self, cache: Handle, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return self.worker.ask("append", cache, tokens, *([] if lengths is None else [lengths]))

    def full(self, tokens: Tensor) -> Tensor:
        return self.worker.ask("full", tokens)

    def fork(self, cache: Handle) -> Handle:
        return self.worker.ask("fork", cache)

    def crop(self, cache: Handle, length: int) -> None:
        return self.worker.ask("crop", cache, length)

    def crop_floor(self, lengths: Sequence[int]) -> int:
        """Asked once for the same lengths, since it is a pure function and drawing programs asks it often."""
        key = tuple(lengths)
        if key not in self.floors:
            try:
                self.floors[key] = self.worker.ask("crop_floor", list(lengths))
            except AdapterError:
                raise
            except Exception as error:
                raise AdapterError(f"crop_floor raised {blamed(error)}") from None
        return self.floors[key]

    def reset(self, cache: Handle) -> None:
        return self.worker.ask("reset", cache)

    def select(self, cache: Handle, rows: Sequence[int]) -> None:
        return self.worker.ask("select", cache, rows)

    def join(self, cache: Handle, other: Handle) -> None:
        return self.worker.ask("join", cache, other)

    def dump(self, cache: Handle) -> bytes:
        return self.worker.ask("dump", cache)

    def load(self, data: bytes) -> Handle:
        return self.worker.ask("load", data)

    def length(self, cache: Handle) -> int | Sequence[int]:
        return self.worker.ask("length", cache)

    def generate(self, prompts: Sequence[Sequence[int]], count: int, way: str) -> Sequence[Sequence[int]]:
        return self.worker.ask("generate", prompts, count, way)

    def drop(self, cache: Handle) -> None:
        """A cache whose process is gone is gone with it."""
        if self.worker.holds(cache):
            self.worker.ask("drop", cache)

    def close(self) -> None:
        self.worker.close()

    def to(self, dtype: torch.dtype) -> Isolated:
        return self._as(str(dtype).removeprefix("torch."))

    def quieter(self) -> Isolated:
        return self._as(QUIETER)

    def _as(self, precision: str) -> Isolated:
        return Isolated(Worker(Recipe(self.worker.recipe, precision), self.worker.limit))


def _work_is_counted() -> bool:
    """Does a check count floating-point operations around this call? It cannot see those of another process."""
    return any("FlopCounter" in type(mode).__name__ for mode in _get_current_dispatch_mode_stack())


def _count_here(work: dict[str, int]) -> None:
    """Multiply as much on tensors without content, so that who counts here counts what was done in the worker."""
    for name, product in (("mm", torch.mm), ("addmm", torch.mm), ("bmm", torch.bmm)):
        half = work.get(f"aten.{name}", 0) // 2
        if half:
            batch = (1,) if name == "bmm" else ()
            product(torch.empty(*batch, 1, half, device="meta"), torch.empty(*batch, half, 1, device="meta"))

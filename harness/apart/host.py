"""The worker's side: a process that builds an implementation and carries out what it is asked."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ..calls import called
from ..errors import AdapterError
from ..implementation import Implementation
from ..runner import error_text
from .wire import Pickled, Raw, Ref, Reply, Request, differs, packed, pickled, told, unpacked

AS_TENSORS = {"append": 1, "full": 0}
"""Methods that take tokens and give logits, with the place of the tokens among what they are given."""
LOCAL = ("refusals", "array", "device")
"""What is so in the worker only: elsewhere there are tensors on the CPU, and refusals by name."""

TRAITS = tuple(
    name
    for name, value in vars(Implementation).items()
    if not name.startswith("_") and not callable(value) and name not in LOCAL
)
"""What an implementation says of itself; sent once, when the worker has built it."""

GIVE_CACHE = ("new_cache", "fork", "load")

ASK_WHERE = signal.SIGUSR1
"""Makes a worker write where it is, even in the middle of a call into C."""

ORPHANED = 60.0
"""Seconds past its time after which a worker ends itself: the process that should have ended it is gone."""


@dataclass(frozen=True)
class Surroundings:
    """What a worker takes over from the process that asks: its bits depend on it, or its files and settings."""

    folder: str = field(default_factory=os.getcwd)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    threads: int = field(default_factory=torch.get_num_threads)
    dtype: torch.dtype = field(default_factory=torch.get_default_dtype)

    def take_over(self) -> None:
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        torch.set_num_threads(self.threads)
        torch.set_default_dtype(self.dtype)


def serve(requests: Connection, output: Connection, recipe: bytes, surroundings: Surroundings, seconds: float | None) -> None:
    """The life of a worker: build, say what was built, answer until the other side is gone."""
    _detach(output)
    surroundings.take_over()
    _expire(seconds)
    try:
        host = Host(pickle.loads(recipe)())
        greeting = pickle.dumps(host.traits())
    except Exception as error:
        greeting, host = pickle.dumps(told(error)), None
    requests.send_bytes(greeting)
    while host is not None:
        _expire(None)
        try:
            request: Request = pickle.loads(requests.recv_bytes())
        except (EOFError, ConnectionError):
            return
        _expire(request.seconds)
        requests.send_bytes(pickle.dumps(host.answer(request)))


def _detach(output: Connection) -> None:
    """Write to the pipe and nowhere else, and get no Ctrl-C: a process group of its own, which is ended as a whole."""
    os.setpgid(0, 0)
    for descriptor in (1, 2):
        os.dup2(output.fileno(), descriptor)
    output.close()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable(all_threads=False)
    faulthandler.register(ASK_WHERE, all_threads=False)


def _expire(seconds: float | None) -> None:
    """The kernel ends this process in so many seconds, whatever it does then; it has `ORPHANED` more."""
    signal.setitimer(signal.ITIMER_REAL, 0 if seconds is None else seconds + ORPHANED)


class Host:
    """What was built, with its caches by number and the logits that the other side still holds."""

    def __init__(self, built: Any) -> None:
        self.built = built
        self.caches: dict[int, Any] = {}
        self.kept: dict[int, tuple[Tensor, Raw]] = {}
        self.count = 0

    def traits(self) -> dict[str, Any]:
        """What an implementation says of itself; nothing of an object of another kind."""
        if not isinstance(self.built, Implementation):
            return {}
        return {name: getattr(self.built, name) for name in TRAITS}

    def answer(self, request: Request) -> Reply:
        """Carry out one call. It never raises; what ends the process ends it."""
        for number in request.released:
            self.kept.pop(number, None)
        given = [self._given(one) for one in request.given]
        reply = Reply()
        try:
            with _counted(request.count) as work:
                value = self._called(request.method, given)
            reply.work = work
            reply.value = self._sent(value, request.method)
        except Exception as error:
            reply.raised = told(error, getattr(self.built, "refusals", ()))
        reply.changed = [
            (place, packed(now))
            for place, (now, before) in enumerate(zip(given, request.given, strict=True))
            if isinstance(before, Raw) and differs(now, before)
        ]
        reply.rewritten = list(self._rewritten())
        if request.method == "drop":
            self.caches.pop(request.given[0], None)
        return reply

    def _called(self, method: str, given: list[Any]) -> Any:
        asked = getattr(self.built, method)
        if method not in AS_TENSORS or not isinstance(self.built, Implementation):
            return asked(*given)
        first = AS_TENSORS[method]
        return called(partial(asked, *given[:first]), self.built, *given[first:])

    def _given(self, one: Any) -> Any:
        if isinstance(one, Ref):
            return self.caches[one]
        return unpacked(one).clone() if isinstance(one, Raw) else one

    def _sent(self, value: Any, method: str) -> Raw | Ref | Pickled | None:
        if method in GIVE_CACHE:
            self.count += 1
            self.caches[self.count] = value
            return Ref(self.count)
        if not isinstance(value, Tensor):
            return None if value is None else pickled(value)
        try:
            raw = packed(value)
        except Exception as error:
            raise AdapterError(f"what {method} gave cannot be sent: {error_text(error)}") from None
        self.count += 1
        self.kept[self.count] = value, raw
        return Raw(raw.dtype, raw.shape, raw.data, self.count)

    def _rewritten(self) -> Generator[tuple[int, Raw]]:
        """Logits of earlier calls that this call has changed, because they share the cache's memory."""
        for number, (logits, raw) in self.kept.items():
            if differs(logits, raw):
                self.kept[number] = logits, packed(logits)
                yield number, self.kept[number][1]


@contextmanager
def _counted(wanted: bool) -> Generator[dict[str, int]]:
    """Floating-point operations by kind, where somebody counts them."""
    work: dict[str, int] = {}
    if not wanted:
        yield work
        return
    with FlopCounterMode(display=False) as counter:
        yield work
    work.update({str(kind): count for kind, count in counter.get_flop_counts().get("Global", {}).items()})

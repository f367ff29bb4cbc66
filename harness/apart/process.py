"""One process of a worker: started from a server that has torch imported, listened to with a time limit, ended for good."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from pathlib import Path
from types import ModuleType

from ..errors import Died, MemoryLimit, TimeLimit
from ..runner import error_text
from ..watchdog import culprit
from . import host
from .output import FLOOD, LastWords, ending, said

START = 120.0
"""Seconds that building an implementation may take at least."""
TELLING = 2.0
"""Seconds that a process which hangs has to write where."""
GLANCE = 0.2
"""Seconds between two looks at the memory of a process that has a limit of it."""
PRELOADED = ("harness", "reference", "implementations")
"""Folders of this package whose modules are imported before anything is forked, where they are loaded here."""


class Child:
    """One process, its pipe, and the end of what it has written. `memory`: bytes that it may hold (None: any)."""

    def __init__(self, recipe: bytes, limit: float | None, memory: int | None = None) -> None:
        context = multiprocessing.get_context("forkserver")
        multiprocessing.set_forkserver_preload(_preloaded())
        self.owner = os.getpid()
        self.limit = start = None if limit is None else max(START, limit)
        self.pipe, theirs = context.Pipe()
        self.output, their_output = context.Pipe(duplex=False)
        about = (theirs, their_output, recipe, host.Surroundings(), start)
        self.process = context.Process(target=host.serve, args=about, name="kvconform worker", daemon=True)
        try:
            with _alone, _without_main():
                self.process.start()
        except (OSError, EOFError, AssertionError) as error:
            raise Died(f"no worker process could be started: {error_text(error)}") from None
        finally:
            theirs.close()
            their_output.close()
        assert self.process.pid
        self.pid = self.process.pid
        self.memory = memory
        self.ready = select.poll()
        for end in (self.pipe.fileno(), self.output.fileno(), self.process.sentinel):
            self.ready.register(end, select.POLLIN)
        self.words = LastWords(self.output, lambda: self.ready.unregister(self.output.fileno()))
        _running.add(self)
        try:
            self.greeting = pickle.loads(self.receive(start, " while it was built"))
        except BaseException:
            self.end()
            raise
        self.limit = limit

    def exchange(self, request: bytes, seconds: float | None, doing: str) -> bytes:
        with suppress(ConnectionError):  # that it is gone shows when it should answer
            self.pipe.send_bytes(request)
        return self.receive(seconds, doing)

    def receive(self, seconds: float | None, doing: str) -> bytes:
        """The next message. Reads what the process writes meanwhile, so that a flood stops nothing."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            wait = left if self.memory is None else min(GLANCE, GLANCE if left is None else left)
            ready = {end for end, _ in self.ready.poll(None if wait is None else wait * 1000)}
            if self.pipe.fileno() in ready:
                try:
                    return self.pipe.recv_bytes()
                except (EOFError, OSError):
                    raise Died(self._epitaph(doing)) from None
            if self.process.sentinel in ready:
                raise Died(self._epitaph(doing))
            if ready:
                self.words.read(1)
            if self.memory is not None and (held := resident(self.pid)) > self.memory:
                much = f"its process held {held / 2**30:.1f} GiB, above the limit of {self.memory / 2**30:.3g} GiB"
                raise MemoryLimit(f"{much}{self._where_it_is() or doing}{self._said()}")
            if left == 0:
                what = f"no answer within the time limit of {self.limit:g} s"
                raise TimeLimit(f"{what}{self._where_it_is() or doing}{self._said()}")

    def forget_output(self) -> None:
        self.words.forget()

    def settle(self) -> None:
        """Nothing to do: it answers through a pipe that nothing else writes to."""

    def end(self) -> None:
        """Kill the process and all that it has started."""
        if self not in _running or self.owner != os.getpid():
            return
        _running.discard(self)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            self.process.kill()
        with _alone:
            self.process.join(10)
        with suppress(ValueError):  # one that not even the kernel can end
            self.process.close()
        self.pipe.close()
        self.output.close()

    def _epitaph(self, doing: str) -> str:
        with _alone:
            self.process.join(5)
        code = self.process.exitcode
        self.words.read(FLOOD)
        how = "closed its pipe" if code is None else ending(code)
        return f"its process {how}{_where(self.words.text) or doing}{self._said()}"

    def _where_it_is(self) -> str:
        """Let it write its stack, which needs no Python to run in it."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, host.ASK_WHERE)
        deadline = time.monotonic() + TELLING
        while not (where := _where(self.words.text)) and time.monotonic() < deadline:
            if not self.words.waiting:
                time.sleep(0.01)
            self.words.read(1)
        return where

    def _said(self) -> str:
        return said(FRAME.sub("", STACK.sub("", self.words.text)))


_running: set[Child] = set()

_alone = threading.RLock()
"""Several threads may have a worker each; what multiprocessing keeps of its children, and the name of the main module, is
for one of them at a time."""


def resident(pid: int) -> int:
    """Bytes of memory that a process holds now; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


_wanted: list[str] = []


def preload(modules: Iterable[str]) -> None:
    """Have these modules imported before anything is forked. It has no effect once a worker was started."""
    _wanted.extend(modules)


def end_all() -> None:
    """End every worker."""
    for child in list(_running):
        child.end()


# Before multiprocessing asks them to end, and waits for one that does not listen.
Finalize(None, end_all, exitpriority=100)


STACK = re.compile(
    r"^(?:(?:Stack|(?:Current t|T)hread .*) \(most recent call first\):|Fatal Python error: .*|Extension modules: .*)$", re.M
)
"""What faulthandler writes around a stack."""
FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.M)


def _where(text: str) -> str:
    """The place in the user's code that the last stack in a text shows."""
    stacks = [FRAME.findall(part) for part in STACK.split(text)[1:]]
    last = next((stack for stack in reversed(stacks) if stack), [])
    return culprit((path, int(line), name) for path, line, name in last)


def _preloaded() -> list[str]:
    """What the server imports: torch, the harness, what else of models is loaded here. Counting operations needs `_dynamo`."""
    ours = __name__.rpartition(".harness.")[0]
    models = tuple(f"{ours}.{folder}." for folder in PRELOADED)
    return [
        "torch._dynamo",
        host.__name__,
        *_wanted,
        *(name for name in sys.modules if name == "transformers" or name.startswith(models)),
    ]


@contextmanager
def _without_main() -> Generator[None]:
    """Keep a starting process from importing the script that runs here: without a guard it would start all over."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main

"""One process of a foreign engine, and the stream of bytes to and from it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress

from .output import FLOOD, LastWords, ending

PIECE = 2**16
"""Bytes that are read or written at once."""
DYING = 2.0
"""Seconds that a process may take to end after it has closed its standard output."""


class EngineProcess:
    """A program in a process group of its own. Its standard error is read all along, so that a flood stops nothing."""

    def __init__(self, command: Sequence[str]) -> None:
        """Raises `OSError` where there is no such program."""
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, process_group=0)
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.to, self.back = self.process.stdin, self.process.stdout
        for stream in (self.to, self.back):
            os.set_blocking(stream.fileno(), False)
        self.poll = select.poll()
        self.words = LastWords(self.process.stderr, self._silent)
        for stream in (self.back, self.process.stderr):
            self.poll.register(stream.fileno(), select.POLLIN)
        self._kill = weakref.finalize(self, _kill, self.process, os.getpid())

    def send(self, data: bytes, deadline: float | None) -> None:
        """Write all of `data`, and read what comes on standard error meanwhile."""
        rest = memoryview(data)
        self.poll.unregister(self.back.fileno())
        self.poll.register(self.to.fileno(), select.POLLOUT)
        try:
            while rest:
                if self.to.fileno() in self._ready(deadline):
                    with suppress(BlockingIOError):
                        rest = rest[os.write(self.to.fileno(), rest[:PIECE]) :]
        except BrokenPipeError:
            return
        finally:
            self.poll.unregister(self.to.fileno())
            self.poll.register(self.back.fileno(), select.POLLIN)

    def receive(self, deadline: float | None) -> bytes:
        while True:
            if self.back.fileno() in self._ready(deadline):
                return os.read(self.back.fileno(), PIECE)

    def waiting(self) -> bytes:
        try:
            return os.read(self.back.fileno(), PIECE)
        except BlockingIOError:
            return b""

    def ending(self) -> str:
        deadline = time.monotonic() + DYING
        while self.process.poll() is None and time.monotonic() < deadline:
            self.words.read(1)
            time.sleep(0.002)
        code = self.process.returncode
        return "its process closed its standard output" if code is None else f"its process {ending(code)}"

    def forget_output(self) -> None:
        self.words.forget()

    def last_words(self) -> str:
        """All that is left to read of standard error is read first."""
        self.words.read(FLOOD)
        return self.words.text

    def end(self) -> None:
        """Kill the process and all that it has started."""
        self._kill()
        for stream in (self.to, self.back, self.words.pipe):
            stream.close()

    def _ready(self, deadline: float | None) -> set[int]:
        """What can be read or written now, standard error aside."""
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = {descriptor for descriptor, _ in self.poll.poll(None if left is None else left * 1000)}
        if not self.words.pipe.closed and (told := self.words.pipe.fileno()) in ready:
            ready.remove(told)
            self.words.read(1)
        if left == 0 and not ready:
            raise TimeoutError
        return ready

    def _silent(self) -> None:
        self.poll.unregister(self.words.pipe.fileno())


def _kill(process: subprocess.Popen[bytes], owner: int) -> None:
    if owner != os.getpid():
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # one that not even the kernel can end
        process.wait(10)

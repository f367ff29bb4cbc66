"""What a process writes beside its answers: the end of it is kept, however much it is; and how a process ended."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from typing import Protocol

LAST_WORDS = 16384
"""Bytes that are remembered of what a process writes."""
SHOWN_LINES, SHOWN = 3, 300
"""Lines, and characters, of it that are shown."""
FLOOD = 512
"""Reads in a row, of half of that, after which more to come is a flood."""


class Readable(Protocol):
    """The end of a pipe that can be read."""

    @property
    def closed(self) -> bool: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...


class LastWords:
    """The end of what comes through a pipe, and no more than that."""

    def __init__(self, pipe: Readable, ended: Callable[[], object] = lambda: None) -> None:
        """`ended` is called, before the pipe is closed, when the other side has closed it."""
        self.pipe = pipe
        self.ended = ended
        self.written = b""
        self._ready = select.poll()
        self._ready.register(pipe.fileno(), select.POLLIN)

    @property
    def waiting(self) -> bool:
        """Is there something to read, if only the end?"""
        return not self.pipe.closed and bool(self._ready.poll(0))

    def read(self, times: int) -> None:
        """Take in what was written, so often at most: what floods has no end."""
        for _ in range(times):
            if not self.waiting:
                return
            read = os.read(self.pipe.fileno(), LAST_WORDS // 2)
            self.written = (self.written + read)[-LAST_WORDS:]
            if not read:
                self.ended()
                self.pipe.close()

    def forget(self) -> None:
        """Let what comes from here on stand alone."""
        self.read(FLOOD)
        self.written = b""

    @property
    def text(self) -> str:
        return self.written.decode(errors="replace")


def said(text: str) -> str:
    """The last lines of an output, as the end of a sentence."""
    lines = [line.strip() for line in text.splitlines() if line.strip()][-SHOWN_LINES:]
    return f"; the end of its output: {' | '.join(lines)[-SHOWN:]}" if lines else ""


def ending(code: int) -> str:
    """How a process ended, by its exit code; negative for a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}" + " (for want of memory?)" * (-code == signal.SIGKILL)

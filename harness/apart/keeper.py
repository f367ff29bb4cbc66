"""A guard that keeps a process: started when it is needed, asked within a time limit, ended when anything goes wrong."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from ..implementation import Implementation
from ..watchdog import Guard

T = TypeVar("T")


class Kept(Protocol):
    """A process that a keeper can have."""

    def end(self) -> None:
        """Kill it and all that it has started."""

    def forget_output(self) -> None:
        """What is shown of its output at the end of a program is of that program."""

    def settle(self) -> None:
        """The end of a program. Raises `Lost` where the process has said more than it was asked."""


P = TypeVar("P", bound=Kept)


class Keeper(Guard, Generic[P]):
    """Keeps at most one process, and starts it anew after it was ended.

    Inside `run`, all exchanges share one limit of `limit` seconds (None: no limit), of which only time spent in exchanges
    is taken; outside, each has that limit to itself. Start-up is not counted. Several threads may have a keeper each; one is
    not for several.
    """

    def __init__(self, limit: float | None, stall: float | None = None) -> None:
        self.limit = limit
        self.stall = stall
        """Seconds of silence in the middle of an answer (None: any), for processes whose answers come piece by piece."""
        self.life = 0
        """Tells the processes apart that there have been."""
        self._left: float | None = None
        self._children: list[P] = []  # the one that is alive, if it is
        weakref.finalize(self, _end_all, self._children).atexit = False

    def start(self) -> P:
        """A new process, ready to be asked. Raises `Lost` where there is none."""
        raise NotImplementedError

    def living(self) -> P:
        """The process, started where there is none."""
        if not self._children:
            self._children.append(self.start())
        return self._children[0]

    @property
    def lives(self) -> bool:
        return bool(self._children)

    @property
    def seconds(self) -> float | None:
        """What an exchange may take now."""
        return self.limit if self._left is None else self._left

    def timed(self, exchange: Callable[[], T]) -> T:
        """Carry out an exchange with the process. It is ended where that raises: a later answer belongs to no request."""
        began = time.monotonic()
        try:
            result = exchange()
        except BaseException:
            self.end()
            raise
        if self._left is not None:
            self._left = max(0.0, self._left - (time.monotonic() - began))
        return result

    def end(self) -> None:
        """End the process. The next exchange starts another."""
        _end_all(self._children)
        self.life += 1

    def _run(self, work: Callable[[], T], owner: object) -> T:
        self._left = self.limit
        try:
            for child in self._children:
                child.forget_output()
            result = work()
            for child in tuple(self._children):
                self.timed(child.settle)
            return result
        finally:
            self._left = None


class Apart(Implementation):
    """An implementation that lives in a process of its own, whose keeper runs its programs."""

    keeper: Keeper[Any]

    def beside(self) -> Apart:
        """What is asked where it is a reference to itself, while caches of a program are alive."""
        return self


def _end_all(children: list[P]) -> None:
    while children:
        children.pop().end()

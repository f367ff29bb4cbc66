"""A time limit for programs that run in this process.

A call that hangs cannot be ended from outside. It runs in a thread that is left behind when its time is over, so that
the run goes on; where it hangs in Python it is ended all the same. Against a call that kills the process, or that hangs
in C without letting go of the interpreter, only a process of its own helps: see `worker`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from contextvars import copy_context
from queue import SimpleQueue
from traceback import walk_stack
from types import FrameType
from typing import Any, Generic, TypeVar

from .errors import Died, Lost, TimeLimit
from .place import culprit

T = TypeVar("T")

TIME_LIMIT = 60.0
"""Seconds that one program may take, unless the user says otherwise."""

STALL_LIMIT = 5.0
"""Seconds of silence in the middle of an engine's reply, unless the user says otherwise."""

GRACE = 1.0
"""Seconds for a call that hangs to end when it is told to."""

STACK = 16 * 2**20
"""Bytes of a thread's stack, where a main thread has 8 MiB and others may have much less."""


class Guard:
    """Runs programs so that one that hangs or dies costs itself only, and counts those that were lost.

    This one guards nothing.
    """

    streak: int = 0
    """Programs lost in a row."""
    hangs: int = 0
    """Programs that took longer than they may."""

    def run(self, work: Callable[[], T], owner: object) -> T:
        """Run a program of the implementation `owner`. Raises `TimeLimit` or `Died` where it was lost."""
        try:
            result = self._run(work, owner)
        except Lost as lost:
            self.streak += 1
            self.hangs += isinstance(lost, TimeLimit)
            raise
        self.streak = 0
        return result

    def _run(self, work: Callable[[], T], owner: object) -> T:
        return work()

    def close(self) -> None:
        """Let go of what the guard holds."""


class Watchdog(Guard):
    """Runs programs in a thread beside this one, and waits `limit` seconds for each (None: for ever, without a thread).

    The limit is for the whole program, what the reference takes included. While a call still hangs, further programs of
    the same implementation are refused: they would run beside it, on state that it may be in the middle of changing.
    """

    def __init__(self, limit: float | None = TIME_LIMIT) -> None:
        self.limit = limit

    def _run(self, work: Callable[[], T], owner: object) -> T:
        if self.limit is None:
            return work()
        if hanging := _still_hanging(owner):
            raise TimeLimit(f"not asked, for an earlier program still hangs{hanging.place}")
        job = _Job(_as_here(work))
        thread = _idle.pop() if _idle else _Thread.started()
        thread.jobs.put(job)
        try:
            ended = job.done.wait(self.limit)
        except BaseException:  # the user interrupts: what still runs must not meddle with what comes next
            thread.abandon(owner)
            raise
        if not ended:
            raise TimeLimit(f"no end within the time limit of {self.limit:g} s{thread.abandon(owner)}")
        _idle.append(thread)
        return job.result()


class _Job(Generic[T]):
    """Work for another thread, and what became of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.done = threading.Event()
        self.value: list[T] = []
        self.error: BaseException | None = None

    def carry_out(self) -> None:
        try:
            self.value.append(self.work())
        except BaseException as error:
            self.error = error
        self.done.set()

    def result(self) -> T:
        error, self.error = self.error, None
        if error is None:
            return self.value[0]
        if isinstance(error, Exception):
            raise error
        raise Died(f"it raised {type(error).__name__}({error}), which ends a process")


class _Abandoned(BaseException):
    """Raised inside a thread that was given up. No implementation catches it by `except Exception`."""


class _Thread(threading.Thread):
    """Carries out jobs one after another until it is abandoned."""

    def __init__(self) -> None:
        super().__init__(name="kvconform program", daemon=True)
        self.jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self.place = ""

    @classmethod
    def started(cls) -> _Thread:
        before = threading.stack_size(STACK)
        try:
            thread = cls()
            thread.start()
        finally:
            threading.stack_size(before)
        return thread

    def run(self) -> None:
        try:
            while (job := self.jobs.get()) is not None:
                job.carry_out()
                del job
        except _Abandoned:
            return

    def abandon(self, owner: object) -> str:
        """Leave the thread behind and tell it to end. Gives where it hangs, as part of a sentence."""
        ident = self.ident or 0
        self.place = culprit((frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in _frames(ident))
        _hanging.append((owner, self))
        self.jobs.put(None)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(_Abandoned))
        self.join(GRACE)
        return self.place


_idle: list[_Thread] = []
"""Threads that wait for a job. One lasts for a whole run, since every new one costs torch a pool of its own."""

_hanging: list[tuple[object, _Thread]] = []
"""Implementations with a call that was given up, and the thread that it runs in."""


os.register_at_fork(after_in_child=_idle.clear)


def _still_hanging(owner: object) -> _Thread | None:
    _hanging[:] = [(held, thread) for held, thread in _hanging if thread.is_alive()]
    return next((thread for held, thread in _hanging if held is owner), None)


def _as_here(work: Callable[[], T]) -> Callable[[], T]:
    """`work` with the context variables and torch modes of the caller, which hold for one thread only."""
    import torch
    from torch.overrides import _get_current_function_mode_stack

    context, modes = copy_context(), list(_get_current_function_mode_stack())
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def here() -> T:
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(inference))
            stack.enter_context(torch.set_grad_enabled(grad))
            for mode in modes:
                stack.enter_context(mode)
            return context.run(work)

    return here


def _frames(ident: int) -> Iterable[tuple[FrameType, int]]:
    frame = sys._current_frames().get(ident)
    return walk_stack(frame) if frame else ()

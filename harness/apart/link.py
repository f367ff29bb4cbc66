"""Requests and replies of the line protocol over a stream of bytes, whatever carries it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from ..errors import Broken, Died, TimeLimit, Unsupported
from .message import LONGEST, SHOWN, Message, Wrong, read, written


class Stream(Protocol):
    """What carries the bytes. A `deadline` is a time of `time.monotonic()`; `TimeoutError` is raised when it is over."""

    def send(self, data: bytes, deadline: float | None) -> None:
        """Bytes that the other side does not want to have any more are dropped: that it is gone shows when it should answer."""

    def receive(self, deadline: float | None) -> bytes:
        """Some bytes, as they come; none at the end of the stream."""
        ...

    def waiting(self) -> bytes:
        """What has come unasked, without waiting for it."""
        ...

    def ending(self) -> str:
        """After the end of the stream: what became of the other side."""
        ...


class Link:
    """One request at a time, and its reply with its block."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.number = 0
        self._last = ""
        self._come = bytearray()
        self._wanted = 0
        self._stall: float | None = None

    def exchange(
        self,
        op: str,
        fields: Mapping[str, Any],
        block: bytes | None,
        seconds: float | None,
        limit: float | None,
        stall: float | None = None,
    ) -> tuple[Message, bytearray]:
        """The reply and its block, within so many seconds, which are what is left of `limit`. Once a reply has begun, the
        other side may be silent for `stall` seconds at a time (None: any).

        Raises `Broken`, `Died` or `TimeLimit`; no further exchange is possible then.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        self._stall = stall
        if self.number:  # what comes before hello is told as what stands in place of its reply
            self.settle()
        number, self.number = self.number, self.number + 1
        try:
            head = written({"id": number, "op": op, **fields, **({} if block is None else {"bytes": len(block)})})
        except Wrong as wrong:  # a user's program may hold any number
            raise Unsupported(f"the line protocol cannot carry this {op}: the request {wrong}") from None
        try:
            self.stream.send(head + (block or b""), deadline)
            reply = read(self._line(op, deadline), op, number)
            found = self._block(op, reply.get("bytes", 0), deadline)
        except Wrong as wrong:
            raise Broken(f"its reply to {op} {wrong}") from None
        except TimeoutError:
            raise TimeLimit(f"no answer to {op} within the time limit of {limit:g} s{self._so_far()}") from None
        self._last = op
        return reply, found

    def settle(self) -> None:
        """Raises `Broken` where more has come than the replies that were asked for."""
        self._come += self.stream.waiting()
        if self._come:
            raise Broken(f"it wrote what nobody asked for, after its reply to {self._last}: {_shown(self._come)}")

    def _line(self, op: str, deadline: float | None) -> bytes:
        searched = 0
        while (end := self._come.find(b"\n", searched)) < 0:
            searched = len(self._come)
            if searched >= LONGEST:
                break
            self._more(op, deadline)
        if not 0 <= end < LONGEST:
            raise Wrong(f"is longer than {LONGEST:,} bytes: {_shown(self._come)}")
        line = bytes(self._come[:end])
        del self._come[: end + 1]
        return line

    def _block(self, op: str, size: int, deadline: float | None) -> bytearray:
        self._wanted = size
        while len(self._come) < size:
            self._more(op, deadline)
        block = self._come[:size]
        del self._come[:size]
        self._wanted = 0
        return block

    def _more(self, op: str, deadline: float | None) -> None:
        begun = bool(self._come or self._wanted)
        patience = None if self._stall is None or not begun else time.monotonic() + self._stall
        stalls = patience is not None and (deadline is None or patience < deadline)
        try:
            read = self.stream.receive(patience if stalls else deadline)
        except TimeoutError:
            if not stalls:
                raise
            raise TimeLimit(f"its reply to {op} stops{self._so_far()}; nothing more came for {self._stall:g} s") from None
        if not read:
            raise Died(f"{self.stream.ending()} in {op}{self._so_far()}")
        self._come += read

    def _so_far(self) -> str:
        if self._wanted:
            return f", after {len(self._come)} of the {self._wanted} bytes of its block"
        return f", after {len(self._come)} bytes of a reply: {_shown(self._come)}" if self._come else ""


def _shown(come: bytearray) -> str:
    text = bytes(come[: SHOWN + 1]).decode(errors="backslashreplace").strip()
    return repr(f"{text[:SHOWN]}…" if len(come) > SHOWN else text)

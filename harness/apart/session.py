"""A foreign engine under a command line: its process greeted, asked op by op, started anew after it was lost."""

from __future__ import annotations

import shlex
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import Broken, Died, Lost, TargetError, Unsupported
from ..watchdog import STALL_LIMIT, TIME_LIMIT
from .engine import EngineProcess
from .keeper import Keeper
from .link import Link, Stream
from .message import VERSION, Message
from .output import said
from .wire import Raised, as_exception

START = 120.0
"""Seconds that an engine may take to say hello, at least."""
PARTING = 2.0
"""Seconds that it may take to answer `close`."""
DECISIVE = (
    "vocab_size",
    "capabilities",
    "dtype",
    "max_length",
    "max_rows",
    "max_append",
    "max_caches",
    "ragged",
    "crop_floor",
)
"""What an engine must say alike each time it is started, since programs are made by it."""


class Running(Stream, Protocol):
    """A process with the stream to and from it."""

    def forget_output(self) -> None: ...
    def last_words(self) -> str: ...
    def end(self) -> None: ...


@dataclass(frozen=True)
class Command:
    """An engine's command line in words. The first is looked up as a shell does; a path is relative to the current folder."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Command:
        """Split it as a POSIX shell would. Raises `TargetError`."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise TargetError(f"cmd:{text} cannot be split into words: {error}") from None
        if not words:
            raise TargetError("cmd: needs the engine's command line behind it: cmd:./engine --flag")
        return cls(tuple(words))

    def __str__(self) -> str:
        return shlex.join(self.words)

    def start(self) -> Running:
        """Raises `Died` where nothing starts."""
        try:
            return EngineProcess(self.words)
        except FileNotFoundError:
            raise Died(f"there is no program {self.words[0]}") from None
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise Died(f"{self.words[0]} cannot be run: {why}") from None


class Session:
    """A process that has said hello, and the exchange with it."""

    def __init__(self, command: Command, limit: float | None, stall: float | None) -> None:
        """Raises `Lost`."""
        self.limit = None if limit is None else max(START, limit)
        self.stall = stall
        self.process = command.start()
        self.link = Link(self.process)
        self.about: Message = {}

    def ask(
        self,
        op: str,
        fields: Message,
        block: bytes | None,
        seconds: float | None,
        limit: float | None,
        stall: float | None = None,
    ) -> tuple[Message, bytearray]:
        with self._last_words_told():
            return self.link.exchange(op, fields, block, seconds, limit, stall)

    def greet(self, dtype: str) -> None:
        """Say hello, and put the engine in a precision where one is named."""
        self.about, _ = self.ask("hello", {"kvconform": VERSION}, None, self.limit, self.limit, self.stall)
        _must_be_ok("hello", self.about)
        if (spoken := self.about["kvconform"]) != VERSION:
            raise Broken(f"it speaks version {spoken} of the protocol, and here {VERSION} is spoken")
        if dtype:
            reply, _ = self.ask("to", {"dtype": dtype}, None, self.limit, self.limit, self.stall)
            _must_be_ok(f"to {dtype}", reply)

    def forget_output(self) -> None:
        self.process.forget_output()

    def settle(self) -> None:
        with self._last_words_told():
            self.link.settle()

    def end(self) -> None:
        self.process.end()

    @contextmanager
    def _last_words_told(self) -> Generator[None]:
        try:
            yield
        except Lost as lost:
            raise type(lost)(f"{lost}{said(self.process.last_words())}") from None


class Engine(Keeper[Session]):
    """Keeps a process of an engine, which computes in `dtype` (empty: as it does by itself)."""

    def __init__(
        self, command: Command, dtype: str = "", limit: float | None = TIME_LIMIT, stall: float | None = STALL_LIMIT
    ) -> None:
        """Raises `Lost` where it does not start."""
        super().__init__(limit, stall)
        self.command = command
        self.dtype = dtype
        self.about: Message = {}
        """What it says of itself in its reply to hello."""
        self.about = self.living().about

    def start(self) -> Session:
        session = Session(self.command, self.limit, self.stall)
        try:
            session.greet(self.dtype)
            if self.about and (changed := [key for key in DECISIVE if session.about.get(key) != self.about.get(key)]):
                raise Broken(f"started again it says another {changed[0]} than before")
        except BaseException:
            session.end()
            raise
        return session

    def ask(self, op: str, block: bytes | None = None, **fields: Any) -> tuple[Message, bytearray]:
        """Carry out an op. Raises `Refused`, `Elsewhere` (it raised), `Unsupported` or `Lost`."""
        session = self.living()
        reply, answer = self.timed(lambda: session.ask(op, fields, block, self.seconds, self.limit, self.stall))
        text = reply.get("text", "")
        match reply.get("error"):
            case None:
                return reply, answer
            case "unsupported":
                raise Unsupported(f"{op}: {text}" if text else f"it does not support {op}")
            case kind:
                how = "refusal" if kind == "refused" else "other"
                raise as_exception(Raised("Engine" + kind.capitalize(), text, how))

    def close(self) -> None:
        """Take leave of the engine and end it."""
        for session in self._children:
            with suppress(Lost):
                session.ask("close", {}, None, PARTING, PARTING)
        self.end()


def _must_be_ok(op: str, reply: Message) -> None:
    if "error" in reply:
        text = f": {reply['text']}" if reply.get("text") else ""
        raise Died(f"it answers {op} by {reply['error']}{text}")

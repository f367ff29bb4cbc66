"""Fuzzing of the line protocol: an engine behind a stream of bytes in memory, some of whose replies are mangled.

What is mangled never comes out as what was said, sound replies always do, and nothing hangs or crashes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kvconform.harness.apart.link import Link
from kvconform.harness.apart.remote import RemoteEngine
from kvconform.harness.apart.session import Command
from kvconform.harness.errors import Lost
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Program
from kvconform.harness.sources import Own
from kvconform.harness.trial import Subject, Verdict, attempt

sys.path.insert(0, str(Path(__file__).parent / "engines"))
import talk
import tiny

sys.path.pop(0)

FAST = settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Mangled:
    """Bytes in place of a reply. With `ends` the stream is at its end behind them; else nothing more ever comes."""

    change: Callable[[bytes], bytes]
    ends: bool


def places(data: bytes, at: float) -> int:
    return min(int(at * (len(data) + 1)), len(data))


def with_key(data: bytes, key: str, value: object) -> bytes:
    line, _, block = data.partition(b"\n")
    return json.dumps(json.loads(line) | {key: value}).encode() + b"\n" + block


def without_key(data: bytes, key: str) -> bytes:
    line, _, block = data.partition(b"\n")
    return json.dumps({name: value for name, value in json.loads(line).items() if name != key}).encode() + b"\n" + block


def flipped(data: bytes, at: float, bit: int) -> bytes:
    place = min(places(data, at), len(data) - 1)
    return data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


AT = st.floats(0, 1, exclude_max=True)
KEYS = st.sampled_from(["id", "ok", "error", "text", "dtype", "shape", "bytes", "length", "kvconform", "vocab_size", "dtypes"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
CHANGES: st.SearchStrategy[Callable[[bytes], bytes]] = st.one_of(
    st.builds(lambda at: lambda data: data[: places(data, at)], AT),
    st.builds(
        lambda at, more: lambda data: data[: places(data, at)] + more + data[places(data, at) :], AT, st.binary(min_size=1)
    ),
    st.builds(lambda at, n: lambda data: data[: places(data, at)] + data[places(data, at) + n :], AT, st.integers(1, 9)),
    st.builds(lambda at, bit: lambda data: flipped(data, at, bit), AT, st.integers(0, 7)),
    st.builds(lambda key, value: lambda data: with_key(data, key, value), KEYS, JSON),
    st.builds(lambda key: lambda data: without_key(data, key), KEYS),
    st.builds(lambda new: lambda data: new, st.binary()),
    st.builds(lambda new: lambda data: json.dumps(new).encode() + b"\n", JSON),
    st.builds(lambda n: lambda data: data * n, st.integers(2, 3)),
    st.just(lambda data: data.replace(b"\n", b"\r", 1)),
    st.just(lambda data: data.replace(b'"ok": true', b'"error": "refused"')),
    st.just(lambda data: b" " + data),
)
MANGLED = st.builds(Mangled, CHANGES, st.booleans())


@dataclass
class Memory:
    """An engine's process, without a process: it answers as it is asked, but for replies that are to be mangled, by number."""

    plan: dict[int, Mangled]
    engine: tiny.Tiny = field(default_factory=lambda: tiny.Tiny(tiny.options([])))
    out: bytearray = field(default_factory=bytearray)
    over: bool = False
    said: int = -1
    """Replies since the last plan was made; hello does not count."""
    sound: bool = True
    """Have all replies since then been what they should be?"""
    near: bool = True
    """And if logits that are nearly right count as right?"""

    def send(self, data: bytes, deadline: float | None) -> None:
        if self.over:
            return
        stream = BytesIO(data)
        _, reply = talk.replied(self.engine.answer, stream.readline(), stream.read)
        mangled = self.plan.pop(self.said, None)
        self.said += 1
        if mangled is None:
            self.out += reply
            return
        changed = mangled.change(reply)
        self.sound &= alike(reply, changed, 0.0)
        self.near &= alike(reply, changed, 1e-3)
        self.out += changed
        self.over = mangled.ends

    def receive(self, deadline: float | None) -> bytes:
        if not self.out and not self.over:
            raise TimeoutError
        return self.waiting()

    def waiting(self) -> bytes:
        some = bytes(self.out[:37])
        del self.out[:37]
        return some

    def ending(self) -> str:
        return "its process ended"

    def forget_output(self) -> None:
        pass

    def last_words(self) -> str:
        return ""

    def end(self) -> None:
        self.over = True


def content(reply: bytes, keys: Collection[str]) -> Any:
    """What a reply says, by another reading than the harness's; None where it says nothing."""
    line, end, block = reply.partition(b"\n")
    try:
        found = json.loads(line.decode(), parse_constant=no_json)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not end or not isinstance(found.get("text", ""), str):
        return None
    return repr([(key, plain(found[key])) for key in keys if key in found]), block


def no_json(constant: str) -> float:
    """Infinity and NaN are no JSON, wherever they stand."""
    raise ValueError(constant)


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def alike(reply: bytes, other: bytes, close: float) -> bool:
    """Does another reply say the same, or logits as close as that?"""
    keys = sorted({"id", "ok", "error", "bytes", *json.loads(reply.partition(b"\n")[0])} - {"text"})
    one, two = content(reply, keys), content(other, keys)
    if one is None or two is None or one[0] != two[0] or len(one[1]) != len(two[1]):
        return False
    if one[1] == two[1]:
        return True
    first, second = (torch.frombuffer(bytearray(block), dtype=torch.float32) for block in (one[1], two[1]))
    return bool((first - second).abs().max() < close)


REQUESTS: list[tuple[str, dict[str, Any], bytes | None]] = [
    ("new", {"cache": 0, "rows": 1}, None),
    ("append", {"cache": 0, "tokens": [[3, 1]]}, None),
    ("append", {"cache": 0, "tokens": [[99]]}, None),
    ("length", {"cache": 0}, None),
    ("dump", {"cache": 0}, None),
    ("load", {"cache": 1}, b"[[]]"),
    ("full", {"tokens": [[1], [2]]}, None),
    ("teleport", {"cache": 0}, None),
    ("drop", {"cache": 0}, None),
]


KEPT = {op: ("error", *{"append": ["shape"], "full": ["shape"], "length": ["length"]}.get(op, [])) for op, _, _ in REQUESTS}


def exchanged(plan: dict[int, Mangled]) -> tuple[list[Any], Memory]:
    """What came of the requests, until the link was lost."""
    memory = Memory(plan, said=0)
    link, results = Link(memory), list[Any]()
    with suppress(Lost):
        for op, fields, block in REQUESTS:
            reply, data = link.exchange(op, fields, block, 1.0, 1.0)
            link.settle()
            results.append(({key: value for key, value in reply.items() if key in KEPT[op]}, data))
    return results, memory


SOUND = exchanged({})[0]


@settings(FAST, max_examples=1500)
@example(0, Mangled(lambda data: with_key(data, "dtype", float("inf")), False))
@given(st.integers(0, len(REQUESTS) - 1), MANGLED)
def test_a_mangled_reply_is_never_taken_for_what_was_said(place: int, mangled: Mangled) -> None:
    results, memory = exchanged({place: mangled})
    assert results[:place] == SOUND[:place]
    if memory.sound and not mangled.ends:
        assert len(results) == len(SOUND)
        assert results[place + 1 :] == SOUND[place + 1 :]
    if not memory.near:
        assert results[place : place + 1] != SOUND[place : place + 1]


@settings(FAST, max_examples=300)
@example(Mangled(lambda data: with_key(data, "id", "\x1e0"), False))
@given(MANGLED)
def test_a_mangled_hello_ends_in_one_line_or_an_engine(mangled: Mangled) -> None:
    told = ""
    try:
        engine = RemoteEngine(Starts({-1: mangled}), limit=1.0)
    except Lost as lost:
        told = str(lost)
    else:
        assert engine.vocab_size >= 1
        assert engine.dtype.is_floating_point
    assert len(told.splitlines()) <= 1


class Starts(Command):
    """Starts engines in memory; the first has the plan for its replies."""

    def __init__(self, plan: dict[int, Mangled] | None = None) -> None:
        super().__init__(("memory",))
        object.__setattr__(self, "started", [])
        object.__setattr__(self, "plan", plan or {})

    def start(self) -> Memory:
        self.started.append(Memory(self.plan))  # type: ignore[attr-defined]
        return self.started[-1]  # type: ignore[attr-defined]


PROGRAMS = [
    Program.parse(text)
    for text in (
        "append a 5 9 3; append a 7",
        "append a 1 2; fork a b; append a 3; append b 4",
        "append a 5 9 3; crop a 1; append a 7",
        "append a 3; append a! 99; append a 4",
        "append a 1 | 2; select a 1 0 1; append a 3 | 4 | 5",
        "append a 6 6; restore a; append a 2; reset a; append a 8",
    )
]


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(Own(RemoteEngine(Starts())), torch.float32)


@settings(FAST, max_examples=250)
@given(
    asked=st.lists(
        st.tuples(st.sampled_from(PROGRAMS), st.none() | st.tuples(st.integers(0, 8), MANGLED)), min_size=1, max_size=6
    )
)
def test_sound_programs_pass_and_mangled_ones_never_do(
    asked: list[tuple[Program, tuple[int, Mangled] | None]], oracle: Oracle
) -> None:
    command = Starts()
    engine = RemoteEngine(command, limit=1.0)
    subject = Subject(engine, oracle, engine.engine)
    for program, spoilt in asked:
        memory = command.started[-1]  # type: ignore[attr-defined]
        if memory.over or not engine.engine.lives:
            command.plan.clear()  # type: ignore[attr-defined]
            engine.engine.living()
            memory = command.started[-1]  # type: ignore[attr-defined]
        memory.said, memory.sound, memory.near = 0, True, True
        memory.plan = {} if spoilt is None else {spoilt[0]: spoilt[1]}
        trial = attempt(logits_match, program, subject)
        assert len(trial.detail.splitlines()) <= 1
        if not memory.near:
            assert trial.verdict in (Verdict.ERRORED, Verdict.FAILED, Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED), trial
        if memory.sound and not memory.over:
            assert trial.verdict is Verdict.PASSED, trial.detail

"""Messages of the line protocol: one JSON object a line, held against the schema in both directions. See docs/protocol.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

Message = dict[str, Any]

VERSION = 1
"""The version of the protocol that is spoken here."""
LONGEST = 2**20
"""Bytes of a line, its end included."""
LARGEST = 2**30
"""Bytes of a block that are taken in."""
SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes of a number in a block of logits."""
REPLIES = {"hello": "hello", "append": "logits", "full": "logits", "dump": "dumped", "length": "length"}
"""Definitions in the schema by op; other ops have the reply `done`."""
SHOWN = 80
"""Characters of a wrong message that are shown."""


class Wrong(ValueError):
    """What a message is not, as the end of a sentence that begins with "its reply to …"."""


def written(message: Mapping[str, Any]) -> bytes:
    """A request as a line. It keeps to the simple form that the page promises: ASCII, no white space. Raises `Wrong`."""
    _check("request", message)
    line = json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
    if len(line) > LONGEST:
        raise Wrong(f"is longer than {LONGEST:,} bytes")
    return line


def read(line: bytes, op: str, number: int) -> Message:
    """The reply to request `number` with this op. Raises `Wrong`."""
    message = _parsed(line)
    if ("ok" in message) == ("error" in message):
        raise Wrong("has both ok and error" if "ok" in message else 'has neither "ok":true nor an error')
    _check(REPLIES.get(op, "done"), message)
    if message["id"] != number:
        raise Wrong(f"has id {message['id']} where {number} was asked")
    _check_block(message, logits="ok" in message and REPLIES.get(op) == "logits")
    return message


def _parsed(line: bytes) -> Message:
    try:
        found = json.loads(line.decode(), parse_float=_number, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Wrong(f"is no JSON: {_shown(line)} (standard output is for replies only)") from None
    if not isinstance(found, dict):
        raise Wrong(f"is no JSON object: {_shown(line)}")
    # A lone half of a surrogate pair is JSON, and is no text that could be printed.
    return {key: _text(value) for key, value in found.items()}


def _text(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _number(text: str) -> int | float:
    """32.0 and 3.2e1 are whole numbers."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _no_number(text: str) -> float:
    raise ValueError(text)


def _shown(line: bytes) -> str:
    text = line.decode(errors="backslashreplace").strip()
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def _check_block(message: Message, logits: bool) -> None:
    size: int = message.get("bytes", 0)
    if logits:
        shape: Sequence[int] = message["shape"]
        if size != (due := prod(shape) * SIZES[message["dtype"]]):
            raise Wrong(f"says {size} bytes where {message['dtype']} of shape {list(shape)} takes {due}")
    if size > LARGEST:
        raise Wrong(f"has a block of {size:,} bytes, more than the {LARGEST:,} that are taken in")


@cache
def _schema() -> Message:
    return json.loads(Path(__file__).with_name("protocol.schema.json").read_text(encoding="utf-8"))


@cache
def _compiled(definition: str) -> Callable[[object], object]:
    import fastjsonschema

    return fastjsonschema.compile({"$ref": f"#/$defs/{definition}", "$defs": _schema()["$defs"]})


def _check(definition: str, message: Mapping[str, Any]) -> None:
    import fastjsonschema

    try:
        _compiled(definition)(message)
    except fastjsonschema.JsonSchemaValueException as error:
        value = repr(error.value)  # one line, whatever it holds
        found = f", and is {value if len(value) <= SHOWN else value[:SHOWN] + '…'}" if error.path[1:] else ""
        raise Wrong(f"breaks the schema: {error.message.removeprefix('data.').removeprefix('data ')}{found}") from None

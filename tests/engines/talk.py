"""What the small engines of the tests share: requests in, replies out, by docs/protocol.md. Needs nothing but Python."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable
from typing import Any


class Refused(Exception):
    pass


class Unsupported(Exception):
    pass


Answer = tuple[dict[str, Any], bytes]


def logits(rows: list[list[list[float]]], dtype: str) -> Answer:
    """The reply of append and full for logits `[rows, n, vocab]`."""
    block = array({"float32": "f", "float64": "d"}[dtype])
    for row in rows:
        for position in row:
            block.extend(position)
    data = block.tobytes()
    return {"dtype": dtype, "shape": [len(rows), len(rows[0]), len(rows[0][0])], "bytes": len(data)}, data


def reply(number: int, fields: dict[str, Any], block: bytes = b"") -> bytes:
    state = {} if "error" in fields else {"ok": True}
    return json.dumps({"id": number, **state, **fields}).encode() + b"\n" + block


Answering = Callable[[str, dict[str, Any], bytes], Answer]


def replied(answer: Answering, line: bytes, read: Callable[[int], bytes]) -> tuple[str, bytes]:
    """The op of a request, and the reply to it. `read` gives the block, of so many bytes."""
    request = json.loads(line)
    number, op = request.pop("id"), request.pop("op")
    block = read(request.pop("bytes", 0))
    try:
        fields, data = answer(op, request, block)
    except Refused as error:
        fields, data = {"error": "refused", "text": str(error)}, b""
    except Unsupported as error:
        fields, data = {"error": "unsupported", "text": str(error)}, b""
    except Exception as error:
        fields, data = {"error": "raised", "text": str(error)}, b""
    return op, reply(number, fields, data)


def serve(answer: Answering, send: Callable[[str, bytes], None] | None = None) -> None:
    """Answer until the end. `send` writes a reply, given the op that it answers."""
    for line in sys.stdin.buffer:
        op, data = replied(answer, line, sys.stdin.buffer.read)
        (send or write)(op, data)
        if op == "close":
            return


def write(op: str, data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()

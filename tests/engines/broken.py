"""A right engine until the third append, which it answers in the way that its first argument names."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import tiny
from talk import serve, write

WAY = sys.argv.pop(1)
APPENDS: list[int] = []


def changed(data: bytes, **fields: object) -> bytes:
    line, _, block = data.partition(b"\n")
    return json.dumps(json.loads(line) | fields).encode() + b"\n" + block


def send(op: str, data: bytes) -> None:
    """Write a reply, or something else."""
    if op == "append":
        APPENDS.append(1)
    if op != "append" or len(APPENDS) != 3:
        return write(op, data)
    print("layer 0 ok", "layer 1 ok", sep="\n", file=sys.stderr, flush=True)
    match WAY:
        case "exits":
            os._exit(3)
        case "segfaults":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hangs":
            time.sleep(600)
        case "closes":
            os.close(1)
            time.sleep(600)
        case "is_no_json":
            write(op, b"Loading model...\n")
        case "is_a_list":
            write(op, b"[1, 2]\n")
        case "is_no_text":
            write(op, b"\xff\xfe\x00\n")
        case "has_no_ok":
            write(op, b'{"id": 6, "shape": [1, 1, 12]}\n')
        case "breaks_the_schema":
            write(op, changed(data, shape=[1, 12]))
        case "has_a_negative_shape":
            write(op, changed(data, shape=[1, -1, 12]))
        case "has_another_id":
            write(op, changed(data, id=7))
        case "has_other_bytes":
            write(op, changed(data, bytes=47))
        case "is_too_large":
            write(op, changed(data, shape=[1, 1, 2**30], bytes=2**32))
        case "has_a_long_line":
            write(op, b"x" * 2**21)
        case "half_a_line":
            write(op, data[:20])
            os._exit(0)
        case "half_a_block":
            write(op, data[:-20])
            os._exit(0)
        case "stops_in_a_line":
            write(op, data[:20])
            time.sleep(600)
        case "stops_in_the_block":
            write(op, data[:-20])
            time.sleep(600)
        case "writes_more":
            write(op, data + b"done.\n")
        case "floods_and_exits":
            for _ in range(2000):
                os.write(2, b"warning: " + b"x" * 1000 + b"\n")
            os.write(2, b"the last line\n")
            os._exit(1)
        case "floods":
            for _ in range(2000):
                os.write(2, b"warning: " + b"x" * 1000 + b"\n")
            write(op, data)
        case "is_killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case way:
            raise SystemExit(f"no way {way}")
    return None


if __name__ == "__main__":
    serve(tiny.Tiny(tiny.options()).answer, send)

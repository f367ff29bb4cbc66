"""docs/protocol.md says what is true: its engine runs, its exchange happens, and its messages follow the schema."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "protocol.md").read_text()
SCHEMA = json.loads((ROOT / "harness" / "apart" / "protocol.schema.json").read_text())
REPLY_TO = {"hello": "hello", "append": "logits", "full": "logits", "dump": "dumped", "length": "length"}


def holds(definition: str, message: object) -> bool:
    schema = {"$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{definition}"}
    return Draft7Validator(schema).is_valid(message)


def engine_of_the_page(folder: Path) -> Path:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    path = folder / "engine.py"
    path.write_text(code)
    return path


def test_the_exchange_of_the_page_is_what_its_engine_says(tmp_path: Path) -> None:
    lines = [line.strip()[2:] for line in PAGE.splitlines() if re.match(r"    [<>] ", line)]
    wanted = [line for line in lines if "<" not in line]
    with subprocess.Popen(
        [sys.executable, engine_of_the_page(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        for asked, answered in zip(wanted[::2], wanted[1::2], strict=True):
            request, reply = json.loads(asked), json.loads(answered)
            assert holds("request", request)
            process.stdin.write(asked.encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == reply
            assert holds(REPLY_TO.get(request["op"], "done"), reply)
            assert len(process.stdout.read(reply.get("bytes", 0))) == reply.get("bytes", 0)
    assert process.returncode == 0


def test_the_page_names_every_key_of_the_schema() -> None:
    named = set(re.findall(r"[`\"]([a-z_]+)[`\"]", PAGE))
    keys = {key for part in SCHEMA["$defs"].values() for key in [*part.get("properties", ()), *_then(part)]}
    assert keys <= named, keys - named


def _then(part: dict[str, object]) -> list[str]:
    then = part.get("then")
    return list(then["properties"]) if isinstance(then, dict) and "properties" in then else []


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("request", {"id": 1, "op": "append", "cache": 0}),
        ("request", {"id": 1, "op": "new", "cache": 0, "rows": 0}),
        ("request", {"id": 1, "op": "select", "cache": 0, "rows": 2}),
        ("request", {"op": "close"}),
        ("done", {"id": 1}),
        ("done", {"id": 1, "ok": False}),
        ("done", {"id": 1, "ok": True, "error": "refused"}),
        ("done", {"id": 1, "ok": True, "bytes": 3}),
        ("done", {"id": 1, "error": "broken"}),
        ("logits", {"id": 1, "ok": True}),
        ("logits", {"id": 1, "ok": True, "dtype": "int8", "shape": [1, 1, 4], "bytes": 4}),
        ("logits", {"id": 1, "ok": True, "dtype": "float32", "shape": [1, 4], "bytes": 16}),
        ("logits", {"id": 1, "error": "raised", "bytes": 4}),
        ("dumped", {"id": 1, "ok": True}),
        ("length", {"id": 1, "ok": True}),
        ("length", {"id": 1, "ok": True, "length": -1}),
        ("hello", {"id": 0, "ok": True, "kvconform": 1, "name": "x"}),
        ("hello", {"id": 0, "ok": True, "kvconform": 1, "name": "x", "vocab_size": 4, "capabilities": ["teleport"]}),
        ("hello", {"id": 0, "ok": True, "kvconform": 1, "name": "x", "vocab_size": 4, "crop_floor": {"beyond": 3}}),
    ],
)
def test_what_the_protocol_does_not_allow(definition: str, message: object) -> None:
    assert not holds(definition, message)


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("request", {"id": 1, "op": "append", "cache": 0, "tokens": [[]]}),
        ("request", {"id": 1, "op": "fork", "cache": 0, "target": 1, "later": "key"}),
        ("done", {"id": 1, "ok": True, "seconds": 0.5}),
        ("done", {"id": 1, "error": "refused"}),
        ("logits", {"id": 1, "error": "refused", "text": "too long"}),
        ("logits", {"id": 1, "ok": True, "dtype": "bfloat16", "shape": [1, 1, 4], "bytes": 8}),
        ("length", {"id": 1, "ok": True, "length": [3, 4]}),
        ("hello", {"id": 0, "ok": True, "kvconform": 1, "name": "x", "vocab_size": 4, "max_length": None}),
        ("hello", {"id": 0, "error": "unsupported", "text": "version"}),
    ],
)
def test_what_it_allows(definition: str, message: object) -> None:
    assert holds(definition, message)

"""Where a failure begins: the layer and the tensor that a fault is made in, on built-in models and those of transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.conformance import subjects
from kvconform.harness.errors import KvconformError
from kvconform.harness.locate import locate, told
from kvconform.harness.program import Program
from kvconform.harness.trial import Subject

DECODE, CHUNKS, PREFILL = "append a 1 2 3; append a 4", "append a 1 2 3; append a 4 5", "append a 1 2 3"
SELECTED = "append a 1 2 | 3 4; select a 1 0; append a 5 | 6"
CROPPED = "append a 1 2 3; crop a 1; append a 4"
LONG = "append a 1 2 3 4 5 6 7 8 9 10 11; append a 12; append a 13"
FAULTS = [
    ("builtin:gpt/kv_mismatch", DECODE, 0, "key"),
    ("builtin:llama/layers_swapped", DECODE, 0, "key"),
    ("builtin:gpt/no_mask", PREFILL, 0, "mask"),
    ("builtin:gpt/pos_zero", DECODE, 0, "hidden state"),
    ("builtin:llama/pos_zero", DECODE, 0, "query"),
    ("builtin:gpt/no_cat", DECODE, 0, "key"),
    ("builtin:gpt/values_in_bfloat16", DECODE, 0, "value"),
    ("builtin:gpt/select_keys_only", SELECTED, 0, "value"),
    ("builtin:gpt/select_one_layer", SELECTED, 0, "key"),
    ("builtin:gpt/crop_one_layer", CROPPED, 1, "key"),
    ("builtin:gpt/tail_attended", DECODE, 0, "mask"),
    ("builtin:window/window_short", LONG, 0, "mask"),
    ("builtin:hybrid/state_not_carried", CHUNKS, 1, "hidden state"),
    ("arch:llama?fault=pos_zero", DECODE, 0, "query"),
    ("arch:llama?fault=kv_mismatch", DECODE, 0, "key"),
    ("arch:llama?attn=eager&fault=no_mask", PREFILL, 0, "mask"),
    ("arch:lfm2?fault=state_not_carried", CHUNKS, 0, "hidden state"),
]
RIGHT = ["builtin:gpt/concat", "builtin:gpt/static", "builtin:llama/paged", "builtin:window/ring", "builtin:hybrid/concat"]
TRANSFORMERS = ["arch:llama", "arch:llama?cache=static", "arch:llama?attn=eager"]


def of(target: str) -> Subject:
    return next(subjects(registry.resolve(target), ["float32"]))


@pytest.mark.parametrize(("target", "text", "layer", "tensor"), FAULTS, ids=[row[0] for row in FAULTS])
def test_a_fault_is_found_where_it_is_made(target: str, text: str, layer: int, tensor: str) -> None:
    program = Program.parse(text)
    found = locate(of(target), program, len(program) - 1)
    assert (found.layer, found.tensor) == (layer, tensor)


@pytest.mark.parametrize("target", RIGHT + TRANSFORMERS)
@pytest.mark.parametrize("text", [CHUNKS, LONG], ids=["chunks", "long"])
def test_nothing_is_found_where_nothing_is_wrong(target: str, text: str) -> None:
    program = Program.parse(text)
    with pytest.raises(KvconformError, match="every attention agrees"):
        locate(of(target), program, len(program) - 1)


def test_a_ring_that_is_read_by_slot_is_put_in_order() -> None:
    from kvconform.harness.attention_calls import Attention
    from kvconform.harness.locate import _in_order

    keys = torch.randn(1, 2, 4, 8)
    turned = Attention(keys, keys.roll(1, dims=2), keys.roll(1, dims=2), torch.eye(4, dtype=torch.bool)[None], keys)
    back = _in_order(turned, keys, keys, 1024)
    assert back.key.equal(keys)
    assert back.value.equal(keys)
    assert back.visible.equal(turned.visible.roll(-1, dims=2))


def test_what_cannot_be_said_is_not_said() -> None:
    gpt = of("builtin:gpt/mask_square")
    assert told(gpt, Program.parse(CHUNKS), 1) == "not found: no attention by torch was completed in this process"
    ragged = told(of("builtin:gpt/pad_attended"), Program.parse("append a 1 2 3 | 4"), 0)
    assert ragged == "not found: rows of unequal length are not compared"
    assert told(gpt, Program.parse("append a 1; reset a"), 1) == "not found: the failing op is no append"


def test_the_commands_show_it(tmp_path: Path) -> None:
    kvconform = [str(Path(sys.executable).parent / "kvconform")]
    replay = [*kvconform, "replay", "builtin:llama/layers_swapped", DECODE, "--locate"]
    done = subprocess.run(replay, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("located: attention layer 0, key: differs at position 0 by ")
    asked = ["--clause", "decode.incremental", "--dtype", "float32", "--max-examples", "0", "--locate", "--out", "report"]
    words = [*kvconform, "check", "builtin:gpt/kv_mismatch", *asked]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, encoding="utf-8")
    assert done.returncode == 1
    assert "  located:   attention layer 0, key: differs" in done.stdout
    records = [json.loads(line) for line in (tmp_path / "report" / "result.jsonl").read_text("utf-8").splitlines()]
    (case,) = (record for record in records if record["type"] == "case")
    assert case["findings"][0]["located"].startswith("attention layer 0, key: ")

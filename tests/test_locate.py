"""Where a failure begins: the layer and the tensor that a fault is made in, on built-in models and those of transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import kvconform
import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.conformance import subjects
from kvconform.harness.errors import KvconformError
from kvconform.harness.locate import locate, told
from kvconform.harness.program import Program
from kvconform.harness.results import Case
from kvconform.harness.run import Run, header
from kvconform.harness.target import Resolved
from kvconform.harness.trial import Subject
from kvconform.interface.conformance import ask
from kvconform.reports.html import render_html
from kvconform.reports.markdown import render_markdown
from torch import Tensor, nn

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
    ("arch:llama?fault=pos_zero", DECODE, "model.rotary_emb (LlamaRotaryEmbedding)", "position input"),
    ("arch:llama?fault=kv_mismatch", DECODE, 0, "key"),
    ("arch:llama?attn=eager&fault=no_mask", PREFILL, 0, "mask"),
    ("arch:gpt2?fault=pos_zero", DECODE, "transformer.wpe (Embedding)", "position input"),
    ("arch:lfm2?fault=state_not_carried", CHUNKS, "model.layers.0.conv (Lfm2ShortConv)", "state"),
]
RIGHT = ["builtin:gpt/concat", "builtin:gpt/static", "builtin:llama/paged", "builtin:window/ring", "builtin:hybrid/concat"]
TRANSFORMERS = ["arch:llama", "arch:llama?cache=static", "arch:llama?attn=eager"]


def of(target: str) -> Subject:
    return next(subjects(registry.resolve(target), ["float32"]))


@pytest.mark.parametrize(("target", "text", "place", "tensor"), FAULTS, ids=[row[0] for row in FAULTS])
def test_a_fault_is_found_where_it_is_made(target: str, text: str, place: int | str, tensor: str) -> None:
    program = Program.parse(text)
    found = locate(of(target), program, len(program) - 1)
    assert (found.place, found.tensor) == (place if isinstance(place, str) else f"attention layer {place}", tensor)


@pytest.mark.parametrize("target", RIGHT + TRANSFORMERS)
@pytest.mark.parametrize("text", [CHUNKS, LONG], ids=["chunks", "long"])
def test_nothing_is_found_where_nothing_is_wrong(target: str, text: str) -> None:
    program = Program.parse(text)
    with pytest.raises(KvconformError, match="every attention and module agrees"):
        locate(of(target), program, len(program) - 1)


class Decay(nn.Module):
    """A state that fades: `[rows, d]` goes in and out beside `[rows, n, d]`."""

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        found: list[Tensor] = []
        for token in x.unbind(dim=1):
            state = state / 2 + token
            found.append(state)
        return torch.stack(found, dim=1), state


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.decay, self.head = nn.Embedding(11, 6), Decay(), nn.Linear(6, 11)

    def forward(self, tokens: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x, state = self.decay(self.embedding(tokens), state)
        return self.head(x), state


class Forgetful(kvconform.Implementation):
    """A user's own: every call starts from an empty state."""

    vocab_size = 11

    def __init__(self) -> None:
        self.inner = Recurrent()

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def new_cache(self, rows: int = 1) -> list[Tensor]:
        return [torch.zeros(rows, 6)]

    @torch.inference_mode()
    def append(self, cache: list[Tensor], tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits, _ = self.inner(tokens, cache[0])
        return logits


def test_the_module_that_lost_its_state_is_named() -> None:
    mine = next(subjects(Resolved(Forgetful(), None)))
    line = told(mine, Program.parse(DECODE), 1)
    assert line.startswith("decay (Decay), state: differs at position 3 by ")
    assert line.endswith("look at what is kept of the state between calls: carried, copied, reordered, reset")


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
    assert told(gpt, Program.parse(CHUNKS), 1) == (
        "not found: no attention by torch, and no module that the reference has too, was completed in this process"
    )
    ragged = told(of("builtin:gpt/pad_attended"), Program.parse("append a 1 2 3 | 4"), 0)
    assert ragged == "not found: rows of unequal length are not compared"
    assert told(gpt, Program.parse("append a 1; reset a"), 1) == "not found: the failing op is no append"


def test_pytest_and_reports_show_it() -> None:
    target = "builtin:gpt/kv_mismatch"
    told: list[Case] = []
    with pytest.raises(pytest.fail.Exception, match="located:   attention layer 0, key: differs"):
        ask(
            target,
            registry.resolve(target),
            "decode.incremental",
            "quick",
            ("float32",),
            told.extend,
            locate=True,
            examples=0,
        )
    about = header("check", [target], "quick", 0)
    run = Run(about, tuple(told))
    assert "Located: `attention layer 0, key: differs" in render_markdown(run, {})
    assert "<h3>Where it begins</h3><p>attention layer 0, key: differs" in render_html(run, {})


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

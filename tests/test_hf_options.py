"""Targets of the transformers adapter: what their options may be, and what a mistake is answered with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kvconform.harness import registry
from kvconform.harness.errors import TargetError
from kvconform.harness.target import Target
from kvconform.implementations.hf.options import Options, parsed
from kvconform.reference.export import export


def options(text: str) -> Options:
    return parsed(Target.parse(text, ("hf", "arch")))


def test_options_are_read():
    assert options("hf:x") == Options()
    found = options("arch:llama?cache=static&capacity=40&attn=eager&positions=explicit&seed=3&compile=yes")
    assert found == Options("static", "eager", positions="explicit", capacity=40, seed=3, compile=True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("hf:x?cach=static", "option of hf:…, in 'hf:x?cach=static', called 'cach'; did you mean cache"),
        ("hf:x?seed=1", "called 'seed'"),
        ("arch:llama?gguf=a", "called 'gguf'"),
        ("hf:x?dtype=int8", "dtype is one of float64, float32, bfloat16, float16"),
        ("hf:x?positions=none", "positions is one of implicit, explicit"),
        ("hf:x?compile=1", "compile is yes or no"),
        ("hf:x?capacity=0", "capacity is a number from 1 on"),
        ("hf:x?capacity=٣", "capacity is a number from 1 on"),
        ("hf:x?attn=", "attn is a word"),
    ],
)
def test_what_is_no_option_is_told(text: str, told: str):
    with pytest.raises(TargetError) as error:
        options(text)
    assert told in str(error.value)


def refused(text: str) -> str:
    with pytest.raises(TargetError) as error:
        registry.resolve(text)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_folder_that_cannot_be_loaded_is_told_in_one_line(tmp_path: Path):
    assert "there is no folder './nowhere'" in refused("hf:./nowhere")
    assert "has no config.json" in refused(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert "has no weights; save it with safetensors" in refused(f"hf:{tmp_path}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert "only pytorch_model.bin, which can run code when it is loaded" in refused(f"hf:{tmp_path}")
    (tmp_path / "model.safetensors").write_bytes(b"not safetensors")
    assert "transformers cannot load" in refused(f"hf:{tmp_path}")
    assert "no file 'a.gguf'" in refused(f"hf:{tmp_path}?gguf=a.gguf")


def test_a_cache_that_cannot_be_had_is_told(tmp_path: Path):
    folder = export(tmp_path)
    assert "did you mean static" in refused(f"hf:{folder}?cache=statics")
    assert "needs device=cuda" in refused(f"hf:{folder}?cache=offloaded")
    assert "is not for a plain decoder: it pairs" in refused(f"hf:{folder}?cache=encoderdecoder")
    assert "optimum-quanto" in refused(f"hf:{folder}?cache=quanto")
    assert "cannot load" in refused(f"hf:{folder}?attn=nonsense")


def test_a_device_that_is_not_here_is_told() -> None:
    assert "device=no_such cannot be had here: " in refused("arch:llama?device=no_such")


def test_every_cache_class_of_the_library_can_be_named_or_says_why_not():
    from kvconform.implementations.hf.caches import FOR_OTHERS, backends, kinds, names
    from transformers import cache_utils

    exported = {
        kind.__name__
        for kind in vars(cache_utils).values()
        if isinstance(kind, type) and issubclass(kind, cache_utils.Cache) and kind is not cache_utils.Cache
    }
    assert {kind.__name__ for kind in kinds().values()} == exported
    assert {"DynamicCache", "StaticCache", "QuantizedCache"} <= exported
    assert {word for word, kind in kinds().items() if kind.__name__ not in FOR_OTHERS} - {"quantized"} <= set(names())
    assert {"quanto", "hqq", "fp8"} <= set(backends())


def test_a_wrong_target_is_one_line_on_the_command_line():
    command = [sys.executable, "-m", "kvconform.interface.cli", "check", "hf:./nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("kvconform: there is no folder './nowhere'; hf:… takes a folder with config.json and safetensors\n")

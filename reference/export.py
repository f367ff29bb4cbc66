"""The shipped weights as a folder that other engines load: `config.json` beside `model.safetensors`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from .shipped import WEIGHTS, config_json, read_config


def export(folder: Path, model: str = "llama", window: int | None = None) -> Path:
    """Write `gpt` or `llama` into `folder`, which is made where it is missing, and give it back.

    With `window`, the llama's weights go out as a mistral, which is the same model with a sliding window of so many
    positions. `rope_theta` stands at the top of the configuration and in `rope_parameters`: engines differ in where they
    look, and fall back to 10,000 without a word.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = read_config(WEIGHTS / model)
    written = config_json(config)
    if window is not None:
        written = config_json(replace(config, sliding_window=window))  # type: ignore[call-arg]
        written |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    (folder / "config.json").write_text(json.dumps(written, indent=2), encoding="utf-8")
    shutil.copyfile(WEIGHTS / model / "model.safetensors", folder / "model.safetensors")
    return folder

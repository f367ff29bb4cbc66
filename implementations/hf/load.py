"""From a folder or a GGUF file to a model."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from ...harness.errors import TargetError, Unsupported, UnsupportedTarget
from ...harness.target import Target
from .model import Model
from .options import Options

LARGE = 2 * 2**30
"""Bytes of weights of which no second copy is made unless `copies=yes`."""


def loaded(target: Target, options: Options) -> Model:
    """The model of an `hf:` target. Raises `TargetError`."""
    folder = Path(target.address).expanduser()
    given: dict[str, Any] = {"use_safetensors": True, "trust_remote_code": options.trust_remote_code}
    if options.gguf:
        if not (folder / options.gguf).is_file():
            raise TargetError(f"no file {options.gguf!r} in {target.address!r}; gguf= names a file inside the folder")
        given = {"gguf_file": options.gguf, "trust_remote_code": options.trust_remote_code}
    elif folder.is_dir():
        _checked_folder(folder)
    elif target.address.startswith((".", "/", "~")) or target.address.count("/") > 1 or not target.address:
        raise TargetError(f"there is no folder {target.address!r}; hf:… takes a folder with config.json and safetensors")
    if options.attn:
        given["attn_implementation"] = options.attn
    given["dtype"] = getattr(torch, options.dtype) if options.dtype else "auto"
    with told(target), quiet():
        module = AutoModelForCausalLM.from_pretrained(str(folder if folder.is_dir() else target.address), **given)
    return ready(module, target, options)


def ready(module: Any, target: Target, options: Options) -> Model:
    """A module as the options want it. Raises `TargetError`."""
    with told(target), quiet():
        module = on(module.eval().requires_grad_(False), options.device)
        if hasattr(module, "set_experts_implementation"):
            _eager_experts(module)
        model = Model(module, str(target))
        if options.dtype:
            model = model.to(getattr(torch, options.dtype))
        model.copies = options.copies == "yes" or (options.copies != "no" and model.weight_bytes <= LARGE)
        if options.compile:
            model.call = torch.compile(module)
    return model


def on(module: Any, device: str) -> Any:
    """The module on a device. Raises `TargetError` where this machine has none of that name."""
    try:
        return module.to(device)
    except (RuntimeError, AssertionError) as error:  # what torch raises for a wrong name, a build without CUDA, no driver
        sentence = str(error).partition("\n")[0].partition(". ")[0].rstrip(".")
        raise TargetError(f"device={device} cannot be had here: {sentence}; leave it out to run on the CPU") from None


def _eager_experts(module: Any) -> None:
    """Experts one by one: their grouped kernels have no float64 on the CPU."""
    try:
        module.set_experts_implementation("eager")
    except Exception:
        return  # a model without experts that can be switched


def _checked_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise TargetError(f"{str(folder)!r} has no config.json; hf:… takes a folder that save_pretrained wrote")
    if not any(folder.glob("*.safetensors")):
        stored = next((file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern)), None)
        found = f"only {stored}, which can run code when it is loaded" if stored else "no weights"
        raise TargetError(f"{str(folder)!r} has {found}; save it with safetensors (save_pretrained does)")


@contextmanager
def told(target: Target) -> Generator[None]:
    """Whatever the library raises, in one line. Raises `TargetError`."""
    try:
        yield
    except TargetError:
        raise
    except Unsupported as reason:
        raise UnsupportedTarget(f"{str(target)!r} is not there: {reason}") from reason
    except Exception as error:
        line = " ".join(str(error).split())[:400] or type(error).__name__
        raise TargetError(f"transformers cannot load {str(target)!r}: {type(error).__name__}: {line}") from None


@contextmanager
def quiet() -> Generator[None]:
    """No progress bars and no warnings about the way in which a model is loaded."""
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()

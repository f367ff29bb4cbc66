"""The cache classes of the installed transformers, and what an object of theirs offers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import cache_utils

from ...harness.errors import TargetError, Unsupported, UnsupportedTarget
from ...harness.target import closest
from .model import CACHE_WORDS, Model
from .options import Options

Make = Callable[[Any], Any]
"""A config in, a fresh cache out."""

FOR_OTHERS = {
    "EncoderDecoderCache": "it pairs the caches of an encoder-decoder model, and a decoder has one",
    "MtpCache": "its queries run ahead of the model by as many tokens as a prediction depth; only such heads use it",
    "DFlashCache": "its queries are shifted by the tokens accepted of a block draft; only such drafters use it",
}
"""Classes that no plain decoding step may use, and why."""


FP8 = 6
"""Bits of a uniform grid that is as coarse as four exponent and three mantissa bits are on bell-shaped values."""


@dataclass(frozen=True)
class Kind:
    """A way to come by a cache. `make` is None where the model makes it itself when it is first called."""

    name: str
    make: Make | None
    bits: int | None = None
    capacity: int | None = None


def kinds() -> dict[str, type]:
    """Every cache class that the installed library exports, by the word that names it in a target."""
    found = {
        re.sub("cache$", "", name.lower()): kind
        for name, kind in vars(cache_utils).items()
        if inspect.isclass(kind) and issubclass(kind, cache_utils.Cache) and kind is not cache_utils.Cache
    }
    return {word: kind for word, kind in found.items() if kind.__name__.lower().startswith(word)}  # aliases left out


def backends() -> dict[str, type]:
    """Quantised layers by the word for their back end: quanto, hqq, fp8."""
    base = getattr(cache_utils, "QuantizedLayer", None)
    base = getattr(cache_utils, "BaseQuantizedLayer", base)
    return {
        name.removesuffix("QuantizedLayer").lower(): kind
        for name, kind in vars(cache_utils).items()
        if base and inspect.isclass(kind) and issubclass(kind, base) and not inspect.isabstract(kind)
    }


def names() -> tuple[str, ...]:
    """What `cache=` can be."""
    plain = [word for word, kind in kinds().items() if kind.__name__ not in FOR_OTHERS and word != "quantized"]
    return ("default", *plain, "dynamic-plain", "offloaded", "offloaded-static", *backends())


def kind_named(options: Options, config: Any) -> Kind:
    """The kind of cache that is asked for. Raises `TargetError` where there is none, or this model cannot have it."""
    name, classes = options.cache, kinds()
    if name == "default":
        return Kind(name, None)
    if name in classes and (reason := FOR_OTHERS.get(classes[name].__name__)):
        raise TargetError(f"cache={name} is not for a plain decoder: {reason}")
    if name not in names():
        raise closest(name, names(), "cache")
    kind = _kind(name, classes, options)
    assert kind.make is not None
    try:
        kind.make(config)
    except (ValueError, NotImplementedError, ImportError) as error:
        raise UnsupportedTarget(f"cache={name} is refused by transformers: {_line(error)}") from None
    except Exception:
        pass  # no refusal but a finding, at the first call that wants a cache
    return kind


def _kind(name: str, classes: dict[str, type], options: Options) -> Kind:
    if name == "dynamic-plain":
        return Kind(name, lambda config: classes["dynamic"]())
    if name.startswith("offloaded"):
        if options.device == "cpu":
            raise TargetError(f"cache={name} moves layers between a GPU and the CPU; it needs device=cuda")
        inner = "static" if name.endswith("static") else "dynamic"
        return _built(name, classes[inner], options, offloading=True)
    if name in backends():
        quantised: Any = classes["quantized"]
        bits = None if name == "fp8" else options.bits
        return Kind(name, lambda config: quantised(name, config, nbits=bits), bits=bits or FP8)
    return _built(name, classes[name], options)


def _built(name: str, kind: Any, options: Options, **more: Any) -> Kind:
    """A class that is built from a config, and from a capacity where it has one."""
    if "max_cache_len" in inspect.signature(kind.__init__).parameters:
        capacity = options.capacity
        return Kind(name, lambda config: kind(config=config, max_cache_len=capacity, **more), capacity=capacity)
    return Kind(name, lambda config: kind(config=config, **more))


def fresh(kind: Kind, model: Model, recording: bool) -> Any:
    """A cache of this kind that was never fed; None where the model makes it."""
    if kind.make is None:
        return None
    with model.running():
        made = kind.make(model.config)
        if recording and hasattr(made, "activate_past_recording"):
            made.activate_past_recording()
    return made


def carried(output: Any, given: Any) -> Any:
    """The cache that a call returned, whatever it is called there, else the one that it was given.

    Raises `Unsupported` where there is neither.
    """
    for word in CACHE_WORDS:
        if getattr(output, word, None) is not None:
            return getattr(output, word)
    if given is None:
        raise Unsupported(f"{type(output).__name__} carries no cache: it has {', '.join(output)}")
    return given


def layer_classes(kind: Kind, config: Any) -> list[str]:
    """Names of the classes of a fresh cache's layers; none where the model makes it, or where it cannot be made."""
    try:
        made = kind.make(config) if kind.make else None
    except Exception:
        return []
    return sorted({type(layer).__name__ for layer in layers_of(made)})


def layers_of(cache: Any) -> Sequence[Any]:
    """The layer objects of a cache, of a decoder's own part of it; none where it is of a model's own kind."""
    return list(getattr(getattr(cache, "self_attention_cache", cache), "layers", ()))


def full_capacity(cache: Any) -> int | None:
    """Positions after which a layer without a window is full; None where nothing ends."""
    found = [
        int(layer.max_cache_len)
        for layer in layers_of(cache)
        if getattr(layer, "max_cache_len", None) is not None and not getattr(layer, "is_sliding", False)
    ]
    return min(found, default=None)


def windows(cache: Any) -> list[int]:
    """How many tokens the layers that forget keep: windows, chunks, convolution kernels."""
    found: list[int] = []
    for layer in layers_of(cache):
        if isinstance(window := getattr(layer, "sliding_window", None), int):
            found.append(window)
        elif getattr(layer, "is_sliding", False) and isinstance(size := getattr(layer, "max_cache_len", None), int):
            found.append(size)
        kernels: dict[int, int | None] = getattr(layer, "conv_kernel_size", None) or {}
        found += [size for size in kernels.values() if isinstance(size, int)]
    return found


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__

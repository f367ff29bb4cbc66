"""What stands behind the question mark of `hf:…`, `arch:…` and `model:…`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ...harness.errors import TargetError
from ...harness.target import Target, closest

DTYPES = ("float64", "float32", "bfloat16", "float16")
SWITCHES = {"yes": True, "no": False}


@dataclass(frozen=True)
class Options:
    """How a model is loaded, and how its cache is kept.

    Empty strings leave the choice to the library. `fault` names a way of the catalogue by which the cache is kept instead.
    `capacity` is the length of caches that have one, `bits` the precision of quantised ones.
    `copies`: may there be a second one of the weights, in another precision? Left out, as long as they are small.
    """

    cache: str = "default"
    attn: str = ""
    dtype: str = ""
    device: str = "cpu"
    positions: str = "implicit"
    capacity: int = 64
    bits: int = 4
    copies: str = ""
    seed: int = 0
    compile: bool = False
    fault: str = ""
    gguf: str = ""
    trust_remote_code: bool = False


CHOICES: Mapping[str, tuple[str, ...]] = {
    "dtype": ("", *DTYPES),
    "positions": ("implicit", "explicit"),
    "copies": ("", "yes", "no"),
}
ONLY_FOLDERS = ("gguf", "trust_remote_code")
ONLY_DRAWN = ("seed",)
LACKING = {"hf": ONLY_DRAWN, "arch": ONLY_FOLDERS, "model": (*ONLY_DRAWN, *ONLY_FOLDERS)}


def parsed(target: Target) -> Options:
    """The options of a target. Raises `TargetError` for a name or value that is none."""
    lacking = LACKING[target.scheme]
    known = {field.name: field.default for field in fields(Options) if field.name not in lacking}
    given: dict[str, str | int | bool] = {}
    for name, text in target.options.items():
        if name not in known:
            raise closest(name, known, f"option of {target.scheme}:…, in {str(target)!r}, called")
        given[name] = _value(target, name, text, known[name])
    return Options(**given)  # type: ignore[arg-type]


def _value(target: Target, name: str, text: str, default: object) -> str | int | bool:
    def wrong(choices: str) -> TargetError:
        return TargetError(f"{str(target)!r}: {name}={text} is not possible; {name} is {choices}")

    if isinstance(default, bool):
        if text not in SWITCHES:
            raise wrong("yes or no")
        return SWITCHES[text]
    if isinstance(default, int):
        least = 0 if name == "seed" else 1
        if not text.isascii() or not text.isdecimal() or not least <= int(text) < 2**31:
            raise wrong(f"a number from {least} on")
        return int(text)
    choices = CHOICES.get(name, ())
    if (choices and text not in choices) or not text:
        raise wrong(f"one of {', '.join(filter(None, choices))}" if choices else "a word")
    return text

"""What goes between this process and a worker: requests, replies, tensors as plain bytes, errors as names and texts."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import AdapterError, Died, TimeLimit, Unsupported
from ..place import raised_at

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LONGEST_TEXT = 20_000
"""Characters of an error's text that are sent."""


@dataclass(slots=True)
class Raw:
    """A tensor's content. `number` names logits that the worker keeps, to notice when they are written again."""

    dtype: str
    shape: tuple[int, ...]
    data: bytearray
    number: int | None = None


class Ref(int):
    """A cache, by the number that the worker knows it under."""


@dataclass(slots=True)
class Pickled:
    """Any other value, pickled; no bytes where it could not be."""

    kind: str
    data: bytes = b""


@dataclass(slots=True)
class Raised:
    """An exception. `how` is "refusal" where the implementation refuses by it, "other", or a class of the harness;
    `place` is where the user's code raised it."""

    name: str
    text: str
    how: str
    place: str = ""


@dataclass(slots=True)
class Request:
    """A call: a method's name and what it is given. `released` are numbers of logits that nobody holds any more; with
    `count`, floating-point operations are counted; after `seconds` (None: never) the worker may end itself."""

    method: str
    given: tuple[Any, ...]
    released: tuple[int, ...] = ()
    count: bool = False
    seconds: float | None = None


@dataclass(slots=True)
class Reply:
    """What a call gave or raised, and what it changed: tensors among what it was given, and logits of earlier calls."""

    value: Any = None
    raised: Raised | None = None
    changed: list[tuple[int, Raw]] = field(default_factory=list[tuple[int, Raw]])
    rewritten: list[tuple[int, Raw]] = field(default_factory=list[tuple[int, Raw]])
    work: dict[str, int] = field(default_factory=dict[str, int])


def packed(tensor: Tensor) -> Raw:
    """A copy of a tensor's content, wherever it lies."""
    flat = _bytes(tensor)
    return Raw(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), bytearray(flat.numpy()))


def unpacked(raw: Raw) -> Tensor:
    """The tensor, on the CPU, on the memory of what was sent."""
    import torch

    dtype: torch.dtype = getattr(torch, raw.dtype)
    if not raw.data:
        return torch.empty(raw.shape, dtype=dtype)
    return torch.frombuffer(raw.data, dtype=torch.uint8).view(dtype).reshape(raw.shape)


def differs(tensor: Tensor, raw: Raw) -> bool:
    """Has a tensor changed since it was packed? By bytes: a NaN is equal to itself, and 0.0 is not -0.0."""
    import torch

    if tuple(tensor.shape) != raw.shape:
        return True
    return bool(raw.data) and not _bytes(tensor).equal(torch.frombuffer(raw.data, dtype=torch.uint8))


def overwrite(tensor: Tensor, raw: Raw) -> None:
    """Give a tensor other content, as a write to it elsewhere would have."""
    tensor.data = unpacked(raw)


def _bytes(tensor: Tensor) -> Tensor:
    import torch
    from torch import Tensor

    plain = tensor.detach().as_subclass(Tensor).cpu().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)


class _Sent(Exception):
    """An exception of another process."""

    place: str = ""
    """Where it was raised, as the end of a sentence."""


class Refused(_Sent):
    """Raised here for what an implementation elsewhere refuses by: the one refusal type of those that stand in for it."""


class Elsewhere(_Sent):
    """Raised here for any other exception that an implementation elsewhere raises."""


_OWN: dict[str, type[Exception]] = {kind.__name__: kind for kind in (Unsupported, TimeLimit, Died, AdapterError)}


def told(error: Exception, refusals: Sequence[type[Exception]] = ()) -> Raised:
    """An exception as it is sent."""
    try:
        text = str(error)[:LONGEST_TEXT]
    except Exception:
        text = "(its text cannot be read)"
    own = next((name for name, kind in _OWN.items() if isinstance(error, kind)), None)
    how = own or ("refusal" if isinstance(error, tuple(refusals)) else "other")
    return Raised(type(error).__name__, text, how, raised_at(error))


def as_exception(raised: Raised) -> Exception:
    """An exception of the same name and text, that refuses exactly where the sent one does."""
    if raised.how in _OWN:
        return _OWN[raised.how](raised.text)
    found = _named(raised.name, Refused if raised.how == "refusal" else Elsewhere)(raised.text)
    found.place = raised.place
    return found


@cache
def _named(name: str, base: type[_Sent]) -> type[_Sent]:
    return type(name, (base,), {"__module__": __name__})


def pickled(value: object) -> Pickled:
    """A value of any type; what cannot be pickled is known by the name of its type."""
    try:
        return Pickled(type(value).__name__, pickle.dumps(value))
    except Exception:
        return Pickled(type(value).__name__)


def unpickled(value: Pickled) -> Any:
    """The value, or an object whose type has the same name where it cannot be made here."""
    try:
        return pickle.loads(value.data)
    except Exception:
        return type(value.kind, (), {})()

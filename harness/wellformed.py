"""The form of what an implementation says and gives, and what is wrong with it in the user's terms: cause and mend."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from .errors import KvconformError
from .implementation import OPTIONAL, WAYS, Implementation, generating

if TYPE_CHECKING:
    from torch import Tensor

REQUIRED = {"new_cache": "new_cache(self, rows=1)", "append": "append(self, cache, tokens, lengths=None)"}
LIMITS = ("max_length", "max_rows", "max_append", "max_caches")


def sane(implementation: Implementation) -> None:
    """Raises `KvconformError` where an implementation lacks a method, or says of itself what cannot be."""
    thing: Any = implementation
    if isinstance(thing, type):
        raise KvconformError(f"{thing.__name__} is a class: give an object of it, as {thing.__name__}()")
    if not isinstance(thing, Implementation):
        raise KvconformError(f"{type(thing).__name__} is no kvconform.Implementation: derive its class from that one")
    kind, name = type(implementation), implementation.name or type(implementation).__name__
    for method, signature in REQUIRED.items():
        if getattr(kind, method) is getattr(Implementation, method):
            raise KvconformError(f"{name} does not define {signature}: without it nothing can be asked")
    if "restore" in implementation.capabilities and kind.load is Implementation.load:
        raise KvconformError(f"{name} defines dump(cache) and not load(data): define both, or neither")
    for method, signature, given in (("new_cache", REQUIRED["new_cache"], 1), ("append", REQUIRED["append"], 2)):
        try:
            inspect.signature(getattr(implementation, method)).bind(*range(given))
        except TypeError:
            raise KvconformError(f"{method} of {name} is not called like this: define {signature}") from None
        except ValueError:  # no signature that can be read
            continue
    if wrong := _attribute(implementation):
        raise KvconformError(f"{name}.{wrong}")


def _attribute(implementation: Implementation) -> str:
    """The first attribute that cannot be right, with what it has to be."""
    import torch

    said: Any = implementation
    if not isinstance(said.vocab_size, int) or said.vocab_size < 2:
        return f"vocab_size is {said.vocab_size!r}: say how many tokens the vocabulary has"
    for limit in LIMITS:
        value = getattr(said, limit)
        if value is not None and (not isinstance(value, int) or value < 1):
            return f"{limit} is {value!r}: it is a number from 1, or None for no limit"
    if not isinstance(said.dtype, torch.dtype):
        return f"dtype is {said.dtype!r}: give the torch dtype of the logits, as torch.float32"
    if not isinstance(said.device, torch.device):
        return f"device is {said.device!r}: give the logits' device, as torch.device('cuda')"
    if said.array not in ("torch", "numpy"):
        return f"array is {said.array!r}: tokens are handed in as 'torch' or 'numpy'"
    if said.ragged not in ("no", "left", "right"):
        return f"ragged is {said.ragged!r}: it is 'no', or the side of the padding, 'left' or 'right'"
    if not all(isinstance(mark, int) and mark > 0 for mark in said.landmarks):
        return f"landmarks is {said.landmarks!r}: give lengths from 1"
    if not all(isinstance(one, type) and issubclass(one, Exception) for one in said.refusals):
        return f"refusals is {said.refusals!r}: give exception classes, as (ValueError,)"
    if not isinstance(said.ways, tuple) or not set(said.ways) <= set(WAYS):
        return f"ways is {said.ways!r}: give a tuple of some of {', '.join(WAYS)}"
    known = {*OPTIONAL, "restore", "reset_rows"} - {"dump"}
    if unknown := sorted(implementation.capabilities - known - generating(implementation)):
        return f"capabilities has {unknown[0]!r}: there are {', '.join(sorted(known))}"
    return ""


def no_logits(value: Any) -> str:
    """Why what a call gave is no tensor of logits."""
    if value is None:
        return "append gave None where logits are due: is a return missing?"
    if isinstance(value, tuple):
        return f"append gave a tuple of {len(value)} where logits are due: return the logits alone, the rest stays in the cache"
    if isinstance(value, list):
        return (
            f"append gave a list of {len(value)} that is no array of logits: return an array, or lists of numbers, "
            "[rows, new tokens, vocabulary], with parts of equal length"
        )
    if hasattr(value, "logits"):
        return f"append gave {type(value).__name__} where logits are due: return its .logits"
    return f"append gave {type(value).__name__} where logits are due: return an array that speaks DLPack, as torch or numpy"


def wrong_shape(shape: tuple[int, ...], rows: int, new: int, vocab: int) -> str:
    """What is wrong with the shape of logits."""
    wanted = f"[{rows}, {new}, {vocab}]" + (f" or [{rows}, 1, {vocab}]" if new > 1 else "")
    told = f"logits have shape {list(shape)}, not {wanted}"
    if shape in ((new, vocab), (1, vocab), (rows, vocab)) or (vocab,) == shape:
        return f"{told}: a dimension is missing; give [rows, new tokens, vocabulary]"
    if len(shape) == 3 and shape[:2] in ((rows, new), (rows, 1)):
        return f"{told}: vocab_size says {vocab}, and the model gives {shape[2]}"
    if len(shape) == 3 and shape[0] == rows and shape[1] > new and shape[2] == vocab:
        return f"{told}: give the logits of the new tokens only, not of the whole cache"
    return told


def wrong_kind(logits: Tensor, implementation: Implementation) -> str:
    """What is wrong with the dtype, the device or the gradients of logits, if anything is."""
    if logits.dtype != implementation.dtype:
        return (
            f"logits are {logits.dtype}, the implementation says {implementation.dtype}: "
            "let its dtype say what append gives, or convert the logits"
        )
    if logits.device.type != implementation.device.type:
        return (
            f"logits are on {logits.device}, the implementation says {implementation.device}: "
            "let its device say where append computes, or move the logits"
        )
    if logits.requires_grad:
        return "logits require gradients, so every step's graph is kept: compute under torch.no_grad()"
    return ""

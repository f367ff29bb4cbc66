"""What a model and its cache say of themselves: capabilities, limits, lengths at which something changes.

Asked of the objects and not of model names, so that it holds for architectures that nobody has looked at.
"""

from __future__ import annotations

import copy
import io
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from ...harness.errors import Unsupported
from ...harness.runner import error_text
from .caches import Kind, carried, fresh, full_capacity, layers_of, windows
from .model import Model

FARTHEST = 160
"""Landmarks beyond this are left to longer runs: each one asks for programs of twice its length."""
LANDMARKS = re.compile(r"window|chunk|conv|d_conv|kernel|topk|compress|original_max_position|block_size|local_attention")
NO_LANDMARKS = re.compile(
    r"num_|n_groups|use_|_dim$|hidden|channels|intermediate|bias|topk_group|experts|layers|type|method|rate_init"
)
LENGTHS = re.compile(r"max_position_embeddings|n_positions|n_ctx|max_target_positions|max_seq(uence)?_len(gth)?|context_length")
TABLE = re.compile(r"pos|wpe", re.IGNORECASE)
LONGEST_TRIED = 1024


@dataclass(frozen=True)
class Traits:
    """What holds for every cache of a kind on a model."""

    capabilities: frozenset[str]
    max_length: int | None
    landmarks: tuple[int, ...]
    copies: bool
    """`copy.deepcopy` works on its caches."""
    forgets: tuple[int, ...]
    """Lengths of windows and convolutions, and 1 for a recurrent state: such layers keep no more than that."""
    records: bool
    """A rollback can be announced before the cache is first fed."""

    def crop_floor(self, lengths: Sequence[int]) -> int:
        """How far back a rollback may go: anywhere, but once a layer has forgotten for a rollback, not before that."""
        if not self.forgets:
            return 0
        window = min(self.forgets)
        if not self.records:  # such a cache refuses once a window is full
            return lengths[-1] if max(lengths, default=0) >= window else 0
        kept = [now for before, now in pairwise(lengths) if now <= before and now >= window]
        return max(kept, default=0)


def traits_of(model: Model, kind: Kind) -> Traits:
    """Ask a cache that was fed two rows of two tokens what it can do. Raises `Unsupported`."""
    records = kind.make is not None
    if model.own_cache and records and not _works(partial(_taken, model, kind), None):
        raise Unsupported(f"{type(model.module).__name__} takes a cache of its own kind only; leave cache= out")
    capacity, table = kind.capacity, positions_table(model)
    try:
        cache = _fed(model, kind, rows=2)
    except Unsupported:
        raise
    except (ValueError, NotImplementedError) as error:  # what the library says of a cache that it does not take
        raise Unsupported(error_text(error)) from None
    except Exception:  # a finding, when it is asked; what could come after it cannot be known
        return Traits(frozenset({"full", "to"}), table or capacity, _landmarks(model, ()), True, (), records)
    limits = [limit for limit in (full_capacity(cache), table) if limit is not None]
    if capacity and not limits and capacity < max(windows(cache), default=0):
        limits = [capacity]
    able = {"full", "fork", *_able(model, kind, cache)} | ({"to"} if kind.bits is None else set[str]())
    forgets = sorted({*windows(cache), *((1,) if _recurrent(cache) else ())})
    return Traits(
        capabilities=frozenset(able),
        max_length=min(limits, default=None),
        landmarks=_landmarks(model, (*windows(cache), *(window - 1 for window in windows(cache)))),
        copies=_works(copy.deepcopy, cache),
        forgets=tuple(forgets),
        records=records,
    )


def _fed(model: Model, kind: Kind, rows: int, cache: Any = None) -> Any:
    cache = fresh(kind, model, recording=True) if cache is None else cache
    given = {} if cache is None else {model.cache_word: cache}
    with model.running():
        return carried(model(torch.full((rows, 2), model.text), use_cache=True, **given), cache)


def _taken(model: Model, kind: Kind, _: Any) -> None:
    """A model whose words name no cache class may still take one: it does where tokens have come to lie in it."""
    if int(_fed(model, kind, rows=2).get_seq_length()) != 2:
        raise ValueError("nothing was stored")


def _able(model: Model, kind: Kind, cache: Any) -> Iterator[str]:
    """Capabilities that the object has by its methods, and by what it says of itself."""
    layers = layers_of(cache)
    if hasattr(cache, "reorder_cache"):
        yield "select"
    if croppable := _croppable(kind, cache, layers):
        yield "crop"
    if _works(lambda held: int(held.get_seq_length()), cache):
        yield "length"
    if _works(_saved, cache):
        yield "restore"
    if hasattr(cache, "reset"):
        yield "reset"
        ways: list[Callable[[Any], Any]] = [lambda held: held.reset(), *([lambda held: held.crop(-2)] if croppable else [])]
        if all(_works(partial(_refilled, model, kind, way), cache) for way in ways):
            yield "reset_rows"


def _refilled(model: Model, kind: Kind, empty: Callable[[Any], Any], cache: Any) -> None:
    """Other rows in an emptied cache, however it was emptied."""
    empty(cache)
    _fed(model, kind, 3, cache)


def _croppable(kind: Kind, cache: Any, layers: Sequence[Any]) -> bool:
    if not hasattr(cache, "crop") or not getattr(cache, "is_croppable", True):
        return False
    stateful = any(hasattr(layer, "conv_states") for layer in layers)
    return kind.make is not None or not stateful  # a state that was not recorded refuses


def _recurrent(cache: Any) -> bool:
    layers = layers_of(cache)
    return not layers or any(any(getattr(layer, "is_recurrent_states_initialized", {}).values()) for layer in layers)


def _saved(cache: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(cache, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)


def _works(attempt: Callable[[Any], Any], cache: Any) -> bool:
    """Does it go through?"""
    try:
        with torch.inference_mode():
            attempt(cache)
    except Exception:
        return False
    return True


def positions_table(model: Model) -> int | None:
    """Positions of a learned table: the first that is refused ends it. None where positions have no end."""
    parts = model.module.named_modules()
    if not any(isinstance(part, nn.Embedding) and TABLE.search(name) for name, part in parts):
        return None
    told = {value for name, value in _numbers(model.config) if LENGTHS.fullmatch(name)}
    for limit in sorted(told):
        if limit <= LONGEST_TRIED and not _passes(model, limit + 1):
            if _passes(model, limit):
                return limit  # else some positions are set aside: for padding, say, and all before it
            return bisect_left(range(1, limit), True, key=lambda length: not _passes(model, length)) or limit
    return min((limit for limit in told if limit > LONGEST_TRIED), default=None)


def _passes(model: Model, length: int) -> bool:
    try:
        with model.running():
            model(torch.full((1, length), model.text), use_cache=False)
    except (IndexError, RuntimeError, ValueError):
        return False
    return True


def _landmarks(model: Model, marks: Sequence[int]) -> tuple[int, ...]:
    told = (value for name, value in _numbers(model.config) if LANDMARKS.search(name) and not NO_LANDMARKS.search(name))
    return tuple(sorted({mark for mark in (*marks, *told) if 2 <= mark <= FARTHEST}))


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    """Whole numbers in a configuration by name, those in its dictionaries and lists too."""
    stack: list[tuple[str, Any]] = [("", config.to_dict())]
    while stack:
        name, value = stack.pop()
        if isinstance(value, Mapping):
            stack += [(str(key), inner) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            stack += [(name, inner) for inner in value]
        elif isinstance(value, int) and not isinstance(value, bool):
            yield name, value

"""Where the reference comes from: given by the user, else the implementation's own `full`, else its own single call on a
fresh cache.

The last is weaker: what every call of the implementation has in common cannot show. None of the three reads a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from . import calls, registry
from .apart.keeper import Apart
from .errors import KvconformError, TargetError, Unsupported
from .implementation import Implementation
from .oracle import MEMORY, Oracle, Reference
from .target import Resolved
from .trial import HALF, QUIETER, Subject
from .watchdog import Guard
from .wellformed import sane

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Given = Reference | Implementation | Callable[["Tensor"], "Tensor"] | str | None
"""What a user may name as the reference: a reference, another implementation, a function of tokens, or a target."""

FULL = "its own full pass"
CALL = "its own single call on a fresh cache, which is weaker: a fault that all its calls share cannot show"


class Own:
    """The reference that an implementation is to itself: its `full`, or else single calls on fresh caches."""

    def __init__(self, implementation: Implementation) -> None:
        self.implementation = implementation
        self.weaker = "full" not in implementation.capabilities
        self.name = CALL if self.weaker else FULL
        self.vocab_size = implementation.vocab_size
        self._known: dict[tuple[tuple[int, ...], ...], Tensor] = {}
        self._size = 0

    def logits(self, tokens: Tensor) -> Tensor:
        """`[rows, n, vocab]` for tokens `[rows, n]`. What gives the last position only is called once a prefix, and what
        it gave for a prefix is remembered."""
        import torch

        rows = tokens.shape[0]
        if rows > 1 and self.implementation.max_rows is not None and rows > self.implementation.max_rows:
            return torch.cat([self.logits(row[None]) for row in tokens])
        return calls.every_position(self._call, tokens)

    def to(self, dtype: torch.dtype) -> Own:
        """Raises `Unsupported` where the implementation cannot be put in that precision."""
        if dtype == self.implementation.dtype:
            return self
        if not can_be(self.implementation, str(dtype).removeprefix("torch.")):
            raise Unsupported(f"it computes in {dtype_name(self.implementation)} only")
        return Own(self.implementation.to(dtype))

    def _call(self, tokens: Tensor) -> Tensor:
        """A whole call, remembered as such: a row of a batch need not be bit-equal to the row alone."""
        key = tuple(map(tuple, cast("list[list[int]]", tokens.tolist())))
        if key not in self._known:
            if self._size > MEMORY:
                self._known.clear()
                self._size = 0
            asked = self.implementation.beside() if isinstance(self.implementation, Apart) else self.implementation
            got = (calls.single if self.weaker else calls.full)(asked, tokens)
            self._known[key] = got.cpu().clone()
            self._size += got.nbytes
        return self._known[key]


class Fixed:
    """A function of tokens `[rows, n]` that gives logits `[rows, n, vocab]`, in the one precision that it computes in."""

    def __init__(self, function: Callable[[Tensor], Tensor], vocab_size: int) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.vocab_size = vocab_size
        self.function = function

    def logits(self, tokens: Tensor) -> Tensor:
        return self.function(tokens)

    def to(self, dtype: torch.dtype) -> Fixed:
        import torch

        if dtype == torch.float64:
            raise Unsupported(f"{self.name} is a function, which cannot be put in float64")
        return self


def judged_by(resolved: Resolved, given: Given) -> Resolved:
    """The same implementation with the reference that the user gives, if any. Raises `KvconformError` where there is
    nothing to judge by, or where it is of another vocabulary."""
    implementation = resolved.implementation
    sane(implementation)
    if given is not None:
        name, reference, carrier = _given(given, implementation)
        text = given if isinstance(given, str) else ""
        resolved = replace(resolved, reference=reference, judged_by=name, given=text, carrier=carrier)
    if resolved.reference is None:
        if "full" not in implementation.capabilities and implementation.max_append == 1:
            raise KvconformError(
                f"there is nothing to judge {name_of(implementation)} by, which takes one token at a time and has no full: "
                "give a reference, or define full"
            )
        return replace(resolved, judged_by=Own(implementation).name)
    if (due := resolved.reference.vocab_size) != implementation.vocab_size:
        raise KvconformError(
            f"{name_of(implementation)} has a vocabulary of {implementation.vocab_size} tokens, the reference "
            f"{resolved.judged_by or resolved.reference.name} one of {due}: they are not the same model"
        )
    return resolved


def _given(
    given: Reference | Implementation | Callable[[Tensor], Tensor] | str, judged: Implementation
) -> tuple[str, Reference, Implementation | None]:
    """A name for what the user gives, the reference that it is, and what faults on its weights can be simulated with."""
    if isinstance(given, str):
        target = registry.parsed(given)
        if give := registry.schemes()[target.scheme].reference:
            _, reference, carrier = _given(give(target), judged)
            return given, reference, carrier
        other = registry.resolve(given)
        return given, other.reference or Own(other.implementation), other.carrier
    if isinstance(given, Implementation):
        return name_of(given), Own(given), None
    if isinstance(given, type):
        raise KvconformError(f"the reference {given.__name__} is a class: give an object of it, as {given.__name__}()")
    if isinstance(getattr(given, "logits", None), Callable):
        for needed in ("vocab_size", "to(dtype)"):
            if not hasattr(given, needed.partition("(")[0]):
                raise KvconformError(
                    f"the reference {type(given).__name__} has no {needed}: give an object with name, vocab_size, "
                    "logits(tokens) and to(dtype), or a function of tokens that gives logits"
                )
        return getattr(given, "name", "") or type(given).__name__, cast("Reference", given), None
    if isinstance(given, Callable):
        found = Fixed(given, judged.vocab_size)
        return found.name, found, None
    raise KvconformError(
        f"{type(given).__name__} is no reference: give a target, an implementation, a function of tokens that gives logits, "
        "or an object with name, vocab_size, logits(tokens) and to(dtype)"
    )


def reference_of(resolved: Resolved) -> Reference:
    return resolved.reference or Own(resolved.implementation)


def subject_of(implementation: Implementation, resolved: Resolved, name: str, guard: Guard) -> Subject:
    """An implementation that is in a precision, with the oracle to hold it against. Raises `KvconformError` where noisy
    arithmetic would be judged by itself, or where the reference has no such precision."""
    import torch

    dtype: torch.dtype = implementation.dtype if name == QUIETER else getattr(torch, name)
    reference = reference_of(replace(resolved, implementation=implementation))
    try:
        # Half precision is judged against the same weights in float64, by ratio.
        oracle = _half(reference.to(dtype), dtype) if name in HALF else Oracle(reference, dtype)
    except Unsupported as reason:
        raise KvconformError(f"the reference cannot judge it in {name}: {reason}") from None
    if isinstance(reference, Own) and implementation.noisy:
        raise KvconformError(
            f"{name_of(implementation)} is noisy, and its noise cannot be measured by itself: "
            "give a reference on the same weights"
        )
    return Subject(implementation, oracle, guard, resolved.given, name == QUIETER)


def _half(reference: Reference, dtype: torch.dtype) -> Oracle:
    """The same weights in float64, or in half precision where they can be had in no other and the noise can be measured."""
    import torch

    try:
        return Oracle(reference, torch.float64)
    except Unsupported:
        if not hasattr(reference, "nudged"):
            raise
        return Oracle(reference, dtype)


def placed(text: str, device: str, *, strict: bool = True) -> str:
    """A target with a device as its option. Raises `TargetError` where its scheme takes none; as it was unless `strict`."""
    if not device:
        return text
    target = registry.parsed(text)
    if "device" in registry.schemes()[target.scheme].takes:
        return str(replace(target, options={**target.options, "device": device}))
    if strict:
        raise TargetError(f"{target.scheme}:… takes no device: leave --device out")
    return text


def name_of(implementation: Implementation) -> str:
    return implementation.name or type(implementation).__name__


def dtype_name(implementation: Implementation) -> str:
    return str(implementation.dtype).removeprefix("torch.")


def can_be(implementation: Implementation, name: str) -> bool:
    """Can it be put in another precision, this one?"""
    return "to" in implementation.capabilities and (not implementation.dtypes or name in implementation.dtypes)

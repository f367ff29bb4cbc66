"""Float64 all the way through: what a model asks for in float32 is given in float64.

After a plain `.double()` a model still holds float32 islands: run-time `torch.float32` and `.float()` casts inside
norms, rotary tables, softmax and routers. They leave noise near 1e-7 of the logits' scale, and a mask filled with
float64's minimum overflows in them. With the islands lifted as well, two right paths agree to about 1e-14 of the scale
and no tolerance has to be argued about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

WIDE: dict[torch.dtype, torch.dtype] = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
"""What is given for what is asked. Integers, booleans and the 8-bit floats of quantised stores stay as they are."""

_CASTS: dict[Callable[..., Any], torch.dtype] = {
    **{getattr(Tensor, name): torch.float64 for name in ("half", "bfloat16", "float")},
    **{getattr(Tensor, name): torch.complex128 for name in ("chalf", "cfloat")},
}


@contextmanager
def lifted() -> Generator[None, None, None]:
    """While inside, every request for a floating dtype below float64 gives float64 (complex: complex128).

    Why a context and not a conversion of the model: the casts stand in the model's forward pass and can be met only
    while it runs. Covered are casts, `dtype` arguments and the default dtype, in every function and method of torch. A
    default dtype that is set inside (transformers does while it builds a model) is put right before the next call.
    Contexts nest, and work as decorators.

    Build or load the model inside too, and call `.double()` on it there: tables computed once (rotary frequencies) are
    then float64 values, not float32 values in wide numbers, and what loader threads left narrow is widened. For the
    weights of a float32 model, `load_state_dict` them into one built inside: the same seed draws other numbers here.

    A call that reads raw bytes as numbers (`view(dtype)`, `frombuffer`, unpickling) keeps the dtype that the bytes have.
    Not seen are compiled code, `torch.FloatTensor(...)`, `torch.from_numpy` and other threads, although the default
    dtype is the whole process's: run in parallel by processes.

    Raises nothing of its own; an operation that has no float64 (grouped expert kernels on the CPU) raises torch's
    error. On the way out, by an exception too, the default dtype is again what it was.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Lifting():
            yield
    finally:
        torch.set_default_dtype(before)


_suspended: ContextVar[bool] = ContextVar("kvconform lifting suspended", default=False)


@contextmanager
def as_written() -> Generator[None]:
    """Inside `lifted`, for code that means the narrow dtype it names: a store that keeps less."""
    token = _suspended.set(True)
    try:
        yield
    finally:
        _suspended.reset(token)


class _Lifting(TorchFunctionMode):
    """Hands every call of torch on, with wide dtypes in place of narrow ones."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # `set_default_dtype` itself passes no mode, so that its effect has to be undone here.
        if torch.get_default_dtype() != torch.float64:
            torch.set_default_dtype(torch.float64)
        kwargs = kwargs or {}
        if _suspended.get() or _reads_bytes(func, args, kwargs):
            return func(*args, **kwargs)
        if func in _CASTS:
            func, args, kwargs = Tensor.to, (*args, _CASTS[func]), kwargs
        elif func is Tensor.to or func is Tensor.type_as:
            func, args, kwargs = _cast_like(func, args, kwargs)
        elif func is Tensor.type:
            args, kwargs = tuple(map(_wide_type, args)), {name: _wide_type(kind) for name, kind in kwargs.items()}
        return func(*map(_wide, args), **{name: _wide(value) for name, value in kwargs.items()})


def _wide(value: Any) -> Any:
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def _wide_type(kind: Any) -> Any:
    """The names of legacy types: `torch.FloatTensor` and `"torch.cuda.HalfTensor"`."""
    if isinstance(kind, type):
        kind = f"{kind.__module__}.{kind.__name__}"
    return re.sub(r"\b(Half|BFloat16|Float)Tensor$", "DoubleTensor", kind) if isinstance(kind, str) else kind


def _cast_like(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """`x.to(other)` and `x.type_as(other)` as `x.to(device, dtype)`, where the other tensor is narrow."""
    name = "tensor" if func is Tensor.to else "other"
    other = (*args[1:], kwargs.get(name))[0]
    if not isinstance(other, Tensor) or other.dtype not in WIDE:
        return func, args, kwargs
    options = {option: value for option, value in kwargs.items() if option != name}
    return Tensor.to, (args[0], other.device, WIDE[other.dtype], *args[2:]), options


def _reads_bytes(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if func is torch.asarray:
        return any(isinstance(source, bytes | bytearray | memoryview) for source in (*args, *kwargs.values()))
    # Unpickling makes an empty tensor of the stored dtype, then hangs the stored bytes into it.
    return func in (Tensor.view, torch.from_file) or (func is torch.empty and args[:1] == ((0,),))

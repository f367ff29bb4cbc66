"""What the modules of a torch model take and give, in the order in which they end. Torch's own hooks for all modules look on,
so that neither the model nor the code that calls it is changed or searched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

Key = tuple[int | str, int]
"""A module, by its identity or its name, and the how manieth of its calls."""


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """One call: the module's name in the outermost one, its class, and copies of what went in and came out. `indices` are
    whole numbers `[n]` or `[rows, n]`, positions or tokens; `taken` and `given` numbers `[rows, n, …]`."""

    name: str
    kind: str
    keys: tuple[Key, Key]
    indices: Mapping[str, Tensor]
    taken: tuple[Tensor, ...]
    given: tuple[Tensor, ...]


class ModuleCalls:
    """While it is entered, each call of a module in that thread is put behind `calls`, a list that others may share."""

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def __enter__(self) -> Self:
        self._thread, self._depth = get_ident(), 0
        self._names: dict[int, str] = {}
        self._counts: Counter[int | str] = Counter()
        self._handles: list[Any] = [
            torch_modules.register_module_forward_pre_hook(self._before),
            torch_modules.register_module_forward_hook(self._after, with_kwargs=True, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if get_ident() != self._thread:
            return
        if not self._depth:
            self._names = {id(one): name for name, one in module.named_modules()}
        self._depth += 1

    def _after(self, module: nn.Module, args: tuple[Any, ...], *more: Any) -> None:
        """`more` is the call's keyword arguments and its output; where it raised, nothing but None."""
        kwargs, output = more if len(more) == 2 else ({}, None)
        if get_ident() != self._thread:
            return
        self._depth -= 1
        name = self._names.get(id(module), "")
        keys = (id(module), self._counts[id(module)]), (name, self._counts[name])
        self._counts.update((id(module), name))
        put = {**{str(place): one for place, one in enumerate(args)}, **kwargs}
        indices = {word: one.clone() for word, one in put.items() if _whole(one)}
        self.calls.append(
            ModuleCall(name, type(module).__name__, keys, indices, _numbers(put.values()), _numbers(_flat(output)))
        )


def _whole(one: Any) -> bool:
    return isinstance(one, Tensor) and one.dtype in (torch.int64, torch.int32) and 1 <= one.dim() <= 2


def _numbers(some: Iterable[Any]) -> tuple[Tensor, ...]:
    """Copies: what is in a cache is written over later."""
    return tuple(x.detach().clone() for x in some if isinstance(x, Tensor) and x.is_floating_point() and x.dim() >= 3)


def _flat(output: Any) -> Iterator[Any]:
    """The parts of an output that is one tensor, or several, by place or by name."""
    if isinstance(output, Mapping):
        yield from cast("Mapping[str, Any]", output).values()
    elif isinstance(output, (tuple, list)):
        yield from cast("tuple[Any, ...]", output)
    else:
        yield output

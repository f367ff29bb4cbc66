"""Every built-in way to keep a cache, by name. A class enters by a decorator; its docstring's first line is its sentence."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, TypeVar

from ..harness.errors import Unsupported
from ..harness.fault import Fault, Form, Kind
from ..harness.implementation import Implementation
from ..harness.oracle import Reference
from ..harness.program import Program
from .builtin import BuiltIn
from .models import ByPolicy, CachedModel
from .policy import Concat
from .windows import Ring

MODELS = ("gpt", "llama", "window", "hybrid", "noisy")
"""Built-in models that a way applies to unless it says otherwise."""

CATALOGUE: dict[str, Fault] = {}
"""By name, in the order in which they are shown."""

Way = TypeVar("Way", bound=type[Concat] | type[CachedModel] | type[Implementation])


def correct(**about: Any) -> Callable[[Way], Way]:
    return _entry(Kind.CORRECT, about)


def control(**about: Any) -> Callable[[Way], Way]:
    return _entry(Kind.CONTROL, about)


def fault(*, clause: str, shows: str, diagnosis: str, **about: Any) -> Callable[[Way], Way]:
    return _entry(Kind.FAULT, {"clause": clause, "shows": shows, "diagnosis": diagnosis, **about})


Policy = TypeVar("Policy", bound=Concat)
Values = Callable[[BuiltIn, Program], Iterable[int]]
"""The values of a form's parameter that a program's figures suggest for a target."""

FORMS: dict[str, list[Callable[[Implementation, Program], Iterable[Form]]]] = {}
"""Further forms of a fault, by its name. Diagnoses simulate them; the table and the mutation check show the fault itself."""


def form(
    of: str, diagnosis: str = "", *, name: str = "", scenario: str = "", values: Values | None = None
) -> Callable[[type[Policy]], type[Policy]]:
    """Another form of the fault `of`: its class attribute `value` takes each of `values`, and `diagnosis` says what is
    wrong, with `{value}` in it. `name` where it deserves one of its own."""

    def add(way: type[Policy]) -> type[Policy]:
        def forms(target: Implementation, program: Program) -> Iterable[Form]:
            fault, carrier = CATALOGUE[of], getattr(target, "by_policy", target)
            if not isinstance(carrier, BuiltIn):
                return
            for value in values(carrier, program) if values else (None,):
                own = way if value is None else type(way.__name__, (way,), {"value": value})
                yield Form(
                    name or of,
                    (diagnosis or fault.diagnosis).format(value=value),
                    partial(_inject, name or of, own, BuiltIn, MODELS),
                    "" if value is None else str(value),
                    scenario or fault.scenario,
                    fault.clause,
                )

        FORMS.setdefault(of, []).append(forms)
        return way

    return add


def _others(name: str, target: Implementation, program: Program) -> Iterable[Form]:
    return (one for forms in FORMS.get(name, ()) for one in forms(target, program))


def spoiled_reference(*, clause: str, diagnosis: str, models: tuple[str, ...] = MODELS) -> Callable[[type[Any]], type[Any]]:
    """A fault of the reference: a class that wraps it."""

    def add(way: type[Any]) -> type[Any]:
        about = {"clause": clause, "diagnosis": diagnosis, "shows": "always"}
        _add(way, Kind.FAULT, about, "", models, lambda target: target, spoil=way)
        return way

    return add


def _entry(kind: Kind, about: Mapping[str, Any]) -> Callable[[Way], Way]:
    details = dict(about)
    models: tuple[str, ...] = details.pop("models", MODELS)
    engine: type[BuiltIn] = details.pop("engine", BuiltIn)
    name: str = details.pop("name", "")

    def add(way: Way) -> Way:
        called = _name(way, name)
        _add(way, kind, details, called, models, lambda target: _inject(called, way, engine, models, target))
        return way

    return add


def _name(way: type[Any], given: str = "") -> str:
    return given or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", way.__name__).lower()


def _add(
    way: type[Any],
    kind: Kind,
    about: Mapping[str, Any],
    name: str,
    models: tuple[str, ...],
    inject: Callable[[Implementation], Implementation],
    spoil: Callable[[Reference], Reference] | None = None,
) -> None:
    called = _name(way, name)
    CATALOGUE[called] = Fault(
        name=called,
        kind=kind,
        sentence=(inspect.getdoc(way) or "").splitlines()[0],
        inject=inject,
        spoil=spoil,
        override=override(way),
        models=models,
        family=way.__module__.rpartition(".")[2],
        others=partial(_others, called),
        **about,
    )


def _inject(
    name: str, way: type[Any], engine: type[BuiltIn], models: tuple[str, ...], target: Implementation
) -> Implementation:
    target = getattr(target, "by_policy", target)
    if not isinstance(target, BuiltIn):
        raise Unsupported(f"{name} is for models whose cache a policy can keep")
    if target.like not in models:
        raise Unsupported(f"{name} shows on models like {' and '.join(models)} only")
    full_name = f"{target.model.name}/{name}"
    model = target.model
    if not isinstance(model, CachedModel):
        _check_portable(name, way, model)
    if issubclass(way, CachedModel):
        assert isinstance(model, CachedModel)
        return BuiltIn(way(**{field.name: getattr(model, field.name) for field in fields(model)}), target.policy, full_name)
    if issubclass(way, BuiltIn):
        return way(target.model, target.policy, full_name)
    return engine(target.model, way, full_name)


def _check_portable(name: str, way: type[Any], model: ByPolicy) -> None:
    """Raises `Unsupported` for a way that needs more of a forward pass than one that is not ours offers."""
    if issubclass(way, CachedModel) or (issubclass(way, Concat) and (way.rotates_when_read or way.attend is not Concat.attend)):
        raise Unsupported(f"{name} changes a forward pass, and this one is not ours")
    if issubclass(way, Ring) and model.mixed:
        raise Unsupported(f"{name} keeps one window, and this model has layers without one")


def override(way: type[Any]) -> str:
    """The source of what a class overrides, without its docstrings: for a fault, the bug."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(way)))
    definition = tree.body[0]
    assert isinstance(definition, ast.ClassDef)
    definition.decorator_list = []
    for node in ast.walk(definition):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    if not definition.body:
        return ""
    return ast.unparse(definition)

"""`py:engine.py:Mine`, `py:package.module:Mine`: an implementation of one's own, in Python.

`Mine` is a class, an instance, or a function that gives an implementation; options behind a question mark are passed to
it as keyword arguments. A `reference` beside it is what it is judged by.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from ..harness.errors import KvconformError, TargetError
from ..harness.implementation import Implementation
from ..harness.place import raised_at
from ..harness.runner import error_text
from ..harness.sources import judged_by
from ..harness.target import Resolved, Scheme, Target, closest

USAGE = "write py:FILE.py:NAME or py:PACKAGE.MODULE:NAME"


def resolve(target: Target) -> Resolved:
    """Load the file or module, and make the implementation."""
    module, name, place = _loaded(target)
    made = _made(name, getattr(module, name), _arguments(target.options), place)
    return replace(judged_by(Resolved(made, None), _reference(module)), given=None)


def reference(target: Target) -> Any:
    """What a target is as a reference: an object of a class of the user's own, a function of tokens, an implementation."""
    module, name, place = _loaded(target)
    value, arguments = getattr(module, name), _arguments(target.options)
    if _is_implementation(value):
        return _made(name, value, arguments, place)
    if not isinstance(value, type):
        return value
    try:
        return value(**arguments)
    except BaseException as error:
        raise _broken(f"{name} cannot be made", error) from error


def glance(target: Target) -> None:
    """Raises `TargetError` where the file that a target names is not there or is no Python."""
    place, _, _ = target.address.rpartition(":")
    named = place.endswith(".py") or "/" in place
    path = Path(place if named else place.replace(".", "/") + ".py")
    if named and not path.is_file():
        raise TargetError(f"there is no file {path}; {USAGE}")
    if not path.is_file():
        return
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise _broken(f"{path.name if named else place} cannot be loaded", error) from None


def _loaded(target: Target) -> tuple[ModuleType, str, str]:
    """The module of a target, the name in it, and the place as it was given."""
    place, _, name = target.address.rpartition(":")
    if not place:
        raise TargetError(f"{str(target)!r} does not say what to load and from where; {USAGE}")
    glance(target)
    module = _from_file(Path(place)) if place.endswith(".py") or "/" in place else _from_path(place)
    if not hasattr(module, name):
        raise closest(name, _candidates(module), f"name in {place}:")
    return module, name, place


def _from_file(path: Path) -> ModuleType:
    """Run a file as a module under its own name, its folder on the path. Loaded once."""
    path = path.resolve()
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if known is not None:
        name = f"{name}_{abs(hash(path))}"
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is no Python file; {USAGE}")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise _broken(f"{path.name} cannot be loaded", error) from error
    return module


def _from_path(name: str) -> ModuleType:
    """Import a module, the current folder on the path."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            raise TargetError(f"there is no module {error.name} in {folder} or installed; {USAGE}") from None
        raise _broken(f"{name} cannot be loaded", error) from error
    except BaseException as error:
        raise _broken(f"{name} cannot be loaded", error) from error


def _broken(what: str, error: BaseException) -> Exception:
    """The one line for an error in the user's code, with its place. What ends a process on purpose goes on."""
    if isinstance(error, KvconformError):
        return error
    if isinstance(error, KeyboardInterrupt):
        raise error
    if isinstance(error, SyntaxError) and error.filename:
        return TargetError(f"{what}: {Path(error.filename).name}:{error.lineno}: {type(error).__name__}: {error.msg}")
    text = error_text(error) if isinstance(error, Exception) else f"it raises {type(error).__name__}"
    return TargetError(f"{what}: {text}{raised_at(error)}")


def _arguments(options: Mapping[str, str]) -> dict[str, Any]:
    """Options as keyword arguments: Python literals where they are such, else text."""

    def value(text: str) -> Any:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    return {name: value(text) for name, text in options.items()}


def _candidates(module: ModuleType) -> list[str]:
    """Names in a module that may be meant: its implementations first."""
    names = [name for name in vars(module) if not name.startswith("_")]
    return sorted(names, key=lambda name: not _is_implementation(getattr(module, name)))


def _is_implementation(value: object) -> bool:
    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, Implementation) and kind is not Implementation


def _made(name: str, value: object, arguments: Mapping[str, Any], place: str) -> Implementation:
    """The implementation that a class or a function makes, or that is there already."""
    if isinstance(value, Implementation):
        if arguments:
            raise TargetError(f"{name} in {place} is an instance, which takes no options: leave out everything from the ? on")
        return value
    wrong = "is no kvconform.Implementation: derive it from that class, or name a function that gives one"
    if (isinstance(value, type) and not issubclass(value, Implementation)) or not isinstance(value, Callable):
        raise TargetError(f"{name} in {place} is {_article(value)}, and {wrong}{_line(value)}")
    try:
        inspect.signature(value).bind(**arguments)
    except TypeError as error:
        raise TargetError(
            f"{name} cannot be made: {error}; give arguments as {name}?name=value, or name a function without any "
            f"that gives the implementation{_line(value)}"
        ) from None
    try:
        made = value(**arguments)
    except BaseException as error:
        raise _broken(f"{name} cannot be made", error) from error
    if not isinstance(made, Implementation):
        raise TargetError(f"{name}() in {place} gives {_article(made)}, which {wrong}{_line(value)}")
    return made


def _article(value: object) -> str:
    if value is None:
        return "nothing"
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def _line(value: object) -> str:
    """Where a class or function begins, as the end of a sentence."""
    try:
        path, line = inspect.getsourcefile(value), inspect.getsourcelines(value)[1]  # type: ignore[arg-type]
    except (TypeError, OSError):
        return ""
    return f" ({Path(path or '').name}:{line})"


def _reference(module: ModuleType) -> Any:
    """What the module calls `reference`, unless that is a function or a module that it has only imported."""
    found = getattr(module, "reference", None)
    function = callable(found) and not isinstance(found, Implementation) and not hasattr(found, "logits")
    imported = isinstance(found, ModuleType) or (function and getattr(found, "__module__", "") != module.__name__)
    return None if imported else found


PY = Scheme(resolve, reference=reference, glance=glance, takes=("device",))

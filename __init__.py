"""kvconform: differential conformance tests for the key/value caches of decoder language models.

The public names are loaded on first use, by absolute name. Nothing is imported here when the file is loaded: a clone's
root folder is this package, and pytest loads the file under whatever name that folder has.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors only; never run
    from .harness.clause import Clause
    from .harness.errors import KvconformError, Unsupported
    from .harness.implementation import Cache, Implementation
    from .harness.program import Program
    from .interface.api import check, replay
    from .interface.conformance import Conformance

__version__ = "0.1.0"

_PUBLIC = {
    "Implementation": "kvconform.harness.implementation",
    "Cache": "kvconform.harness.implementation",
    "Program": "kvconform.harness.program",
    "Clause": "kvconform.harness.clause",
    "KvconformError": "kvconform.harness.errors",
    "Unsupported": "kvconform.harness.errors",
    "check": "kvconform.interface.api",
    "replay": "kvconform.interface.api",
    "Conformance": "kvconform.interface.conformance",
}

__all__ = [
    "Cache",
    "Clause",
    "Conformance",
    "Implementation",
    "KvconformError",
    "Program",
    "Unsupported",
    "__version__",
    "check",
    "replay",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kvconform' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

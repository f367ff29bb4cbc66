"""The mutation check over targets: loads the models that faults are injected into."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Sequence

from . import registry
from .conformance import subjects
from .errors import KvconformError
from .fault import Fault
from .judging import Profile
from .mutation import Base, judgement, mutants
from .run import Run, header
from .target import Resolved


def chosen_faults(pattern: str) -> list[Fault]:
    """Faults and controls whose name matches a shell pattern. Raises `KvconformError` where none does."""
    found = [fault for fault in registry.faults().values() if fnmatch.fnmatchcase(fault.name, pattern)]
    if not found:
        raise KvconformError(f"no fault matches {pattern!r}; `kvconform list faults` shows them all")
    return found


def _widest(resolved: Resolved) -> list[str]:
    """float64 where the implementation can be put in it, since a fault cannot hide there; else its own precision."""
    return ["float64"] if "to" in resolved.implementation.capabilities else []


def run_mutation(
    target: str,
    faults: Sequence[Fault],
    profile: Profile,
    dtypes: Sequence[str] = (),
    began: Callable[[str], None] | None = None,
    diagnosed: bool = False,
) -> Run:
    """Inject faults into a target, or into every model that a scheme names for it; in float64 unless told otherwise."""
    started = time.monotonic()
    targets = [target] if target else [name for scheme in registry.schemes().values() for name in scheme.mutated]
    loaded = {name: registry.resolve(name) for name in targets}
    bases = [
        Base(name, resolved.model or name, subject.implementation, subject.oracle)
        for name, resolved in loaded.items()
        for subject in subjects(resolved, dtypes or _widest(resolved))
    ]
    found = tuple(mutants(bases, faults, registry.clauses(), profile, began, diagnosed))
    about = header(f"mutate {target}".strip(), targets, profile.name, profile.seed)
    return Run(about, mutants=found, problems=tuple(judgement(found)), seconds=time.monotonic() - started)

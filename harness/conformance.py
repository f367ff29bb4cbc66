"""The contract against one implementation, in each precision that it is asked in."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence

from .clause import Clause
from .errors import KvconformError
from .implementation import Implementation
from .judging import Profile, judge_clauses
from .oracle import Oracle
from .results import Case
from .target import Resolved
from .trial import HALF, Subject


def subjects(resolved: Resolved, dtypes: Sequence[str] = ()) -> Iterator[Subject]:
    """The implementation in each precision; by default float64 first, where any real bug stands out, then its own.

    Raises `KvconformError` for a precision that it cannot be put in.
    """
    import torch

    own = str(resolved.implementation.dtype).removeprefix("torch.")
    able = "to" in resolved.implementation.capabilities
    for name in dtypes or dict.fromkeys(["float64", own] if able else [own]):
        dtype: torch.dtype = getattr(torch, name)
        # Half precision is judged against the same weights in float64, by ratio.
        oracle = Oracle(resolved.reference.to(dtype), torch.float64) if name in HALF else Oracle(resolved.reference, dtype)
        yield Subject(_in_precision(resolved.implementation, name, own, able), oracle)


def _in_precision(implementation: Implementation, name: str, own: str, able: bool) -> Implementation:
    import torch

    if name == own:
        return implementation
    if not able:
        raise KvconformError(
            f"{implementation.name or type(implementation).__name__} computes in {own} and has no to(dtype): "
            f"leave --dtype {name} out, or define to"
        )
    return implementation.to(getattr(torch, name))


def conform(
    target: str,
    resolved: Resolved,
    clauses: Sequence[Clause],
    profile: Profile,
    dtypes: Sequence[str] = (),
    began: Callable[[str], None] | None = None,
) -> Iterator[Case]:
    """Ask every clause in every precision."""
    for subject in subjects(resolved, dtypes):

        def told(clause: Clause, name: str = subject.dtype_name) -> None:
            if began:
                began(f"{clause.id} in {name}")

        yield from judge_clauses(clauses, subject, target, profile, told)


def chosen(clauses: Sequence[Clause], pattern: str) -> list[Clause]:
    """Clauses whose id matches a shell pattern, or begins with it. Raises `KvconformError` where none does."""
    found = [clause for clause in clauses if fnmatch.fnmatchcase(clause.id, pattern) or clause.id.startswith(pattern)]
    if not found:
        raise KvconformError(f"no clause matches {pattern!r}; `kvconform list clauses` shows them all")
    return found

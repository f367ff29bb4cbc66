"""The contract against one implementation, in each precision that it is asked in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from .apart.keeper import Apart
from .clause import Clause, matches
from .diagnosis.diagnose import Diagnoser
from .errors import KvconformError
from .implementation import Implementation
from .judging import Doubt, Profile, doubt_about, judge_clauses
from .locate import located
from .passes import PASSES
from .results import Case
from .runner import error_text
from .sources import Fixed, can_be, dtype_name, name_of, subject_of
from .target import Resolved
from .trial import QUIETER, Subject, Verdict
from .watchdog import STALL_LIMIT, TIME_LIMIT, Guard, Watchdog


@dataclass(frozen=True)
class Guarding:
    """How a program that hangs or kills its process is kept from ending the run. `limit`: seconds that one may take
    (None: any). With a `recipe` (see `worker`) the implementation is built and run in a worker, else in this process.
    `stall`: seconds that a foreign engine may be silent in the middle of a reply (None: any)."""

    limit: float | None = TIME_LIMIT
    recipe: Callable[[], Any] | None = None
    stall: float | None = STALL_LIMIT

    def guarded(self, implementation: Implementation, name: str) -> tuple[Implementation, Guard]:
        """The implementation in a precision, and what runs its programs."""
        put = _precision(implementation, name)
        if isinstance(implementation, Apart):  # it lives in a process of its own already
            apart = cast("Apart", put())
            apart.keeper.limit, apart.keeper.stall = self.limit, self.stall
            return apart, apart.keeper
        if self.recipe is None:
            guard = Watchdog(self.limit)
            return guard.run(put, implementation), guard
        from .apart.worker import Isolated, Recipe, Worker

        worker = Worker(Recipe(self.recipe, "" if name == dtype_name(implementation) else name), self.limit)
        return Isolated(worker), worker


def subjects(resolved: Resolved, dtypes: Sequence[str] = ()) -> Iterator[Subject]:
    """The implementation in each precision; by default float64 first, where any real bug stands out, or else the quieter
    mode of noisy arithmetic, then its own.

    Raises `KvconformError` for a precision that it cannot be put in.
    """
    for name in precisions(resolved, dtypes):
        yield subject(resolved, name)


def precisions(resolved: Resolved, dtypes: Sequence[str] = ()) -> Sequence[str]:
    """The precisions that are asked for, or those by default."""
    own = dtype_name(resolved.implementation)
    wide = can_be(resolved.implementation, "float64") and not isinstance(resolved.reference, Fixed)
    quieter = resolved.implementation.noisy and "quieter" in resolved.implementation.capabilities
    return dtypes or list(dict.fromkeys(["float64"] * wide + [QUIETER] * quieter + [own]))


def subject(resolved: Resolved, name: str, guarding: Guarding | None = None) -> Subject:
    """The implementation in one precision."""
    implementation, guard = (guarding or Guarding()).guarded(resolved.implementation, name)
    return subject_of(implementation, resolved, name, guard)


def _precision(implementation: Implementation, name: str) -> Callable[[], Implementation]:
    """What puts an implementation in a precision. Raises `KvconformError` where it has only another."""
    import torch

    own = dtype_name(implementation)
    if name == own:
        return lambda: implementation
    if name == QUIETER:
        if name not in implementation.capabilities:
            raise KvconformError(f"{name_of(implementation)} knows no quieter mode: leave --dtype out, or define quieter")
        return implementation.quieter
    if "to" not in implementation.capabilities:
        raise KvconformError(
            f"{name_of(implementation)} computes in {own} and has no to(dtype): leave --dtype {name} out, or define to"
        )
    if implementation.dtypes and name not in implementation.dtypes:
        raise KvconformError(
            f"{name_of(implementation)} computes in {', '.join(implementation.dtypes)}: leave --dtype {name} out"
        )
    return lambda: implementation.to(getattr(torch, name))


def conform(
    target: str,
    resolved: Resolved,
    clauses: Sequence[Clause],
    profile: Profile,
    dtypes: Sequence[str] = (),
    began: Callable[[str], None] | None = None,
    guarding: Guarding | None = None,
    doubts: dict[str, Doubt] | None = None,
    diagnosed: bool = True,
    locating: bool = False,
) -> Iterator[Case]:
    """Ask every clause in every precision; one that the implementation cannot even be put in is errored throughout.

    With `doubts` what all clauses rest on is asked first even where it is not among them, once for each precision.
    Findings are named unless `diagnosed` says that nobody reads them; with `locating` they say where they begin.
    """
    names = precisions(resolved, dtypes)
    for place, name in enumerate(names):
        PASSES.allot(len(names) - place)

        def told(clause: Clause, name: str = name) -> None:
            if began:
                began(f"{clause.id} in {name}")

        try:
            asked = subject(resolved, name, guarding)
        except KvconformError:
            raise
        except Exception as error:
            reason = f"it cannot be put in {name}: {error_text(error)}"
            yield from (Case(target, clause.id, name, Verdict.ERRORED, reason) for clause in clauses)
            continue
        try:
            if doubts is not None and name not in doubts:
                doubts[name] = doubt_about(asked, target, profile, clauses)
            cases = judge_clauses(clauses, asked, target, profile, told, (doubts or {}).get(name))
            named = map(Diagnoser(resolved, asked).case, cases) if diagnosed else cases
            yield from (located(case, asked) for case in named) if locating else named
        finally:
            asked.guard.close()


def chosen(clauses: Sequence[Clause], pattern: str) -> list[Clause]:
    """Clauses whose id matches a shell pattern, or begins with it. Raises `KvconformError` where none does."""
    found = [clause for clause in clauses if matches(clause.id, pattern)]
    if not found:
        raise KvconformError(f"no clause matches {pattern!r}; `kvconform list clauses` shows them all")
    return found

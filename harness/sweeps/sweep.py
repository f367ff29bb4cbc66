"""Many targets in processes side by side: a cell is one target in one dtype, and costs nobody but itself."""

from __future__ import annotations

import fnmatch
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar

from .. import registry
from ..apart import process
from ..apart.worker import Worker
from ..clause import Clause
from ..errors import KvconformError, Lost, TargetError, TimeLimit
from ..judging import Profile, in_turn
from ..results import Case, Cell, Finding
from ..runner import error_text
from ..target import Scheme, Target
from ..trial import Verdict
from .bench import About, Asked, Bench

Given = TypeVar("Given")
Made = TypeVar("Made")

SWEEP = Profile("sweep", examples=2, fixed=4, spread=True, shrink=False)
"""What each clause is asked in a sweep: nothing is shrunk before failures are grouped."""

DEATHS = 3
"""Processes that a cell may use up before it is given up."""


@dataclass(frozen=True)
class Limits:
    """What a cell may take: seconds, and bytes of memory that its process holds (None: any)."""

    seconds: float
    memory: int | None = None


@dataclass(frozen=True)
class Swept:
    """A cell that is finished."""

    cell: Cell
    cases: tuple[Case, ...]

    @property
    def key(self) -> str:
        return self.cell.key


def expanded(patterns: Sequence[str], varied: Mapping[str, Sequence[str]], dtypes: Sequence[str]) -> list[Asked]:
    """The cells that patterns stand for: what the schemes list and matches, with each value of the options that a scheme
    varies and that the pattern leaves open. Raises `TargetError` where a pattern matches nothing."""
    schemes = registry.schemes()
    found: dict[str, Asked] = {}
    taken: set[str] = set()
    for pattern in patterns or [one for scheme in schemes.values() for one in scheme.swept]:
        raw = (scheme := schemes.get(pattern.partition(":")[0])) is not None and scheme.raw
        head, _, query = (pattern, "", "") if raw else pattern.partition("?")
        known = [one.target for scheme in schemes.values() for one in scheme.listing()]
        names = [name for name in known if fnmatch.fnmatchcase(name, head)]
        if not names and not raw and any(sign in head for sign in "*["):
            raise TargetError(f"no target that can be named in advance matches {head!r}; `kvconform list targets` shows them")
        for name in names or [head]:
            target = registry.parsed(f"{name}?{query}" if query else name)
            scheme = schemes[target.scheme]
            taken |= set(scheme.options)
            for one in _varied(target, scheme, varied):
                for dtype in dtypes:
                    found.setdefault(f"{one} {dtype}", Asked(str(one), dtype, f"{one.scheme}:{scheme.shares(one)} {dtype}"))
    if odd := [name for name in varied if name not in taken]:
        raise TargetError(f"none of these targets takes {odd[0]}; leave --{odd[0]} out")
    return list(found.values())


def _varied(target: Target, scheme: Scheme, varied: Mapping[str, Sequence[str]]) -> Iterator[Target]:
    """A target with each combination of the options that it leaves open."""
    open_ = {name: varied.get(name, values) for name, values in scheme.options.items() if name not in target.options}
    for values in product(*open_.values()):
        yield replace(target, options={**target.options, **dict(zip(open_, values, strict=True))})


def sweep(
    cells: Iterable[Asked],
    clauses: Sequence[Clause],
    profile: Profile,
    programs: int,
    limits: Limits,
    processes: int,
) -> Iterator[Swept]:
    """Judge cells, each by at least so many programs where its clauses can be asked. Cells that share a model run one
    after the other in one process. Those that the profile's deadline finds waiting are left out."""
    ask = partial(_judged, clauses=clauses, profile=replace(profile, deadline=None), programs=programs)
    yield from _side_by_side(_together(cells), ask, lambda: profile.expired, limits, processes)


def shrunk(
    found: Iterable[tuple[str, Asked, Finding]], profile: Profile, seconds: float, limits: Limits, processes: int
) -> Iterator[tuple[str, Finding]]:
    """Each finding, under its name, with the smallest program found in so many seconds; as it was where its process is
    lost."""

    def smaller(worker: Worker, given: tuple[str, Asked, Finding]) -> tuple[str, Finding]:
        name, asked, finding = given
        brief = replace(profile, deadline=time.monotonic() + seconds)
        try:
            return name, worker.ask("smaller", asked, finding, brief)
        except _Stopped:
            raise
        except Exception as error:
            return name, replace(finding, detail=f"{finding.detail} (not shrunk: {error_text(error)})")

    patient = replace(limits, seconds=limits.seconds + seconds)
    yield from _side_by_side([[one] for one in found], smaller, lambda: profile.expired, patient, processes)


TOGETHER = 8
"""Cells at most that one process takes at a time, lest it works on alone in the end."""


def _together(cells: Iterable[Asked]) -> list[list[Asked]]:
    groups: dict[str, list[Asked]] = {}
    for cell in cells:
        groups.setdefault(cell.share, []).append(cell)
    return [some[at : at + TOGETHER] for some in groups.values() for at in range(0, len(some), TOGETHER)]


def _judged(worker: Worker, asked: Asked, clauses: Sequence[Clause], profile: Profile, programs: int) -> Swept:
    """One cell. A clause whose process is lost is errored; when the time is over, so are all that are left."""
    began, lost, over = time.monotonic(), 0, ""
    last = next((clause for clause in reversed(clauses) if clause.mix), None)
    cases: list[Case] = []

    def errored(clause: Clause, reason: str, verdict: Verdict = Verdict.ERRORED) -> Case:
        return Case(asked.target, clause.id, asked.dtype, verdict, reason)

    def ask(clause: Clause) -> Case:
        nonlocal lost, over
        if over:
            return errored(clause, over)
        ran = sum(case.programs for case in cases if not case.clause.startswith("reference."))
        missing = max(profile.examples, programs - ran) if clause is last else profile.examples
        try:
            return worker.ask("judge", asked, clause.id, replace(profile, examples=missing))
        except _Stopped:
            raise
        except Lost as error:
            lost += 1
            if isinstance(error, TimeLimit):
                over = f"not asked, for the cell's time of {worker.limit:g} s was over at {clause.id}"
            elif lost == DEATHS:
                over = f"not asked, for {DEATHS} processes were lost before"
            return errored(clause, str(error))
        except Exception as error:
            return errored(clause, f"the harness or the adapter: {error_text(error)}")

    def work() -> About:
        about = _about(worker, asked)
        if about.verdict:
            cases.extend(errored(clause, about.reason, about.verdict) for clause in clauses)
        else:
            cases.extend(in_turn(clauses, ask))
        return about

    about = worker.run(work, None)
    return Swept(Cell(asked.target, asked.dtype, about.tags, round(time.monotonic() - began, 3)), tuple(cases))


def _about(worker: Worker, asked: Asked) -> About:
    try:
        return worker.ask("about", asked)
    except _Stopped:
        raise
    except Lost as lost:
        return About(verdict=Verdict.ERRORED, reason=f"it cannot be loaded: {lost}")


class _Stopped(Lost):
    """Nobody waits for an answer any more."""


class _BenchWorker(Worker):
    """A worker that asks nothing more once it was told to stop, so that no new process is started then."""

    def __init__(self, limits: Limits, stop: Event) -> None:
        self.stop = stop
        super().__init__(Bench, limits.seconds, limits.memory)

    def ask(self, method: str, *given: Any) -> Any:
        if self.stop.is_set():
            raise _Stopped("the sweep was ended")
        return super().ask(method, *given)


def _next(waiting: deque[Sequence[Given]]) -> Sequence[Given]:
    try:
        return waiting.popleft()
    except IndexError:  # another thread took the last
        return ()


def _side_by_side(
    groups: Sequence[Sequence[Given]],
    work: Callable[[Worker, Given], Made],
    over: Callable[[], bool],
    limits: Limits,
    processes: int,
) -> Iterator[Made]:
    """What `work` makes of each, as it is made: a thread for each process, which waits for its answers. A group is one
    process's, in its order."""
    waiting, made, stop = deque(groups), SimpleQueue[tuple[Made] | BaseException | None](), Event()

    def serve() -> None:
        worker: Worker | None = None
        try:
            while not over() and (group := _next(waiting)):
                for given in group:
                    if over():
                        break
                    worker = worker or _BenchWorker(limits, stop)
                    made.put((work(worker, given),))
        except BaseException as error:
            made.put(error)
        finally:
            if worker:
                worker.close()
            made.put(None)

    threads = [Thread(target=serve, daemon=True) for _ in range(min(processes, len(groups)))]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            while (one := made.get()) is not None:
                if isinstance(one, BaseException):
                    raise KvconformError(f"the sweep cannot go on: {error_text(one)}") if isinstance(one, Lost) else one
                yield one[0]
    finally:
        stop.set()
        if any(thread.is_alive() for thread in threads):
            process.end_all()
        for thread in threads:
            thread.join(10)

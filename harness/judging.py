"""Asks clauses of an implementation: runs their programs, shrinks what fails, and gives one case a clause."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

from . import coverage, registry, saved
from .clause import Clause
from .errors import KvconformError
from .generate import programs
from .known import Known, listed
from .passes import PASSES
from .pool import Pool
from .program import Append, Program
from .registry import FOUNDATION
from .results import Case, Finding, finding_of
from .runner import blamed
from .saved import Saved
from .shrink import shrink
from .tolerance import Ratio, Tolerance
from .trial import Subject, Trial, Verdict, attempt
from .watchdog import Guard

AFTER_FAILURE = 10
"""Generated programs that are still run once one has failed, to see whether there is a second finding."""

PATIENCE = 5
"""Programs in a row that may be lost, and programs of one clause that may reach the time limit, before it is given up."""


@dataclass(frozen=True)
class Profile:
    """How much is asked. `examples` are generated programs a clause; `deadline` is a `time.monotonic()` to stop at."""

    name: str
    examples: int
    seed: int = 0
    shrink: bool = True
    stop_at_failure: bool = False
    deadline: float | None = None
    passes: int | None = None
    """Forward passes that a run may make, shared out among its clauses; None: any number."""
    fixed: int | None = None
    """At most so many of a clause's own programs; None: all."""
    spread: bool = False
    """Are those taken from all of them, evenly, rather than the first?"""
    saved: tuple[Saved, ...] = ()
    """Programs that failed before; they are run first."""
    known: tuple[Known, ...] = ()
    """Deviations that are known: they are neither shrunk nor do they end a clause."""

    @property
    def expired(self) -> bool:
        return PASSES.over or (self.deadline is not None and time.monotonic() > self.deadline)


PROFILES = {
    "quick": Profile("quick", examples=15),
    "default": Profile("default", examples=60),
    "thorough": Profile("thorough", examples=2000),
}


def judge_clauses(
    clauses: Sequence[Clause],
    subject: Subject,
    target: str,
    profile: Profile,
    began: Callable[[Clause], None] | None = None,
    doubt: Doubt | None = None,
) -> Iterator[Case]:
    """A case a clause; `doubt` is what is known already of those that all others rest on."""

    def ask(clause: Clause) -> Case:
        if doubt and doubt.about(clause):
            return Case(target, clause.id, subject.dtype_name, Verdict.INCONCLUSIVE, doubt.reason)
        return judge_clause(clause, subject, target, profile)

    yield from in_turn(clauses, ask, began)


def in_turn(
    clauses: Sequence[Clause], ask: Callable[[Clause], Case], began: Callable[[Clause], None] | None = None
) -> Iterator[Case]:
    """A case a clause, as `ask` gives it. An adapter that is wrong, a reference that does not hold against itself and another
    model than the reference's leave everything else inconclusive."""
    doubtful: Case | None = None
    doubt = Doubt()
    for place, clause in enumerate(clauses):
        PASSES.share(len(clauses) - place)
        if began:
            began(clause)
        case = replace(doubtful, clause=clause.id) if doubtful and doubt.about(clause) else ask(clause)
        doubt = doubt.after(clause, case)
        if doubt.reason:
            doubtful = doubtful or Case(case.target, "", case.dtype, Verdict.INCONCLUSIVE, doubt.reason)
        yield case


@dataclass(frozen=True)
class Doubt:
    """Why nothing more can be told, where a clause that all others rest on does not hold."""

    reason: str = ""
    family: str = ""

    def about(self, clause: Clause) -> bool:
        return bool(self.reason) and clause.family != self.family

    def after(self, clause: Clause, case: Case) -> Doubt:
        if self.reason or clause.family not in FOUNDATION or case.verdict not in (Verdict.FAILED, Verdict.INCONCLUSIVE):
            return self
        if case.findings and all(finding.op != "append" for finding in case.findings):
            return self  # tokens go in as they should: what a rollback or a fork makes of them is the cache's own
        return Doubt(f"{FOUNDATION[clause.family]}: {clause.id} {case.verdict}", clause.family)


def doubt_about(subject: Subject, target: str, profile: Profile, asked: Sequence[Clause]) -> Doubt:
    """What the clauses say that all others rest on, where they are not asked themselves; up to the first that does not
    hold, or that is lost."""
    doubt = Doubt()
    first = [clause for clause in registry.clauses() if clause.family in FOUNDATION and clause not in asked]
    for place, clause in enumerate(first):
        PASSES.share(len(first) - place + len(asked))
        case = judge_clause(clause, subject, target, replace(profile, shrink=False, saved=()))
        doubt = doubt.after(clause, case)
        if doubt.reason or case.verdict is Verdict.ERRORED:
            return replace(doubt, reason=f"{doubt.reason}: {case.reason}") if doubt.reason else doubt
    return doubt


def judge_clause(clause: Clause, subject: Subject, target: str, profile: Profile) -> Case:
    """Ask one clause. Where not even its programs can be made, for what the implementation says of itself raises, it is
    errored and the run goes on."""
    try:
        return _judged(clause, subject, target, profile)
    except KvconformError:
        raise
    except Exception as error:
        return Case(target, clause.id, subject.dtype_name, Verdict.ERRORED, blamed(error, "the harness or the adapter"))


class _Patience:
    """Says when a clause has lost so many programs that waiting for more tells nothing."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.hangs = guard.hangs

    @property
    def over(self) -> bool:
        return self.guard.streak >= PATIENCE or self.guard.hangs - self.hangs >= PATIENCE


def _judged(clause: Clause, subject: Subject, target: str, profile: Profile) -> Case:
    """Its fixed programs, then generated ones, then the shrinking of what failed."""
    started = time.monotonic()
    scope = subject.scope
    if reason := scope.missing(clause.needs):
        return Case(target, clause.id, subject.dtype_name, Verdict.UNSUPPORTED, reason)
    again = saved.programs(profile.saved, target, clause.id, subject.dtype_name, subject.given or "")
    drawn = clause.mix is not None and profile.examples > 0
    if not drawn and not again and next(iter(clause.fixed(scope)), None) is None:
        reason = "it is asked by generated programs only, and none were wanted"
        if clause.mix is None:
            reason = "it has none of the operations that the programs are made of"
        return Case(target, clause.id, subject.dtype_name, Verdict.UNSUPPORTED, reason)
    if clause.ready:
        clause.ready()
    patience = _Patience(subject.guard)

    def excused(trial: Trial) -> Known | None:
        return listed(profile.known, target, clause.id, subject.dtype_name, trial.op)

    trials = list(_trials(clause, subject, profile, patience, again, lambda trial: excused(trial) is None))
    given_up = patience.over
    failures: dict[object, list[Trial]] = {}
    for trial in trials:
        if trial.verdict is Verdict.FAILED:
            failures.setdefault(trial.identity, []).append(trial)

    def finding(alike: list[Trial]) -> Finding:
        first = alike[0] if profile.shrink else min(alike, key=_size)
        entry = excused(first)
        shown = first if entry or not profile.shrink else _smallest(clause, subject, first, patience, profile)
        name, marks = subject.dtype_name, scope.landmarks
        made = finding_of(shown, target, clause.id, name, first, len(alike), marks, subject.given)
        return replace(made, known=entry.told) if entry else made

    findings = tuple(map(finding, failures.values()))
    worst = max(trials, key=lambda trial: trial.difference, default=None)
    verdict, reason = _verdict(trials)
    if given_up and verdict is Verdict.ERRORED and len(trials) > 1:
        reason = f"given up after {len(trials)} programs: {reason}"
    pool = sum((trial.pool for trial in trials if trial.pool is not None), Pool())
    if pool.positions and verdict is Verdict.PASSED:
        verdict, reason = pooled(pool, subject.tolerance(clause.judged))
        if verdict is Verdict.FAILED and (entry := listed(profile.known, target, clause.id, subject.dtype_name, "append")):
            verdict, reason = Verdict.KNOWN, entry.told
    if verdict is Verdict.FAILED and findings and all(found.known for found in findings):
        others = [trial for trial in trials if trial.verdict is not Verdict.FAILED]
        verdict, reason = _verdict(others) if others else (Verdict.PASSED, "")
        if verdict is not Verdict.ERRORED:
            verdict, reason = Verdict.KNOWN, findings[0].known
    if verdict is Verdict.PASSED and profile.expired:
        reason = f"cut short by the budget after {len(trials)} programs" + (f"; {reason}" if reason else "")
    first = next((number for number, trial in enumerate(trials, 1) if trial.verdict is Verdict.FAILED), None)
    return Case(
        target=target,
        clause=clause.id,
        dtype=subject.dtype_name,
        verdict=verdict,
        reason=reason,
        programs=len(trials),
        conclusive=sum(trial.verdict in (Verdict.PASSED, Verdict.FAILED) for trial in trials),
        positions=sum(trial.positions for trial in trials),
        flips=sum(trial.flips for trial in trials),
        largest=worst.difference if worst else 0.0,
        allowed=worst.allowance.allowed if worst and worst.allowance else None,
        tolerance=str(worst.allowance.tolerance) if worst and worst.allowance else "",
        noise=pool.noise_size if pool.positions else None,
        deviation=pool.deviation if pool.positions else None,
        ratio=pool.ratio if pool.positions else None,
        usual=pool.usual if pool.positions else None,
        seconds=time.monotonic() - started,
        examples_to_failure=first,
        findings=findings,
        replayed=tuple((str(trial.program), REPLAYED.get(trial.verdict, "ERROR")) for trial in trials[: len(again)]),
        pairs=dict(coverage.pairs(trial.program for trial in trials)),
        relations=dict(coverage.relations((trial.program for trial in trials), scope)),
    )


REPLAYED = {
    Verdict.PASSED: "FIXED",
    Verdict.FAILED: "FAILED",
    Verdict.UNSUPPORTED: "UNSUPPORTED",
    Verdict.INCONCLUSIVE: "INCONCLUSIVE",
}
"""What has become of a program that failed before."""


def _verdict(trials: list[Trial]) -> tuple[Verdict, str]:
    """One verdict for a clause: failed before errored, and inconclusive where too few programs could tell."""
    by_verdict = {verdict: [trial for trial in trials if trial.verdict is verdict] for verdict in Verdict}
    if failed := by_verdict[Verdict.FAILED]:
        return Verdict.FAILED, max(failed, key=lambda trial: trial.difference).detail
    if lost := by_verdict[Verdict.ERRORED]:
        how_many = f"{len(lost)} of {len(trials)} programs: " if len(lost) < len(trials) else ""
        return Verdict.ERRORED, how_many + lost[0].detail
    passed, unclear = by_verdict[Verdict.PASSED], by_verdict[Verdict.INCONCLUSIVE]
    if unclear and len(unclear) > len(passed):
        return Verdict.INCONCLUSIVE, f"{len(unclear)} of {len(trials)} programs cannot tell: {unclear[0].detail}"
    if passed:
        return Verdict.PASSED, max(passed, key=lambda trial: trial.difference).detail
    if by_verdict[Verdict.UNSUPPORTED]:
        return Verdict.UNSUPPORTED, by_verdict[Verdict.UNSUPPORTED][0].detail
    return Verdict.INCONCLUSIVE, "no program ran"


def pooled(pool: Pool, tolerance: Tolerance) -> tuple[Verdict, str]:
    """The verdict on all programs of a clause under a ratio; with few positions, between the bounds is wider."""
    assert isinstance(tolerance, Ratio)
    told = f"error {pool.ratio:.3g} × the noise over {pool.positions} positions"
    found = [(pool.ratio, tolerance.bounds(pool.positions))]
    if math.isfinite(tolerance.usual(pool.positions)[0]):
        told += f", {pool.usual:.3g} × at the usual one"
        found.append((pool.usual, tolerance.usual(pool.positions)))
    allowed = " and ".join(f"{passes:g} ×" for _, (passes, _) in found)
    if any(ratio > fails for ratio, (_, fails) in found):
        return Verdict.FAILED, f"{told}; allowed {allowed}"
    if all(ratio < passes for ratio, (passes, _) in found):
        return Verdict.PASSED, told
    beyond = " and ".join(f"{fails:g} ×" for _, (_, fails) in found)
    return Verdict.INCONCLUSIVE, f"{told}: passes below {allowed}, fails above {beyond}"


def _trials(
    clause: Clause,
    subject: Subject,
    profile: Profile,
    patience: _Patience,
    again: Sequence[Program],
    news: Callable[[Trial], bool],
) -> Iterator[Trial]:
    """What failed before, then fixed programs, then generated ones.

    Ends early at a failure that is `news` where only the first counts, at the deadline, and out of patience.
    """

    def last(trial: Trial) -> bool:
        return profile.stop_at_failure and trial.verdict is Verdict.FAILED and news(trial)

    for program in (*again, *_some(clause.fixed(subject.scope), profile)):
        trial = attempt(clause.check, program, subject, clause.judged)
        yield trial
        if profile.expired or patience.over or last(trial):
            return
    if clause.mix is None or not profile.examples:
        return
    ran: list[Trial] = []
    failed_at: list[int] = []
    ended: list[Program] = []

    def enough(program: Program) -> bool:
        if patience.over:  # Hypothesis runs the last program again
            return True
        trial = attempt(clause.check, program, subject, clause.judged)
        ran.append(trial)
        if trial.verdict is Verdict.FAILED and news(trial):
            failed_at.append(len(ran))
        late = bool(failed_at) and len(ran) - failed_at[0] >= AFTER_FAILURE
        over = patience.over or profile.expired or late or last(trial)
        if over:
            ended.append(program)
        return over

    draw_until(enough, clause, subject, profile)
    yield from ran


def _some(own: Iterable[Program], profile: Profile) -> Iterable[Program]:
    """As many of a clause's own programs as the profile wants."""
    if not profile.spread or profile.fixed is None or profile.fixed < 2:
        return islice(own, profile.fixed)
    every = list(own)
    last, steps = len(every) - 1, profile.fixed - 1
    return [every[place] for place in dict.fromkeys(round(step * last / steps) for step in range(steps + 1))] if every else []


def draw_until(enough: Callable[[Program], bool], clause: Clause, subject: Subject, profile: Profile) -> None:
    """Let Hypothesis draw programs of a clause until `enough` says so or the profile's number is reached."""
    from hypothesis import HealthCheck, Phase, find, settings
    from hypothesis.errors import NoSuchExample

    assert clause.mix is not None
    chosen = settings(
        max_examples=profile.examples,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    try:
        find(
            programs(subject.scope, clause.mix),
            enough,
            settings=chosen,
            random=Random(f"{profile.seed} {clause.id}"),
        )
    except NoSuchExample:
        return


def _size(trial: Trial) -> tuple[bool, bool, int, int]:
    """How little a failing program needs, where it is not shrunk: one row, one token, few ops, few tokens."""
    op = trial.program.ops[trial.step] if trial.step is not None and trial.step < len(trial.program.ops) else None
    rows = op.rows if isinstance(op, Append) else ()
    return len(rows) > 1, max(map(len, rows), default=0) > 1, len(trial.program.ops), len(str(trial.program))


def smallest(clause: Clause, subject: Subject, program: Program, profile: Profile) -> Trial:
    """The trial of the smallest program found, by the profile's deadline, that fails as this one does."""
    trial = attempt(clause.check, program, subject, clause.judged)
    return _smallest(clause, subject, trial, _Patience(subject.guard), profile) if trial.verdict is Verdict.FAILED else trial


def _smallest(clause: Clause, subject: Subject, trial: Trial, patience: _Patience, profile: Profile) -> Trial:
    """The trial of the shrunk program. One that does not fail again as it did is reported as it was, and said so."""

    def again(program: Program) -> Trial:
        return attempt(clause.check, program, subject, clause.judged)

    repeated = again(trial.program)
    if repeated.verdict is Verdict.ERRORED:
        return replace(trial, detail=f"{trial.detail} (not shrunk, for when repeated: {repeated.detail})")
    if repeated.identity != trial.identity:
        return replace(trial, detail=f"{trial.detail} (it did not fail again when repeated: it is not deterministic)")

    def same(program: Program) -> bool:
        return not patience.over and not profile.expired and again(program).identity == trial.identity

    smallest = again(shrink(trial.program, same, subject.scope))
    if smallest.verdict is Verdict.ERRORED:
        return repeated
    if smallest.identity != trial.identity:
        return replace(trial, detail=f"{trial.detail} (it failed again, and then not: it is not deterministic)")
    return smallest

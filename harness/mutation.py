"""Proves that the checks can fail: injects every fault, and asks which clause catches it and how soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from .clause import Clause
from .diagnosis.diagnose import Diagnoser
from .errors import Unsupported
from .fault import Fault, Kind
from .implementation import Implementation
from .judging import Profile, judge_clause
from .oracle import Oracle
from .results import Case, content_id
from .target import Resolved
from .tolerance import Band
from .trial import Judged, Subject, Trial, Verdict, attempt


class Outcome(StrEnum):
    CAUGHT = "caught"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"
    PROVED = "proved equivalent"
    PASSED = "passed"
    FLAGGED = "flagged"
    ERRORED = "errored"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Mutant:
    """A fault or control on one model: what became of it. `examples` are the programs run until it was caught; `named`,
    where that was asked, whether its diagnosis is right, and how sure it is."""

    target: str
    fault: str
    kind: Kind
    family: str
    listed: str
    outcome: Outcome
    clause: str = ""
    examples: int | None = None
    detail: str = ""
    named: str = ""

    @property
    def id(self) -> str:
        return content_id("mutant", self.target, self.fault)


@dataclass(frozen=True)
class Base:
    """A model that faults are injected into."""

    target: str
    model: str
    implementation: Implementation
    oracle: Oracle


def mutants(
    bases: Sequence[Base],
    faults: Sequence[Fault],
    clauses: Sequence[Clause],
    profile: Profile,
    began: Callable[[str], None] | None = None,
    diagnosed: bool = False,
) -> Iterator[Mutant]:
    """Every fault and control on every model that it applies to; with `diagnosed` also whether its name is found."""
    chosen = replace(profile, shrink=False, stop_at_failure=True)
    for fault in faults:
        for base in bases:
            if began:
                began(f"{fault.name} on {base.target}")
            yield _mutant(base, fault, clauses, chosen, diagnosed)


def _mutant(base: Base, fault: Fault, clauses: Sequence[Clause], profile: Profile, diagnosed: bool) -> Mutant:
    empty = Mutant(base.target, fault.name, fault.kind, fault.family, fault.clause, Outcome.NOT_APPLICABLE)
    try:
        implementation = fault.inject(base.implementation)
    except Unsupported as reason:
        return replace(empty, detail=str(reason))
    oracle = base.oracle if fault.spoil is None else Oracle(fault.spoil(base.oracle.reference), base.oracle.dtype)
    subject = Subject(implementation, oracle)
    if fault.kind is not Kind.FAULT:
        return _control(empty, subject, clauses, profile)
    if base.model in fault.equivalent:
        return _proved(empty, subject, fault.equivalent[base.model], clauses, profile)
    found, caught = _fault(empty, subject, fault, clauses, profile, own=not fault.models or base.model in fault.models)
    if not diagnosed or caught is None or not caught.findings:
        return found
    resolved = Resolved(implementation, oracle.reference, carrier=base.implementation)
    told = Diagnoser(resolved, subject, clauses=clauses).finding(caught.findings[0]).diagnosis
    right = told is not None and fault.diagnosis in (told.sentence, *told.candidates)
    return replace(found, named=f"right: {told.confidence}" if told and right else f"wrong: {told or 'nothing is told'}")


def _control(empty: Mutant, subject: Subject, clauses: Sequence[Clause], profile: Profile) -> Mutant:
    cases = [judge_clause(clause, subject, empty.target, profile) for clause in clauses]
    for verdict, outcome in ((Verdict.FAILED, Outcome.FLAGGED), (Verdict.ERRORED, Outcome.ERRORED)):
        if bad := [case for case in cases if case.verdict is verdict]:
            return replace(empty, outcome=outcome, clause=bad[0].clause, detail=bad[0].reason)
    unclear = [case for case in cases if case.verdict is Verdict.INCONCLUSIVE]
    if unclear or not any(case.verdict is Verdict.PASSED for case in cases):
        detail = f"{unclear[0].clause} cannot be told: {unclear[0].reason}" if unclear else "no clause could judge it"
        return replace(empty, outcome=Outcome.ERRORED, detail=detail)
    return replace(empty, outcome=Outcome.PASSED, examples=sum(case.programs for case in cases))


def _proved(empty: Mutant, subject: Subject, reason: str, clauses: Sequence[Clause], profile: Profile) -> Mutant:
    """A cell that is declared equivalent must pass everything, or the declaration is wrong."""
    found = _control(empty, subject, clauses, profile)
    if found.outcome is Outcome.PASSED:
        return replace(found, outcome=Outcome.PROVED, detail=reason)
    if found.outcome is Outcome.ERRORED:
        return found
    return replace(found, outcome=Outcome.SURVIVED, detail=f"declared equivalent ({reason}), and it shows: {found.detail}")


def _fault(
    empty: Mutant, subject: Subject, fault: Fault, clauses: Sequence[Clause], profile: Profile, own: bool
) -> tuple[Mutant, Case | None]:
    """What became of a fault, and the case that caught it."""
    family = sorted(
        (clause for clause in clauses if clause.family == fault.clause_family), key=lambda clause: clause.id != fault.clause
    )
    cases: list[Case] = []
    for clause in family:
        case = judge_clause(clause, subject, empty.target, profile)
        cases.append(case)
        # Of a reference that proves nothing the clause can only say that nothing can be told.
        unclear = fault.spoil is not None and clause.id == fault.clause and case.verdict is Verdict.INCONCLUSIVE
        if case.verdict is Verdict.FAILED or unclear:
            programs = sum(one.examples_to_failure or one.programs for one in cases)
            caught = replace(empty, outcome=Outcome.CAUGHT, clause=clause.id, examples=programs, detail=case.reason)
            return caught, case
    if errored := [case for case in cases if case.verdict is Verdict.ERRORED]:
        return replace(empty, outcome=Outcome.ERRORED, clause=errored[0].clause, detail=errored[0].reason), None
    others = [judge_clause(clause, subject, empty.target, profile) for clause in clauses if clause not in family]
    outside = [case for case in others if case.verdict is Verdict.FAILED]
    if outside and not own:
        detail = f"caught outside of its family: {outside[0].reason}"
        return replace(empty, outcome=Outcome.CAUGHT, clause=outside[0].clause, detail=detail), outside[0]
    if outside:
        detail = f"caught by {outside[0].clause} only, which is not of the family that must catch it"
        return replace(empty, outcome=Outcome.SURVIVED, detail=detail), None
    if _changes_anything(subject, [*family, *(c for c in clauses if c not in family)]):
        return replace(empty, outcome=Outcome.SURVIVED, detail="it moves logits, and no clause says so"), None
    if not own:  # somebody's model, of which the catalogue cannot know
        detail = f"it changes nothing on any program, in {subject.dtype_name}"
        return replace(empty, outcome=Outcome.PROVED, detail=detail), None
    return replace(empty, outcome=Outcome.EQUIVALENT, detail="it changes nothing on any program"), None


def _changes_anything(subject: Subject, clauses: Sequence[Clause]) -> bool:
    """Does any fixed program of any clause show more than rounding?"""
    trials: list[Trial] = [
        attempt(clause.check, program, subject, Judged.ALL)
        for clause in clauses
        if subject.scope.missing(clause.needs) is None
        for program in clause.fixed(subject.scope)
    ]
    return any(trial.allowance is not None and trial.allowance.band(trial.difference) is not Band.ROUNDING for trial in trials)


def judgement(found: Sequence[Mutant]) -> list[str]:
    """What is wrong with the check or the catalogue, a line each; nothing where all is well."""
    wrong = [f"{m.fault} survives on {m.target}: {m.detail}" for m in found if m.outcome is Outcome.SURVIVED]
    wrong += [f"{m.kind} {m.fault} is flagged on {m.target} by {m.clause}" for m in found if m.outcome is Outcome.FLAGGED]
    by_fault: dict[str, list[Mutant]] = {}
    for mutant in found:
        if mutant.kind is Kind.FAULT:
            by_fault.setdefault(mutant.fault, []).append(mutant)
    silent = (Outcome.EQUIVALENT, Outcome.PROVED, Outcome.NOT_APPLICABLE)
    for name, cells in by_fault.items():
        ran = [cell for cell in cells if cell.outcome is not Outcome.NOT_APPLICABLE]
        alone = len(ran) == 1 and ran[0].outcome is Outcome.PROVED  # one model on which it cannot show
        if ran and not alone and all(cell.outcome in silent for cell in ran):
            wrong.append(f"{name} is equivalent on every model: it changes nothing, so it is no fault")
        for cell in cells:
            if cell.outcome is Outcome.EQUIVALENT and not all(c.outcome in silent for c in cells):
                wrong.append(f"{name} changes nothing on {cell.target}, and the catalogue does not say why")
    return wrong


def tried(found: Sequence[Mutant]) -> tuple[int, int]:
    """How many faults could be injected into any of the models, and of how many."""
    faults = [mutant for mutant in found if mutant.kind is Kind.FAULT]
    names = {mutant.fault for mutant in faults}
    return len(names & {mutant.fault for mutant in faults if mutant.outcome is not Outcome.NOT_APPLICABLE}), len(names)


def exit_code(found: Sequence[Mutant]) -> int:
    """0 where every fault that could be tried is caught and every control passes; 1 where not; 2 where something errored,
    or where faults were asked for and none could be tried, which proves nothing."""
    if judgement(found):
        return 1
    ran = [mutant for mutant in found if mutant.outcome is not Outcome.NOT_APPLICABLE]
    could, asked = tried(found)
    return 2 if not ran or (asked and not could) or any(mutant.outcome is Outcome.ERRORED for mutant in ran) else 0

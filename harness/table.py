"""The failure table: for each implementation, what a cache bug does to logits and what it does to the text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from .clause import Clause
from .diagnosis.diagnose import Diagnoser
from .fault import Fault, Kind
from .judging import Profile, judge_clause
from .match import logits_match
from .noise import ratio_match
from .program import Program, Row
from .results import Case
from .runner import Divergence, Step, execute
from .scenario import GENERATED, Scenario, free_reference, free_run, scenario
from .shapes import read_broadcast
from .target import Sample
from .tolerance import Ratio
from .trial import Judged, Subject, Trial, Verdict, judge


class Danger(StrEnum):
    """How large a deviation is, times how well it hides."""

    NONE = "—"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    VERY_HIGH = "very high"


AT_ONCE = 8
"""A text that changes among its first so many tokens changes at once."""
LITTLE = GENERATED // 4
"""A text of which fewer tokens change than this changes little."""


@dataclass(frozen=True)
class TableRow:
    """One implementation. Token indices count from 0 in the watched cache; `changed` is of `generated` greedy tokens."""

    target: str
    kind: Kind
    sentence: str
    scenario: str
    verdict: Verdict
    first_token: int | None
    first_call: int | None
    prefill: float | None
    incremental: float | None
    flips: int
    positions: int
    generated: int
    changed: int | None
    first_changed: int | None
    text: str
    reference_text: str
    error: str
    diagnosis: str
    danger: Danger
    clause: str
    override: str
    ended_by: str = ""
    """The divergence that left no figures to compare, as raised or not finite; nothing where there was none."""
    ended_in: str = ""
    """Where that was: prefill or incremental."""

    @property
    def as_expected(self) -> bool:
        """A fault is caught, everything else passes."""
        return self.verdict is (Verdict.FAILED if self.kind is Kind.FAULT else Verdict.PASSED)


def danger(verdict: Verdict, divergence: Divergence | None, changed: int | None, first_changed: int | None) -> Danger:
    """The rule: an error is low; a text that changes at once is medium; one that changes late or little is high; a
    deviation that leaves the text as it was, or a call that should have been refused and was not, is very high."""
    if verdict is not Verdict.FAILED:
        return Danger.NONE
    if divergence is Divergence.RAISED:
        return Danger.LOW
    if divergence is Divergence.ACCEPTED or not changed or first_changed is None:
        return Danger.VERY_HIGH
    return Danger.MEDIUM if first_changed < AT_ONCE and changed >= LITTLE else Danger.HIGH


def table_row(
    target: str,
    fault: Fault,
    subject: Subject,
    sample: Sample,
    clauses: Sequence[Clause],
    profile: Profile,
    diagnoser: Diagnoser,
) -> tuple[TableRow, list[Case]]:
    """The row of one implementation, with the cases by which its verdict was reached."""
    chosen = scenario(fault.scenario, sample, subject.scope)
    trial, watched = _teacher_forced(chosen, subject, sample)
    cases = _contract(target, fault, subject, clauses, profile)
    caught = next((case for case in cases if case.verdict is Verdict.FAILED), None)
    verdict = trial.verdict if trial.verdict is not Verdict.PASSED else _together(cases)

    reference_text = free_reference(subject.oracle, sample.prompt)
    written = free_run(subject.implementation, chosen) if chosen.name != "limit" else None
    pairs = list(zip(written or (), reference_text, strict=False))
    first_changed = next((index for index, (got, wanted) in enumerate(pairs) if got != wanted), None)
    changed = None if written is None else _changed(written, reference_text)
    error = trial.detail if trial.divergence in (Divergence.RAISED, Divergence.ACCEPTED) else ""
    figures = [(step.first + at, gap) for step in watched for at, gap in enumerate(_gaps(step))]
    prompt = len(sample.prompt) if chosen.name != "limit" else (subject.scope.max_length or 0) - 1
    ended = trial.divergence is not None and trial.divergence is not Divergence.LOGITS
    row = TableRow(
        target=target,
        kind=fault.kind,
        sentence=fault.sentence,
        scenario=chosen.name,
        verdict=verdict,
        first_token=trial.token if trial.verdict is Verdict.FAILED else None,
        first_call=_call(trial, chosen),
        prefill=_worst(gap for place, gap in figures if place < prompt),
        incremental=_worst(gap for place, gap in figures if place >= prompt),
        flips=sum(step.comparison.flips for step in watched if step.comparison),
        positions=len(figures),
        generated=GENERATED,
        changed=changed,
        first_changed=first_changed,
        text=sample.decode(written or ()),
        reference_text=sample.decode(reference_text),
        error=error,
        diagnosis=_diagnosis(trial, caught, diagnoser),
        danger=danger(verdict, trial.divergence, changed, first_changed),
        clause=caught.clause if caught else "",
        override=fault.override,
        ended_by=str(trial.divergence) if ended else "",
        ended_in=("prefill" if (trial.token or 0) < prompt else "incremental") if ended else "",
    )
    return row, cases


def _diagnosis(trial: Trial, caught: Case | None, diagnoser: Diagnoser) -> str:
    """What the row's bug is called: by the scenario up to where it first shows, else by what a clause found."""
    if trial.verdict is Verdict.FAILED and trial.step is not None and trial.divergence is not None:
        start = Program(trial.program.ops[: trial.step + 1])
        asked = next(clause for clause in diagnoser.clauses if clause.check is logits_match)
        asked = next((clause for clause in diagnoser.clauses if caught and clause.id == caught.clause), asked)
        asked = replace(asked, check=logits_match)
        told = diagnoser.program(asked, start, trial.divergence, trial.step)
    else:
        told = diagnoser.finding(caught.findings[0]).diagnosis if caught and caught.findings else None
    shapes = read_broadcast(trial.detail)
    name = (told.sentence or str(told)) if told else ""
    return "; ".join(filter(None, (name, str(shapes or "")))) or "—"


def _worst(gaps: Iterable[float]) -> float | None:
    """The largest of them; NaN is larger than any."""
    return max(gaps, key=lambda gap: math.inf if math.isnan(gap) else gap, default=None)


def _teacher_forced(chosen: Scenario, subject: Subject, sample: Sample) -> tuple[Trial, list[Step]]:
    """The scenario's program with the sample's continuation, and the steps that the table shows."""
    program = chosen.program(() if chosen.name == "limit" else sample.continuation)
    steps = [
        step
        for step in execute(program, subject.implementation, subject.oracle, exact=subject.implementation.exact_prefill)
        if step.divergence or (step.comparison and chosen.counts(step.index, step.op))
    ]
    tolerance = subject.tolerance(Judged.ALL)
    if isinstance(tolerance, Ratio):
        return ratio_match(program, subject, Judged.ALL, tolerance), steps
    return judge(program, steps, tolerance, subject, Judged.ALL), steps


def _contract(target: str, fault: Fault, subject: Subject, clauses: Sequence[Clause], profile: Profile) -> list[Case]:
    """Everything for what must pass; for a fault the clauses of the family that must catch it, until one does."""
    if fault.kind is not Kind.FAULT:
        return [judge_clause(clause, subject, target, profile) for clause in clauses]
    family = sorted((c for c in clauses if c.family == fault.clause_family), key=lambda clause: clause.id != fault.clause)
    cases: list[Case] = []
    for clause in family:
        cases.append(judge_clause(clause, subject, target, profile))
        if cases[-1].verdict is Verdict.FAILED:
            break
    return cases


def _together(cases: list[Case]) -> Verdict:
    """The worst verdict of several cases; passed where something passed and nothing is worse."""
    for verdict in (Verdict.FAILED, Verdict.ERRORED, Verdict.INCONCLUSIVE, Verdict.PASSED):
        if any(case.verdict is verdict for case in cases):
            return verdict
    return Verdict.UNSUPPORTED


def _gaps(step: Step) -> tuple[float, ...]:
    return step.comparison.differences if step.comparison else ()


def _changed(written: Row, wanted: Row) -> int:
    """Tokens that differ; those that an error kept from being written count too."""
    return sum(got != due for got, due in zip(written, wanted, strict=False)) + len(wanted) - len(written)


def _call(trial: Trial, chosen: Scenario) -> int | None:
    """The first bad call to the watched cache, 0 being the first that counts."""
    if trial.verdict is not Verdict.FAILED or trial.step is None:
        return None
    counted = [index for index, op in enumerate(trial.program.ops) if chosen.counts(index, op) and op.kind == "append"]
    return counted.index(trial.step) if trial.step in counted else None

"""Diagnosis by simulation: the failing program is run on the reference with each known fault, and the logits that come
out are held against those that the implementation gave."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from weakref import WeakKeyDictionary

from ..clause import Clause
from ..errors import AdapterError, KvconformError, Unsupported
from ..fault import Fault, Form, Kind
from ..implementation import Implementation
from ..match import logits_match
from ..oracle import Oracle
from ..program import Program
from ..runner import Divergence
from ..trial import READ_NO_CACHE, Subject, Trial, Verdict, attempt
from .battery import battery, beyond
from .diagnosis import Confidence, Diagnosis
from .fit import Fit, fit
from .mistakes import history_forms
from .outcome import Given, given
from .relevance import could_show, same_ops
from .suspect import CONFIRMED, EVIDENT, Suspect, told

BUDGET, PATIENCE = 4.0, 120.0
"""Seconds of computing, and of waiting, that one finding may take; what was not tried by then is told."""
FOR_MORE = 0.4
"""What of the computing is left for further programs where the finding's own has a match."""
FAMILY, OWN, ALL = range(3)
"""How widely forms are tried: the catalogue's of the clause's family, all of the catalogue, every form."""
ASKED_OF_CLAUSE = 4
"""Further programs that a clause's own check is asked about."""
ASKED = 10
"""Programs that a hypothesis is asked of besides the finding's."""


_SPOILED: WeakKeyDictionary[Oracle, Diagnosis | None] = WeakKeyDictionary()


@dataclass(frozen=True)
class Deadline:
    """Computing is counted by the processor's time, lest a busy machine makes a diagnosis less sure."""

    computed: float
    waited: float
    kept: float = 0.0
    """Seconds of computing that are kept for what comes behind."""

    @classmethod
    def after(cls, computing: float, waiting: float) -> Deadline:
        return cls(time.process_time() + computing, time.monotonic() + waiting, FOR_MORE * computing)

    @property
    def near(self) -> bool:
        return self.passed or time.process_time() > self.computed - self.kept

    @property
    def passed(self) -> bool:
        return time.process_time() > self.computed or time.monotonic() > self.waited


@dataclass
class Simulator:
    """Names the bugs of one implementation in one precision. Remembers what it gave, for the next finding."""

    subject: Subject
    carrier: Implementation | None
    faults: Mapping[str, Fault]
    clauses: Sequence[Clause]
    budget: float = BUDGET
    patience: float = PATIENCE
    asked: int = ASKED
    quick: bool = False
    """Faults as the catalogue has them, of the clause's family first: all else is tried only where none is certain."""
    _given: dict[Program, Given | None] = field(default_factory=dict[Program, "Given | None"])
    _known: list[str] = field(default_factory=list[str])

    def diagnose(
        self, clause: Clause, program: Program, divergence: Divergence, step: int, found_in: Program | None = None
    ) -> Diagnosis | None:
        """The bug that a finding shows, or None where no known one gives these logits. `found_in` is the program that
        failed before it was shrunk."""
        deadline = Deadline.after(self.budget, self.patience)
        if spoiled := self._spoiled():
            return spoiled
        found = self.run(program)
        trial = None
        if clause.check is not logits_match:
            trial = replace(attempt(clause.check, program, self.subject, clause.judged), divergence=divergence)
        made = None
        for width in (FAMILY, OWN, ALL) if self.quick else (ALL,):
            suspects, margin, tried, left = self._first(found, clause, program, trial, deadline, width)
            suspects = self._asked(suspects, found, clause, program, divergence, step, found_in, deadline)
            made = told(suspects, divergence, margin, tried, left) if suspects else made
            if made is not None and made.confidence in (Confidence.CERTAIN, Confidence.LIKELY):
                break
        if made is not None and made.confidence in (Confidence.CERTAIN, Confidence.LIKELY):
            self._known.insert(0, made.sentence)
        return made

    def _asked(
        self,
        suspects: list[Suspect],
        found: Given | None,
        clause: Clause,
        program: Program,
        divergence: Divergence,
        step: int,
        found_in: Program | None,
        deadline: Deadline,
    ) -> list[Suspect]:
        """What is left of the suspects of the finding's program once others have been asked."""
        if any(suspect.fit.texts for suspect in suspects):  # the same words tell more than another error at the same op
            suspects = [suspect for suspect in suspects if suspect.explained or suspect.texts]
        if divergence is Divergence.ACCEPTED:
            suspects = self._beyond(suspects, found, beyond(program, step))
        if divergence not in EVIDENT and clause.check not in READ_NO_CACHE:
            by_logits = [suspect for suspect in suspects if suspect.explained or clause.check is logits_match]
            self._ask_more(by_logits, program, found_in, deadline)
            self._ask_clause([suspect for suspect in suspects if suspect not in by_logits], clause, program, deadline)
        if divergence is Divergence.LENGTH:  # a number alone is explained by too much
            suspects = [suspect for suspect in suspects if suspect.refuted is None]
        return suspects

    @property
    def _noise(self) -> Implementation | None:
        """The carrier where its arithmetic is as noisy: a fault of single calls is then no noise."""
        carrier, judged = self.carrier, self.subject.implementation
        alike = carrier is not None and (carrier.noisy, carrier.lossy, carrier.dtype) == (
            judged.noisy,
            judged.lossy,
            judged.dtype,
        )
        return carrier if alike else None

    def _spoiled(self) -> Diagnosis | None:
        """The clauses that ask the reference itself name what is wrong with it: asked once for each oracle."""
        if self.subject.oracle not in _SPOILED:
            _SPOILED[self.subject.oracle] = self._asked_of_reference()
        return _SPOILED[self.subject.oracle]

    def _asked_of_reference(self) -> Diagnosis | None:
        for clause in self.clauses:
            named = [fault for fault in self.faults.values() if fault.spoil is not None and fault.clause == clause.id]
            for program in clause.fixed(self.subject.scope) if named else ():
                if attempt(clause.check, program, self.subject, clause.judged).verdict in (
                    Verdict.FAILED,
                    Verdict.INCONCLUSIVE,
                ):
                    basis = f"{clause.id} asks the reference for just this, without the implementation"
                    return Diagnosis(Confidence.CERTAIN, named[0].name, named[0].diagnosis, basis=basis)
        return None

    def run(self, program: Program) -> Given | None:
        """What the implementation gives on a program, remembered; None where it cannot be run."""
        if program not in self._given:
            try:
                self._given[program] = given(program, self.subject, noise=self._noise)
            except (AdapterError, Unsupported, KvconformError):
                self._given[program] = None
        return self._given[program]

    def _forms(self, clause: Clause, program: Program) -> list[Form]:
        """Every form that could show in a program, the likely ones first, each once."""
        longest = max((len(row) for op in program.ops for row in getattr(op, "rows", ()) if isinstance(row, tuple)), default=1)
        found: list[Form] = []
        for fault in self.faults.values() if self.carrier else ():
            if fault.kind is Kind.FAULT and fault.spoil is None:
                assert self.carrier is not None
                found += fault.forms(self.carrier, program)
        found += history_forms(self.subject, longest)
        chosen = [form for form in found if could_show(form.scenario, program)]
        chosen.sort(key=lambda form: (form.diagnosis not in self._known, form.clause.partition(".")[0] != clause.family))
        return chosen

    def simulation(self, form: Form) -> Implementation | None:
        """A fresh simulation of a form; None where the carrier has no use for it."""
        try:
            return form.inject(self.carrier or self.subject.implementation)
        except Unsupported:
            return None

    def _width(self, form: Form, clause: Clause) -> int:
        return ALL if self._rank(form) else FAMILY if form.clause.partition(".")[0] == clause.family else OWN

    def _rank(self, form: Form) -> int:
        fault = self.faults.get(form.fault)
        return 0 if fault is not None and fault.diagnosis == form.diagnosis else 1 if form.clause else 2

    def _fit(self, form: Form, found: Given) -> Fit:
        simulation = self.simulation(form)
        return fit(found, simulation) if simulation else Fit(False)

    def _fit_again(self, form: Form, program: Program) -> Fit | None:
        """As `_fit`, with the program run twice on both: what an implementation keeps from one program to the next, a
        prompt for its prefixes say, is then the same."""
        simulation = self.simulation(form)
        try:
            given(program, self.subject, noise=self._noise)
            found = given(program, self.subject, noise=self._noise)
        except (AdapterError, Unsupported, KvconformError):
            return None
        if simulation is None:
            return None
        fit(found, simulation)
        return fit(found, simulation)

    def _first(
        self, found: Given | None, clause: Clause, program: Program, trial: Trial | None, deadline: Deadline, width: int
    ) -> tuple[list[Suspect], tuple[float, str], int, int]:
        """The forms that fit the finding's program, and how near the best of the others came."""
        suspects: list[Suspect] = []
        nearest, tried, useless = (math.inf, ""), 0, 0
        plain = Form("", "", lambda carrier: carrier)
        if trial is not None and self.carrier and self._checks(plain, clause, trial):
            return [], nearest, 0, 0
        if found is not None and self.carrier and (right := fit(found, self.carrier)).same and right.tells:
            return [], nearest, 0, 0  # it is what a right cache gives on these weights: no bug of a cache
        forms = [form for form in self._forms(clause, program) if width >= self._width(form, clause)]
        for form in forms:
            if deadline.near if suspects else deadline.passed:
                break
            simulation = self.simulation(form)
            if simulation is None:
                useless += 1
                continue
            tried += 1
            how = fit(found, simulation) if found and clause.check not in READ_NO_CACHE else Fit(True)
            if how.same and trial is not None and not how.explained:
                how = replace(how, same=self._checks(form, clause, trial), texts=how.texts + 1)
            if how.same and how.tells:
                rank = self._rank(form) - (form.clause == clause.id)  # what the clause is there for, before all else
                suspects.append(Suspect(form, how, rank, explained=how.explained, texts=how.texts))
            elif found and how.parted is not None and how.parted >= (found.first or 0) and how.distance < nearest[0]:
                nearest = (how.distance, form.diagnosis)
        if not suspects and found:
            again = [(form, self._fit_again(form, program)) for form in forms if form.scenario == "again"]
            suspects = [
                Suspect(form, how, self._rank(form), explained=how.explained)
                for form, how in again
                if how and how.same and how.tells
            ]
        best = {suspect.sentence for suspect in suspects}
        return suspects, nearest if nearest[1] not in best else (math.inf, ""), tried, len(forms) - tried - useless

    def _checks(self, form: Form, clause: Clause, trial: Trial) -> bool:
        """Does the clause's own check say of the simulation what it said of the implementation?"""
        simulation = self.simulation(form)
        if simulation is None:
            return False
        subject = Subject(simulation, self.subject.oracle)
        other = attempt(clause.check, trial.program, subject, clause.judged)
        if trial.divergence in EVIDENT:  # what differs from run to run may by chance not do so
            return any(
                one.divergence is trial.divergence
                for one in (other, *(attempt(clause.check, trial.program, subject, clause.judged) for _ in range(2)))
            )
        if other.identity != trial.identity or other.step != trial.step:
            return False
        if trial.divergence is Divergence.LENGTH and other.detail != trial.detail:
            return False
        if not trial.differences and not other.differences:
            return other.detail == trial.detail
        pairs = list(zip(trial.differences, other.differences, strict=False))
        return len(trial.differences) == len(other.differences) and all(
            at == place and math.isclose(gap, size, rel_tol=1e-2, abs_tol=1e-9) for (at, gap), (place, size) in pairs
        )

    def _beyond(self, suspects: list[Suspect], found: Given | None, program: Program) -> list[Suspect]:
        """What was accepted and should not have been is asked for its logits, which tell more than that it was."""
        if found is None or program == found.program:
            return suspects
        try:
            after = given(program, self.subject, allowed_as=found)
        except (AdapterError, Unsupported, KvconformError):
            return suspects
        chosen: list[Suspect] = []
        for suspect in suspects:
            how = self._fit(suspect.form, after)
            if how.same:
                chosen.append(replace(suspect, explained=suspect.explained + how.explained))
        return chosen or suspects

    def _ask_clause(self, suspects: list[Suspect], clause: Clause, about: Program, deadline: Deadline) -> None:
        """Where logits are right and a clause's own check is not: what it says of its other programs."""
        others = (program for program in clause.fixed(self.subject.scope) if program != about)
        for program in islice(others, ASKED_OF_CLAUSE if suspects else 0):
            if deadline.passed:
                return
            trial = attempt(clause.check, program, self.subject, clause.judged)
            for suspect in suspects:
                if not self._checks(suspect.form, clause, trial):
                    suspect.refuted = suspect.refuted or program
                elif trial.verdict is Verdict.FAILED:
                    suspect.programs += 1

    def _ask_more(self, suspects: list[Suspect], about: Program, found_in: Program | None, deadline: Deadline) -> None:
        """Further programs are run on the implementation, until one suspect is left and has been confirmed."""
        asked, first = 0, [found_in] if found_in else []
        for program in (*first, *battery(self.subject.scope, self.clauses, about)):
            if program == about:
                continue
            alive = [suspect for suspect in suspects if suspect.refuted is None]
            sentences = {suspect.sentence for suspect in alive}
            told_apart = len(sentences) < 2 or asked >= 3 * self.asked
            enough = asked >= self.asked and told_apart and max((s.programs for s in alive), default=0) >= CONFIRMED
            if not alive or enough or deadline.passed:
                return
            found = self.run(program)
            if found is None:
                continue
            asked += 1
            for suspect in alive:
                how = self._fit(suspect.form, found)
                if not how.same and len(sentences) == 1:
                    how = self._fit_again(suspect.form, program) or how
                suspect.asked += 1
                if not how.same and same_ops(program, about):
                    suspect.refuted = program
                elif not how.same:
                    suspect.elsewhere = suspect.elsewhere or program
                elif how.tells:
                    suspect.programs += 1
                    suspect.explained += how.explained
                    suspect.texts += how.texts

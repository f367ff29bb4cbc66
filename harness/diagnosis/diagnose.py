"""A finding in, a diagnosis out: for whoever reads a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .. import registry
from ..clause import Clause
from ..errors import AdapterError, KvconformError, Unsupported
from ..fault import Fault
from ..implementation import Implementation
from ..program import Program
from ..results import Case, Finding
from ..runner import Divergence
from ..scope import unsupported
from ..target import Resolved
from ..trial import Subject
from .diagnosis import Confidence, Diagnosis
from .figures import PROBES, figures
from .simulate import ASKED, Simulator
from .symptoms import of_an_error, symptoms

HISTORIES_ONLY = "only mistaken histories were tried: no implementation is known that faults on these weights could be put into"


SAYS_ITSELF = (Divergence.SHAPE, Divergence.DTYPE)
"""What is wrong with the form of an answer is told by the finding; where it shows says nothing of a cache."""


class Diagnoser:
    """Names the bugs of one implementation in one precision."""

    def __init__(
        self,
        resolved: Resolved,
        subject: Subject,
        faults: Mapping[str, Fault] | None = None,
        clauses: Sequence[Clause] | None = None,
        asked: int = ASKED,
        quick: bool = False,
    ) -> None:
        """`asked`: programs by which a name is confirmed; `quick`: the first name that fits is taken."""
        self.subject = subject
        self.clauses = registry.clauses() if clauses is None else clauses
        carrier = _as(resolved.carrier or registry.carrier(resolved.reference), subject)
        known = registry.faults() if faults is None else faults
        self.simulator = Simulator(subject, carrier, known, self.clauses, asked=asked, quick=quick)

    def case(self, case: Case) -> Case:
        """The case with its findings diagnosed."""
        return replace(case, findings=tuple(self.finding(one) for one in case.findings)) if case.findings else case

    def finding(self, finding: Finding) -> Finding:
        clause = next(one for one in self.clauses if one.id == finding.clause)
        program, before = Program.parse(finding.program), Program.parse(finding.found_in)
        told = self.program(clause, program, Divergence(finding.divergence), finding.step, before, finding.detail)
        return replace(finding, diagnosis=told)

    def program(
        self,
        clause: Clause,
        program: Program,
        divergence: Divergence,
        step: int,
        found_in: Program | None = None,
        detail: str = "",
    ) -> Diagnosis | None:
        """What a failing program shows, or None where nothing can be told: a diagnosis never ends a run."""
        try:
            told = self.simulator.diagnose(clause, program, divergence, step, found_in)
            if (told is None or not told.sentence) and divergence not in SAYS_ITSELF:
                told = _beside(told, self._symptoms(program))
        except (AdapterError, KvconformError, Unsupported):
            return None
        if told and self.simulator.carrier is None:
            told = replace(told, basis="; ".join(filter(None, (told.basis, HISTORIES_ONLY))))
        error = of_an_error(detail) if divergence in (Divergence.RAISED, Divergence.REFUSAL) else None
        if error is None:
            return told
        told = told or Diagnosis(Confidence.SYMPTOMS)
        return replace(told, symptoms=(error[0], *told.symptoms), next_check=told.next_check or error[1])

    def _symptoms(self, program: Program) -> Diagnosis | None:
        """What can be told of a bug that no simulation gives."""
        found = self.simulator.run(program)
        if found is None or found.first is None:
            return None
        probes: dict[str, bool] = {}
        for name, probe in PROBES.items():
            if not unsupported(probe, self.subject.scope) and (ran := self.simulator.run(probe)):
                probes[name] = ran.first is not None
        seen = symptoms(program, figures(found), probes, self.subject.scope.landmarks)
        if not seen.seen:
            return None
        check = f"replay {seen.next_program!r}, the least that should show it" if seen.next_program else ""
        basis = "no simulation gives these logits"
        return Diagnosis(Confidence.SYMPTOMS, basis=basis, symptoms=seen.seen, suspects=seen.suspects, next_check=check)


def _beside(refuted: Diagnosis | None, seen: Diagnosis | None) -> Diagnosis | None:
    """What the figures show, with what the nearest simulation says."""
    if refuted is None or seen is None:
        return refuted or seen
    return replace(seen, basis=refuted.basis, suspects=(*seen.suspects, *refuted.suspects))


def _as(carrier: Implementation | None, subject: Subject) -> Implementation | None:
    """A carrier in the precision that is judged, or None where it has only another."""
    if carrier is None or carrier.dtype == subject.implementation.dtype:
        return carrier
    return carrier.to(subject.implementation.dtype) if "to" in carrier.capabilities else None

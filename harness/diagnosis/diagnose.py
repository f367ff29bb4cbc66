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
from ..target import Resolved
from ..trial import Subject
from .diagnosis import Diagnosis
from .simulate import ASKED, Simulator


class Diagnoser:
    """Names the bugs of one implementation in one precision."""

    def __init__(
        self,
        resolved: Resolved,
        subject: Subject,
        faults: Mapping[str, Fault] | None = None,
        clauses: Sequence[Clause] | None = None,
        asked: int = ASKED,
    ) -> None:
        """`asked`: programs by which a name is confirmed."""
        self.subject = subject
        self.clauses = registry.clauses() if clauses is None else clauses
        carrier = _as(resolved.carrier or registry.carrier(resolved.reference), subject)
        known = registry.faults() if faults is None else faults
        self.simulator = Simulator(subject, carrier, known, self.clauses, asked=asked)

    def case(self, case: Case) -> Case:
        """The case with its findings diagnosed."""
        return replace(case, findings=tuple(self.finding(one) for one in case.findings)) if case.findings else case

    def finding(self, finding: Finding) -> Finding:
        clause = next(one for one in self.clauses if one.id == finding.clause)
        program, before = Program.parse(finding.program), Program.parse(finding.found_in)
        return replace(finding, diagnosis=self.program(clause, program, Divergence(finding.divergence), finding.step, before))

    def program(
        self, clause: Clause, program: Program, divergence: Divergence, step: int, found_in: Program | None = None
    ) -> Diagnosis | None:
        """What a failing program shows, or None where nothing can be told: a diagnosis never ends a run."""
        try:
            return self.simulator.diagnose(clause, program, divergence, step, found_in)
        except (AdapterError, KvconformError, Unsupported):
            return None


def _as(carrier: Implementation | None, subject: Subject) -> Implementation | None:
    """A carrier in the precision that is judged, or None where it has only another."""
    if carrier is None or carrier.dtype == subject.implementation.dtype:
        return carrier
    return carrier.to(subject.implementation.dtype) if "to" in carrier.capabilities else None

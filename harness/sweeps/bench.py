"""What a sweep's worker holds: the model of the cell that it is asked about, and what its reference has given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .. import registry
from ..conformance import Guarding, subject
from ..diagnosis.diagnose import Diagnoser
from ..errors import KvconformError, Unsupported, UnsupportedTarget
from ..judging import Profile, judge_clause, smallest
from ..oracle import Oracle
from ..program import Program
from ..results import Case, Finding, finding_of
from ..runner import error_text
from ..sources import judged_by
from ..target import Resolved
from ..trial import Subject, Verdict


@dataclass(frozen=True)
class Asked:
    """A target in one dtype. Targets with the same `share` load the same model."""

    target: str
    dtype: str
    share: str = ""

    @property
    def key(self) -> str:
        return f"{self.target} {self.dtype}"


@dataclass(frozen=True)
class About:
    """What loading a cell gave: its tags, or why it cannot be asked."""

    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    verdict: Verdict | None = None
    reason: str = ""


class Bench:
    """Loads what cells ask for and judges it. Cells that share a model share what its reference gave."""

    def __init__(self) -> None:
        self.share = ""
        self.oracles: dict[tuple[str, str], Oracle] = {}
        self.held: tuple[Asked, Resolved, Subject] | None = None

    def about(self, asked: Asked) -> About:
        """Load a cell, and say of what kind it is."""
        try:
            return About(dict(self._loaded(asked)[0].tags))
        except (Unsupported, UnsupportedTarget, NotImplementedError) as reason:
            return About(verdict=Verdict.UNSUPPORTED, reason=str(reason))
        except KvconformError as error:
            return About(verdict=Verdict.ERRORED, reason=str(error))
        except Exception as error:
            return About(verdict=Verdict.ERRORED, reason=f"it cannot be loaded: {error_text(error)}")

    def judge(self, asked: Asked, clause: str, profile: Profile) -> Case:
        """One clause."""
        found = next(one for one in registry.clauses() if one.id == clause)
        return judge_clause(found, self._loaded(asked)[1], asked.target, profile)

    def smaller(self, asked: Asked, finding: Finding, profile: Profile) -> Finding:
        """A finding with the smallest program that still shows it, and the name of the bug where it is known."""
        clause = next(one for one in registry.clauses() if one.id == finding.clause)
        resolved, judged = self._loaded(asked)
        whole = Program.parse(finding.found_in)
        trial = smallest(clause, judged, whole, profile)
        if trial.verdict is not Verdict.FAILED:
            return replace(finding, detail=f"{finding.detail} (it did not fail again when repeated: it is not deterministic)")
        first, marks = replace(trial, program=whole), judged.scope.landmarks
        shrunk = finding_of(trial, asked.target, clause.id, asked.dtype, first, finding.occurrences, marks)
        return Diagnoser(resolved, judged).finding(shrunk)

    def _loaded(self, asked: Asked) -> tuple[Resolved, Subject]:
        if self.held is None or self.held[0] != asked:
            self.held = None
            if asked.share != self.share:
                self.share, self.oracles = asked.share, {}
            resolved = judged_by(registry.resolve(asked.target), None)
            try:
                judged = subject(resolved, asked.dtype, Guarding(None))
            except KvconformError as reason:
                raise Unsupported(str(reason)) from None
            self.held = asked, resolved, replace(judged, oracle=self._oracle(asked, resolved, judged.oracle))
        return self.held[1:]

    def _oracle(self, asked: Asked, resolved: Resolved, own: Oracle) -> Oracle:
        """That of the model, where another cell of it has one already."""
        spoiled = resolved.fault is not None and resolved.fault.spoil is not None
        key = (resolved.model if resolved.model and not spoiled else asked.target, asked.dtype)
        return self.oracles.setdefault(key, own)

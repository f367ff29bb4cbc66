"""`class TestMine(kvconform.Conformance)`: the contract as a test class, one test a clause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ..harness import registry
from ..harness.conformance import conform
from ..harness.errors import KvconformError
from ..harness.implementation import Implementation
from ..harness.judging import Doubt
from ..harness.registry import FOUNDATION
from ..harness.results import Case
from ..harness.sources import Given, judged_by
from ..harness.target import Resolved
from ..harness.trial import Verdict
from ..reports.terminal import failure_block
from .api import profile_named, sentences
from .options import known_deviations

_RESOLVED: dict[type, Resolved] = {}
"""By class: a target is loaded once for all its tests."""


class Conformance:
    """Subclass with a `target` or an `implementation`; pytest then asks one clause a test. `reference` is what
    `kvconform.check` takes by that name."""

    target: ClassVar[str] = ""
    implementation: ClassVar[Implementation | None] = None
    reference: ClassVar[Given] = None
    profile: ClassVar[str] = "quick"
    dtypes: ClassVar[tuple[str, ...]] = ()
    known: ClassVar[str] = ""
    """A file of known deviations, which count as xfailed."""
    locate: ClassVar[bool] = False
    """Say in which layer and tensor a failure begins; for models in torch."""

    @classmethod
    def resolved(cls) -> Resolved:
        """What is judged, and by what."""
        if cls.implementation is None and not cls.target:
            raise KvconformError(f"{cls.__name__} needs a target or an implementation")
        if cls not in _RESOLVED:
            found = Resolved(cls.implementation, None) if cls.implementation is not None else registry.resolve(cls.target)
            _RESOLVED[cls] = judged_by(found, cls.__dict__.get("reference", cls.reference))
        return _RESOLVED[cls]

    def pytest_generate_tests(self, metafunc: Any) -> None:
        metafunc.parametrize("clause", [clause.id for clause in registry.clauses()])

    def test_clause(self, clause: str) -> None:
        import pytest

        wrong, resolved = "", None
        try:
            resolved = self.resolved()
        except KvconformError as error:
            wrong = str(error)
        if resolved is None:  # outside the handler, whose exception pytest would print too
            pytest.fail(f"kvconform: {wrong}", pytrace=False)
        entries = known_deviations(Path(self.known) if self.known else None)
        name = self.target or type(self).__name__
        ask(name, resolved, clause, self.profile, self.dtypes, known=entries, locate=self.locate)


_DOUBTS: dict[tuple[str, int], dict[str, Doubt]] = {}
"""What all clauses rest on is asked once for each implementation and precision, not for every test."""


def ask(
    target: str,
    resolved: Resolved,
    clause: str,
    profile: str,
    dtypes: tuple[str, ...] = (),
    told: Callable[[Sequence[Case]], None] = lambda cases: None,
    locate: bool = False,
    **changes: Any,
) -> None:
    """Ask one clause and fail, skip, xfail or pass as pytest does; `told` is given the cases first."""
    import pytest

    asked = [one for one in registry.clauses() if one.id == clause]
    # A clause that others rest on is asked alone: another one of them would only tell the same.
    rests = asked[0].family not in FOUNDATION
    doubts = _DOUBTS.setdefault((target, id(resolved.implementation)), {}) if rests else None
    asking = profile_named(profile, **changes)
    cases = list(conform(target, resolved, asked, asking, dtypes, doubts=doubts, locating=locate))
    told(cases)
    if findings := [finding for case in cases for finding in case.findings if not finding.known]:
        pytest.fail("\n".join(failure_block([finding], sentences()) for finding in findings), pytrace=False)
    for verdict in (Verdict.FAILED, Verdict.ERRORED, Verdict.INCONCLUSIVE):
        if found := [case for case in cases if case.verdict is verdict]:
            pytest.fail(f"{clause} {verdict}: {found[0].reason}", pytrace=False)
    if found := [case for case in cases if case.verdict is Verdict.KNOWN]:
        pytest.xfail(f"known: {found[0].reason}")
    if not any(case.verdict is Verdict.PASSED for case in cases):
        pytest.skip(f"unsupported: {cases[0].reason}")

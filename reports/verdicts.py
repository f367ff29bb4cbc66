"""How verdicts are shown, and which of several counts."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.mutation import Outcome
from ..harness.trial import Verdict

SIGNS = {
    Verdict.PASSED: "✓",
    Verdict.FAILED: "✗",
    Verdict.KNOWN: "≈",
    Verdict.ERRORED: "!",
    Verdict.INCONCLUSIVE: "?",
    Verdict.UNSUPPORTED: "–",
}
OF_OUTCOME = {
    Outcome.CAUGHT: Verdict.PASSED,
    Outcome.PASSED: Verdict.PASSED,
    Outcome.SURVIVED: Verdict.FAILED,
    Outcome.FLAGGED: Verdict.FAILED,
    Outcome.EQUIVALENT: Verdict.FAILED,
    Outcome.ERRORED: Verdict.ERRORED,
    Outcome.PROVED: Verdict.UNSUPPORTED,
    Outcome.NOT_APPLICABLE: Verdict.UNSUPPORTED,
}
"""As which verdict an outcome of the mutation check is shown."""
WORST_FIRST = (
    Verdict.FAILED,
    Verdict.ERRORED,
    Verdict.INCONCLUSIVE,
    Verdict.KNOWN,
    Verdict.PASSED,
    Verdict.UNSUPPORTED,
)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=WORST_FIRST.index, default=Verdict.UNSUPPORTED)

"""How verdicts are shown, and which of several counts."""

from __future__ import annotations

from collections.abc import Iterable

from ..harness.trial import Verdict

SIGNS = {
    Verdict.PASSED: "✓",
    Verdict.FAILED: "✗",
    Verdict.KNOWN: "≈",
    Verdict.ERRORED: "!",
    Verdict.INCONCLUSIVE: "?",
    Verdict.UNSUPPORTED: "–",
}
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

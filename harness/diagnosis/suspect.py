"""A bug that may be the one, what speaks for it, and how a diagnosis is made of that."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..fault import Form
from ..program import Program
from ..runner import Divergence
from .diagnosis import Confidence, Diagnosis
from .fit import Fit

CONFIRMED = 2
"""So many programs besides the finding's must show a bug for its diagnosis to be certain."""
EVIDENT = (Divergence.UNSTABLE, Divergence.ALIASED, Divergence.MUTATED, Divergence.WORK)
"""Kinds of divergence that say by themselves what the bug is."""


@dataclass
class Suspect:
    """A form with what speaks for it. `programs`: those besides the finding's in which it shows and is right."""

    form: Form
    fit: Fit
    programs: int = 0
    explained: int = 0
    texts: int = 0
    asked: int = 0
    refuted: Program | None = None

    @property
    def sentence(self) -> str:
        return self.form.diagnosis


def told(suspects: list[Suspect], divergence: Divergence, margin: tuple[float, str], tried: int, left: int) -> Diagnosis:
    """Put what speaks for the best suspect into a diagnosis."""
    alive = [suspect for suspect in suspects if suspect.refuted is None]
    ranked = sorted(alive or suspects, key=lambda s: (-s.asked, -min(s.explained, 1), -min(s.fit.texts, 1)))
    best = ranked[0]
    others = list(dict.fromkeys(s.form.diagnosis for s in ranked if s.sentence != best.sentence)) if alive else []
    if best.refuted is not None:
        confidence = Confidence.SUSPECT
    elif divergence in EVIDENT or ((best.explained or best.texts) and best.programs >= CONFIRMED and not others):
        confidence = Confidence.CERTAIN
    else:
        confidence = Confidence.LIKELY if best.explained or best.fit.texts or best.programs else Confidence.SUSPECT
    return Diagnosis(
        confidence,
        best.form.fault,
        best.sentence,
        parameter=best.form.parameter,
        basis=_basis(best, margin, tried, left),
        margin=None if math.isinf(margin[0]) else margin[0],
        candidates=tuple(others),
    )


def _basis(best: Suspect, margin: tuple[float, str], tried: int, left: int) -> str:
    """What the confidence rests on."""
    parts: list[str] = []
    if best.explained:
        parts.append(f"the reference with this fault gives its logits at all {best.explained} wrong positions")
    if best.fit.texts:
        parts.append("and fails in the same way" if parts else "the reference with this fault fails in the same way")
    elif best.fit.kinds:
        parts.append("it raises at the same op, in other words")
    parts.append(f"{best.programs} further programs show it" if best.programs else "no further program shows it")
    if best.refuted is not None:
        parts.append(f"it does not explain {str(best.refuted)!r}")
    if not math.isinf(margin[0]):
        parts.append(f"the next best of {tried} simulations ({margin[1]}) is {margin[0]:.3g} away")
    if left:
        parts.append(f"{left} were not tried for want of time")
    return "; ".join(parts)

"""A bug that may be the one, what speaks for it, and how a diagnosis is made of that."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ..fault import Form
from ..program import Program
from ..runner import Divergence
from .diagnosis import Confidence, Diagnosis
from .fit import Fit

CONFIRMED = 2
"""So many programs besides the finding's must show a bug for its diagnosis to be certain."""
LONGEST = 80
"""Characters of a program that a basis quotes."""
EVIDENT = (Divergence.UNSTABLE, Divergence.ALIASED, Divergence.MUTATED, Divergence.WORK)
"""Kinds of divergence that say by themselves what the bug is."""


@dataclass
class Suspect:
    """A form with what speaks for it. `rank`: 0 for the catalogue's own, 1 for its other forms, 2 for mistaken histories,
    and one less where the clause that failed is the one that the fault must be caught by.
    `programs`: those besides the finding's in which it shows and is right. `refuted`: one that it gets wrong, where only
    such ops occur as in the finding's; `elsewhere`: one that it gets wrong where others do."""

    form: Form
    fit: Fit
    rank: int = 0
    programs: int = 0
    explained: int = 0
    texts: int = 0
    asked: int = 0
    refuted: Program | None = None
    elsewhere: Program | None = None

    @property
    def sentence(self) -> str:
        return self.form.diagnosis


def told(suspects: list[Suspect], divergence: Divergence, margin: tuple[float, str], tried: int, left: int) -> Diagnosis:
    """Put what speaks for the best suspect into a diagnosis; one that is refuted is no name, and told as a suspect only."""
    alive = [suspect for suspect in suspects if suspect.refuted is None]
    if not alive:
        return _refuted(min(suspects, key=_worth))
    ranked = sorted(alive, key=_worth)
    best = ranked[0]
    others = list(dict.fromkeys(s.sentence for s in ranked if s.sentence != best.sentence and _alike(s, best)))
    told_by_logits = bool(best.explained or best.texts)
    if not (told_by_logits or divergence in EVIDENT):
        confidence = Confidence.SUSPECT
    elif divergence in EVIDENT or (best.programs >= CONFIRMED and best.elsewhere is None):
        confidence = Confidence.CERTAIN
    elif best.elsewhere is not None and best.programs < CONFIRMED:
        confidence = Confidence.SUSPECT
    else:
        confidence = Confidence.LIKELY
    return Diagnosis(
        confidence,
        best.form.fault,
        best.sentence,
        parameter=best.form.parameter,
        basis=_basis(best, margin, tried, left),
        margin=None if math.isinf(margin[0]) else margin[0],
        candidates=tuple(others),
    )


def _refuted(suspect: Suspect) -> Diagnosis:
    """What came nearest, and why it is not the bug, or not all of it."""
    basis = f"{suspect.sentence}: that gives its logits here, and not those of {_short(str(suspect.refuted))!r}"
    return Diagnosis(Confidence.SYMPTOMS, basis=basis, suspects=(f"a relative of {suspect.sentence!r}",))


def _worth(suspect: Suspect) -> tuple[bool, int, bool, bool, int]:
    """Sorts the best first: never wrong, right most often, by logits, by an error's words, the catalogue's own."""
    return (suspect.elsewhere is not None, -suspect.programs, not suspect.explained, not suspect.texts, suspect.rank)


def _alike(one: Suspect, best: Suspect) -> bool:
    """Has no program told the two apart?"""
    return (one.elsewhere is None) is (best.elsewhere is None) and one.programs == best.programs


def _basis(best: Suspect, margin: tuple[float, str], tried: int, left: int) -> str:
    """What the confidence rests on."""
    parts: list[str] = []
    if best.explained:
        parts.append(f"the reference with this fault gives its logits at all {best.explained} wrong positions")
    if best.fit.texts:
        parts.append("and fails in the same way" if parts else "the reference with this fault fails in the same way")
    elif best.fit.kinds:
        parts.append("it raises at the same op, in other words")
    further = "1 further program shows it" if best.programs == 1 else f"{best.programs} further programs show it"
    parts.append(further if best.programs else "no further program shows it")
    if best.elsewhere:
        parts.append(f"it does not explain all of {_short(str(best.elsewhere))!r}")
    if not math.isinf(margin[0]):
        parts.append(f"the next best of {tried} simulations ({margin[1]}) is {margin[0]:.3g} away")
    if left:
        parts.append(f"{left} were not tried for want of time")
    return "; ".join(parts)


def _short(program: str) -> str:
    """A program in a line that can be read: of many tokens in a row the first and the last."""
    told = re.sub(r"(\b\d+(?: \d+){2})(?: \d+){4,}( \d+)", r"\1 …\2", program)
    return told if len(told) <= LONGEST else f"{told[: LONGEST - 1]}…"

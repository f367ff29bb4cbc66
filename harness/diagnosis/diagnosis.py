"""What a diagnosis says, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Confidence(StrEnum):
    """How sure a diagnosis is.

    certain: the reference with this fault gives the implementation's logits, on further programs too, and nothing else
    does. likely: it does on the finding's program, and little else could be asked. suspect: it explains the finding's
    program and not everything else, or only the kind of error. symptoms: nothing simulated matches.
    """

    CERTAIN = "certain"
    LIKELY = "likely"
    SUSPECT = "suspect"
    SYMPTOMS = "symptoms"


@dataclass(frozen=True)
class Diagnosis:
    """Which bug it is. `name` is the fault's, `sentence` what is wrong in words; both are empty where only symptoms speak.

    `basis` is what the confidence rests on; `margin` how far (max |Δlogit|) the next best simulation is from what the
    implementation gave; `candidates` further bugs that no program told apart from this one.
    """

    confidence: Confidence
    name: str = ""
    sentence: str = ""
    parameter: str = ""
    basis: str = ""
    margin: float | None = None
    candidates: tuple[str, ...] = ()
    symptoms: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    next_check: str = ""

    def __str__(self) -> str:
        """The short line: what it is, and how sure."""
        if self.sentence:
            return f"{self.sentence} ({self.confidence})"
        suspects = f"; suspect: {self.suspects[0]}" if self.suspects else ""
        return f"{'; '.join(self.symptoms) or 'no known fault does this'}{suspects}"

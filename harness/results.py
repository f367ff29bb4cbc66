"""What a run found, as plain data: cases, findings, and how they are counted."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from shlex import quote

from .diagnosis.diagnosis import Diagnosis
from .trial import Trial, Verdict


def content_id(*parts: str) -> str:
    """A short id that depends on content alone, so that two runs can be joined."""
    return hashlib.sha256("\n".join(parts).encode(errors="backslashreplace")).hexdigest()[:10]


@dataclass(frozen=True)
class Finding:
    """One distinct failure: what was promised, what happened, and the smallest program that shows it."""

    id: str
    target: str
    clause: str
    dtype: str
    divergence: str
    op: str
    program: str
    found_in: str
    step: int
    token: int
    detail: str
    difference: float
    allowed: float | None
    floor: float | None
    tolerance: str
    curve: tuple[tuple[int, float], ...]
    occurrences: int
    diagnosis: Diagnosis | None = None
    landmarks: tuple[int, ...] = ()
    """Lengths at which the implementation says that its behaviour changes."""
    given: str | None = None
    """Where the user gave the reference: its target, or nothing for an object of the user's."""
    located: str = ""
    """Where in the model the failure begins, or why that cannot be said; empty where it was not asked."""
    known: str = ""
    """Why it is a known deviation, where it is one."""

    @property
    def reproduce(self) -> str:
        """A command, or a line of Python, that shows this failure again."""
        if ":" not in self.target:  # an object of the user's, which no command line can name
            reference = repr(self.given) if self.given else "reference" if self.given is not None else "None"
            return f"kvconform.replay(mine, {reference}, {self.program!r}, clause={self.clause!r}, dtypes=[{self.dtype!r}])"
        asked = f"--clause {self.clause} --dtype {self.dtype}" + (f" --reference {quote(self.given)}" if self.given else "")
        return f"kvconform replay {quote(self.target)} {quote(self.program)} {asked}"


@dataclass(frozen=True)
class Case:
    """One clause asked of one implementation in one dtype. `largest` is the largest difference that any program showed."""

    target: str
    clause: str
    dtype: str
    verdict: Verdict
    reason: str = ""
    programs: int = 0
    conclusive: int = 0
    positions: int = 0
    flips: int = 0
    largest: float = 0.0
    allowed: float | None = None
    tolerance: str = ""
    noise: float | None = None
    """Where errors are judged by their ratio to noise: its root mean square, in logits."""
    deviation: float | None = None
    """Where they are: the standard deviation of the reference's logits."""
    ratio: float | None = None
    usual: float | None = None
    """Where they are: error ÷ noise of all positions, by root mean squares, and at the usual one: the geometric mean."""
    seconds: float = 0.0
    examples_to_failure: int | None = None
    findings: tuple[Finding, ...] = ()
    replayed: tuple[tuple[str, str], ...] = ()
    """Programs that failed before, with FIXED, FAILED or ERROR, or why not: UNSUPPORTED, INCONCLUSIVE."""
    pairs: Mapping[str, int] = field(default_factory=dict[str, int])
    relations: Mapping[str, int] = field(default_factory=dict[str, int])
    """What was covered: ops that followed each other, and lengths relative to landmarks."""

    @property
    def id(self) -> str:
        return content_id(self.target, self.clause, self.dtype)


def finding_of(
    trial: Trial,
    target: str,
    clause: str,
    dtype: str,
    found_in: Trial,
    occurrences: int,
    landmarks: tuple[int, ...] = (),
    given: str | None = None,
) -> Finding:
    """A finding from the trial of its shrunk program."""
    allowed = trial.allowance
    return Finding(
        id=content_id(target, clause, dtype, str(trial.divergence), trial.op),
        target=target,
        clause=clause,
        dtype=dtype,
        divergence=str(trial.divergence),
        op=trial.op,
        program=str(trial.program),
        found_in=str(found_in.program),
        step=trial.step or 0,
        token=trial.token or 0,
        detail=trial.detail,
        difference=trial.difference,
        allowed=allowed.allowed if allowed else None,
        floor=allowed.floor if allowed else None,
        tolerance=str(allowed.tolerance) if allowed else "",
        curve=trial.differences,
        occurrences=occurrences,
        landmarks=landmarks,
        given=given,
    )


@dataclass(frozen=True)
class Cell:
    """What a sweep says of one target in one dtype beside its cases: what it is grouped by, and what it cost."""

    target: str
    dtype: str
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0

    @property
    def id(self) -> str:
        return content_id("cell", self.target, self.dtype)

    @property
    def key(self) -> str:
        return f"{self.target} {self.dtype}"

    @property
    def model(self) -> str:
        """The target without its options."""
        return self.target.partition("?")[0]

    @property
    def options(self) -> dict[str, str]:
        """The target's options, and the dtype."""
        parts = filter(None, self.target.partition("?")[2].split("&"))
        return {name: value for name, _, value in (part.partition("=") for part in parts)} | {"dtype": self.dtype}


def tally(cases: Iterable[Case]) -> dict[Verdict, int]:
    """How many cases have each verdict, all verdicts named."""
    found = Counter(case.verdict for case in cases)
    return {verdict: found[verdict] for verdict in Verdict}


def exit_code(cases: Iterable[Case]) -> int:
    """1 if anything failed; else 2 if anything errored or was inconclusive, or nothing ran; else 0. What is known passes."""
    counts = tally(cases)
    if counts[Verdict.FAILED]:
        return 1
    held = counts[Verdict.PASSED] or counts[Verdict.KNOWN]
    return 2 if counts[Verdict.ERRORED] or counts[Verdict.INCONCLUSIVE] or not held else 0

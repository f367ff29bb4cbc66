"""What has changed between two runs, joined by ids that depend on content alone."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..harness.mutation import Outcome
from ..harness.results import Case, content_id
from ..harness.run import Run
from ..harness.trial import Verdict
from .table import figure
from .text import Written, many

BAD = (Verdict.FAILED, Verdict.ERRORED, Verdict.INCONCLUSIVE)
JUDGED = (*BAD, Verdict.PASSED)
CHECK = "the check itself"
MUCH = 2.0
"""A deviation has changed in size when it is so many times what it was, or less than one so many-th."""
MOST = 100
"""Lines of one kind that are shown."""


class Kind(StrEnum):
    NEW = "new"
    CHANGED = "changed in size"
    STILL = "still failing"
    FIXED = "fixed"
    GONE = "gone"


@dataclass(frozen=True)
class Trouble:
    """One thing that is not as it should be: a finding (which has a size), a case that errored or cannot be told, a row, a
    mutant, a problem. `asked` is the id of the question whose answer it is: it is fixed only where that was asked again."""

    id: str
    asked: str
    place: str
    what: str
    size: float | None = None


@dataclass(frozen=True)
class Change:
    kind: Kind
    place: str
    what: str


def changes(old: Run, new: Run) -> list[Change]:
    """Everything that changed or still fails, the new first; then questions that are asked no longer, whatever they gave."""
    before, after = ({trouble.id: trouble for trouble in _troubles(run)} for run in (old, new))
    answers = _answers(new)
    found = [_again(before[id], now) if id in before else Change(Kind.NEW, now.place, now.what) for id, now in after.items()]
    for was in (trouble for id, trouble in before.items() if id not in after):
        answer = answers.get(was.asked)
        if answer is None:
            found.append(Change(Kind.GONE, was.place, was.what))
        elif answer is Verdict.PASSED or (answer is Verdict.FAILED and was.size is not None):
            found.append(Change(Kind.FIXED, was.place, was.what))
    places = _places(old)
    good = (question for question, answer in _answers(old).items() if answer is Verdict.PASSED)
    found += [Change(Kind.GONE, places[question], "it passed") for question in good if question not in answers]
    order = list(Kind)
    return sorted(found, key=lambda change: order.index(change.kind))


def regressed(found: Iterable[Change]) -> bool:
    """Is there anything wrong that was not wrong before?"""
    return any(change.kind is Kind.NEW for change in found)


def _again(was: Trouble, now: Trouble) -> Change:
    if was.size is None or now.size is None or _alike(was.size, now.size):
        return Change(Kind.STILL, now.place, now.what)
    return Change(Kind.CHANGED, now.place, f"{now.what}, was {figure(was.size)}")


def _alike(one: float, other: float) -> bool:
    """Are two sizes of the same order? What is not finite is only like itself."""
    if not (math.isfinite(one) and math.isfinite(other)):
        return str(one) == str(other)
    return one == other or (min(one, other) > 0 and max(one, other) / min(one, other) < MUCH)


def _troubles(run: Run) -> Iterator[Trouble]:
    """Of the failure table the rows count, whose faults are meant to fail; else the cases."""
    for problem in run.problems:
        yield Trouble(content_id("problem", problem), CHECK, CHECK, problem)
    for row in run.rows:
        if not row.as_expected:
            id = content_id("row", row.target)
            yield Trouble(id, id, row.target, f"it is {row.kind}, and {row.verdict}")
    for mutant in run.mutants:
        if mutant.outcome in (Outcome.SURVIVED, Outcome.FLAGGED, Outcome.EQUIVALENT, Outcome.ERRORED):
            yield Trouble(mutant.id, mutant.id, f"{mutant.fault} on {mutant.target}", f"{mutant.outcome}: {mutant.detail}")
    for case in () if run.rows else run.cases:
        if case.verdict is Verdict.FAILED and case.findings:
            for finding in case.findings:
                what = finding.detail if finding.divergence == "logits" else f"{finding.divergence}: {finding.detail}"
                yield Trouble(finding.id, case.id, _place(case), what, finding.difference)
        elif case.verdict in BAD:
            yield Trouble(content_id(case.id, case.verdict), case.id, _place(case), f"{case.verdict}: {case.reason}")


def _place(case: Case) -> str:
    return f"{case.target} {case.clause} ({case.dtype})"


def _answers(run: Run) -> dict[str, Verdict]:
    """The questions that a run answered, by id."""

    def told(good: bool) -> Verdict:
        return Verdict.PASSED if good else Verdict.FAILED

    found = {CHECK: told(not run.problems)}
    found |= {content_id("row", row.target): told(row.as_expected) for row in run.rows}
    found |= {
        mutant.id: told(mutant.outcome in (Outcome.CAUGHT, Outcome.PASSED, Outcome.PROVED))
        for mutant in run.mutants
        if mutant.outcome is not Outcome.NOT_APPLICABLE
    }
    if not run.rows:
        found |= {case.id: case.verdict for case in run.cases if case.verdict in JUDGED}
    return found


def _places(run: Run) -> dict[str, str]:
    found = {CHECK: CHECK} | {content_id("row", row.target): row.target for row in run.rows}
    found |= {mutant.id: f"{mutant.fault} on {mutant.target}" for mutant in run.mutants}
    return found | {case.id: _place(case) for case in run.cases}


def made_differently(old: Run, new: Run) -> list[str]:
    """What of the two runs' making is not the same, in words: it may be what changed the results."""
    one, other = old.header, new.header
    pairs = [("command", _asked(one.command), _asked(other.command)), ("judged by", one.reference, other.reference)]
    pairs += [("profile", one.profile, other.profile), ("seed", one.seed, other.seed)]
    names = dict.fromkeys((*one.versions, *other.versions))
    pairs += [(name, one.versions.get(name, "none"), other.versions.get(name, "none")) for name in names]
    return [f"{name} {was} → {now}" for name, was, now in pairs if was != now]


OUTPUT = re.compile(r"^--(out|junit)$|^--(out|junit)=|^--(json|only-failures)$")
"""Options that say how a result is shown, and nothing of what was asked."""


def _asked(command: str) -> str:
    """A command without what only says where its result goes."""
    try:
        words = iter(shlex.split(command))
    except ValueError:
        return command
    kept: list[str] = []
    for word in words:
        if not (found := OUTPUT.match(word)):
            kept.append(word)
        elif found[1]:
            next(words, None)
    return shlex.join(kept)


def render_changes(old: Run, new: Run, text: Written, bullet: str = "  ") -> str:
    """The changes as lines, each text from elsewhere written by `text`."""
    found = changes(old, new)
    parts: list[str] = []
    if differs := made_differently(old, new):
        parts.append("Made differently: " + text("; ".join(differs)))
    for kind in Kind:
        alike = [change for change in found if change.kind is kind]
        lines = [f"{bullet}{text(change.place)}: {text(change.what)}" for change in alike[:MOST]]
        if len(alike) > MOST:
            lines.append(f"{bullet}and {many(len(alike) - MOST, 'other')}")
        if lines:
            parts.append("\n".join((f"{kind.capitalize()}:", *([""] if bullet != "  " else []), *lines)))
    parts.append(counted_changes(found))
    return "\n\n".join(parts)


def counted_changes(found: Sequence[Change]) -> str:
    """The last line: regressed or not, and how many of each kind."""
    counts = ", ".join(f"{sum(change.kind is kind for change in found)} {kind}" for kind in Kind)
    return f"{'regressed' if regressed(found) else 'no regression'}: {counts}"

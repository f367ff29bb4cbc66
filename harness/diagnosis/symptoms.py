"""What the figures of a failure show by themselves, where no simulation matches: pure functions over what was given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..explain.read import explain
from ..history import histories
from ..program import Program
from .figures import Figure


@dataclass(frozen=True)
class Symptoms:
    """What was seen, whom that puts under suspicion, and the cheapest program that tells more."""

    seen: tuple[str, ...]
    suspects: tuple[str, ...] = ()
    next_program: str = ""


def symptoms(program: Program, figures: Sequence[Figure], probes: Mapping[str, bool], landmarks: Sequence[int]) -> Symptoms:
    """What a failing program and the probes (by name: does it go wrong?) show, the telling things first."""
    bad = next((figure for figure in figures if figure.bad), None)
    if bad is None:
        return Symptoms(())
    found = [*_begins(program, bad, probes), *_behind(program, bad), *_landmark(figures, bad, landmarks), *_rows(program, bad)]
    found += _course(figures)
    seen = tuple(dict.fromkeys(what for what, _, _ in found))
    suspects = tuple(dict.fromkeys(who for _, who, _ in found if who))
    return Symptoms(seen, suspects, next((check for _, _, check in found if check), ""))


Seen = tuple[str, str, str]
"""What was seen, the suspect, the program to run next; the last two may be empty."""


def _begins(program: Program, bad: Figure, probes: Mapping[str, bool]) -> Iterator[Seen]:
    """With a fresh call, with the second, with calls of several tokens."""
    if probes.get("one"):
        suspect = "no cache: weights, embedding or the model's own pass; ask reference.full"
        yield "wrong already for a single token on a fresh cache, which attends to itself alone", suspect, "append a 5"
    elif probes.get("several"):
        suspect = "the causal mask of a call, or the positions within it"
        yield "step 0 is wrong, and only when it has several tokens", suspect, "append a 5 9"
    elif bad.past and not any(op.kind != "append" for op in program.ops[: bad.op]):
        if probes.get("steps"):
            suspect = "what a call stores, or the position of the next one"
            yield "right in the first call, wrong from the second on", suspect, "append a 5; append a 9"
        elif probes.get("prompt and step"):
            suspect = "what a prompt of several tokens leaves behind: its stored keys, or the counter"
            yield "right token by token, wrong behind a prompt of several tokens", suspect, "append a 5 9; append a 3"
        elif probes.get("chunks"):
            suspect = "the mask or positions of a call of several tokens on a warm cache"
            yield "wrong only in calls of several tokens on a warm cache", suspect, "append a 5; append a 9 3"


BEHIND = {
    "crop": "what a rollback leaves: keys, counter or mask of one layer",
    "reset": "what a reset leaves: keys, counter or state",
    "fork": "what two branches share",
    "select": "which of keys, values, state and layers was not reordered",
    "join": "rows, padding and positions of what joined",
    "restore": "what is lost on the way through bytes: counter, padding, precision",
}


def _behind(program: Program, bad: Figure) -> Iterator[Seen]:
    before = [op for op in program.ops[: bad.op] if op.kind in BEHIND or op.refused]
    if before:
        last = before[-1]
        what = "a refused call" if last.refused else last.kind
        yield f"only after {what}", BEHIND.get(last.kind, "bookkeeping that runs before the step that fails"), ""
    caches = {op.cache for op in program.ops[: bad.op + 1]}
    if not before and len(caches) > 1:
        yield "only with two caches alive", "state that hangs on the model", ""


def _landmark(figures: Sequence[Figure], bad: Figure, landmarks: Sequence[int]) -> Iterator[Seen]:
    passed = [mark for mark in landmarks if mark <= bad.first]
    good = [figure.past + len(row) for figure in figures if not figure.bad for row in figure.gaps]
    if passed and max(good, default=0) >= max(passed) - 1:
        mark = max(passed)
        yield (
            f"right up to {mark}, wrong from there on, where the implementation's behaviour changes",
            ("one key too many or too few at the edge, or the order in which slots are read"),
            "",
        )


def _rows(program: Program, bad: Figure) -> Iterator[Seen]:
    rows = [index for index, row in enumerate(bad.wrong) if any(row)]
    if len(bad.wrong) < 2 or not rows or len(rows) == len(bad.wrong):
        return
    op = program.ops[bad.op]
    lengths = [len(row) for row in histories(program)[bad.op + 1].caches.get(op.cache, ())]
    longest = max(lengths, default=0)
    if all(lengths[row] < longest for row in rows):
        yield "only in the shorter rows", "padding that is seen, counted as a position, or taken into a state", ""
    elif 0 not in rows:
        yield f"only in rows beyond the first ({', '.join(map(str, rows))})", "an index or stride that forgets the rows", ""
    else:
        yield f"only in row(s) {', '.join(map(str, rows))}", "rows that are mixed up", ""


def _course(figures: Sequence[Figure]) -> Iterator[Seen]:
    """Constant, growing or decaying, over four wrong positions or more of the first row that is wrong."""
    curve = [
        gap
        for figure in figures
        for gaps, wrong in zip(figure.gaps, figure.wrong, strict=True)
        for gap, is_wrong in zip(gaps, wrong, strict=True)
        if is_wrong
    ]
    if len(curve) < 4:
        return
    half = len(curve) // 2
    early, late = sum(curve[:half]) / half, sum(curve[half:]) / (len(curve) - half)
    if late > 4 * early:
        yield "it grows from token to token", "an error that is stored and read again: precision of the store, or drift", ""
    elif early > 4 * late:
        yield "it decays from token to token", "few keys are wrong, and new ones bury them", ""
    else:
        yield "it stays of one size", "", ""


def of_an_error(text: str) -> tuple[str, str] | None:
    """What an error's text says, and the mend, where it can be read."""
    found = explain(text)
    if found is None:
        return None
    numbers = ", ".join(f"{name} {value}" for name, value in found.numbers)
    return re.sub(r"\s+", " ", f"{numbers}: {found.means}" if numbers else found.means), found.mend

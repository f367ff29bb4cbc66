"""One program on one target, step by step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from . import registry, saved
from .conformance import chosen, subjects
from .errors import AdapterError, ProgramError, Unsupported
from .history import histories
from .locate import told
from .match import logits_match
from .program import Append, Op, Program, print_op
from .runner import Step, execute
from .scope import Scope, unsupported
from .target import Resolved
from .tolerance import Exact
from .trial import READ_NO_CACHE, Judged, Subject, Trial, Verdict, attempt

WIDEST_OP = 48


def replayed(
    target: str, resolved: Resolved, text: str, clause: str = "", dtypes: Sequence[str] = (), locate: bool = False
) -> Iterator[tuple[str, int]]:
    """For each precision a table of the steps with the verdict below, and the exit code that it stands for. With `locate` a
    failure's verdict is followed by where it begins."""
    kept = kept_failure(text)
    program = Program.parse(kept.program if kept else text)
    histories(program)
    check, judged = logits_match, Judged.ALL
    if clause:
        asked = chosen(registry.clauses(), clause)[0]
        check, judged = asked.check, asked.judged
        if asked.ready:
            asked.ready()
    if check not in READ_NO_CACHE:
        unsupported(program, Scope.of(resolved.implementation))
    own = str(resolved.implementation.dtype).removeprefix("torch.")
    for subject in subjects(resolved, dtypes or [own]):
        trial = attempt(check, program, subject, judged)
        lines = [_line(step, trial) for step in _steps(program, subject, judged)]
        columns = ("op", "length", "max |Δ|", "allowed", "what")
        shown = tabulate(lines, columns, tablefmt="simple", disable_numparse=True)
        allowed = trial.allowance
        sizes = f", allowed {allowed.allowed:.3g} ({allowed.tolerance})" if allowed and trial.verdict is Verdict.PASSED else ""
        largest = f"max |Δlogit| {trial.difference:.3g}" if trial.verdict is Verdict.PASSED else trial.detail
        where = f" at op {trial.step}, token {trial.token}" if trial.verdict is Verdict.FAILED else ""
        last = f"{target} in {subject.dtype_name}: {trial.verdict}{where}: {largest}{sizes}"
        if locate and trial.verdict is Verdict.FAILED and trial.step is not None:
            last += f"\nlocated: {told(subject, program, trial.step)}"
        yield f"{shown}\n\n{last}", {Verdict.PASSED: 0, Verdict.FAILED: 1}.get(trial.verdict, 2)


def kept_failure(text: str) -> saved.Saved | None:
    """The kept failure of this id, where `text` is one. Raises `ProgramError` where there is none of it."""
    if not re.fullmatch(r"[0-9a-f]{10}", text):
        return None
    found = [one for one in saved.load() if one.id == text]
    if not found:
        raise ProgramError(f"no kept failure has the id {text}; `kvconform check` keeps them in {saved.FOLDER}")
    return found[0]


def _steps(program: Program, subject: Subject, judged: Judged) -> list[Step]:
    """The program's steps; none where it hangs or dies, which its trial has told."""
    if unsupported(program, subject.scope):
        return []
    exact = isinstance(subject.tolerance(judged), Exact)

    def run() -> list[Step]:
        return list(execute(program, subject.implementation, subject.oracle, exact=exact))

    try:
        return subject.guard.run(run, subject.implementation)
    except (AdapterError, Unsupported):
        return []


def _line(step: Step, trial: Trial) -> tuple[str, str, str, str, str]:
    after = step.past + _fed(step.op) if not step.divergence else step.past
    largest = f"{step.comparison.largest:.3g}" if step.comparison else "—"
    allowed = f"{trial.allowance.allowed:.3g}" if step.comparison and trial.allowance else "—"
    what = f"{step.divergence}: {step.detail}" if step.divergence else "refused, as it must be" if step.op.refused else ""
    if step.comparison and trial.allowance and not what:
        what = str(trial.allowance.band(step.comparison.largest))
    return _short(print_op(step.op)), f"{step.past} → {after}", largest, allowed, what


def _fed(op: Op) -> int:
    return max(map(len, op.rows)) if isinstance(op, Append) and not op.refused else 0


def _short(text: str) -> str:
    return text if len(text) <= WIDEST_OP else f"{text[: WIDEST_OP - 1]}…"

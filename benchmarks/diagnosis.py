"""Is the bug named right? Every fault of the catalogue on every built-in model that it applies to, and caches that a user
wrote (`tests/user_caches.py`), which share no code with what is simulated. Prints `docs/evidence/diagnosis.md`.

    python benchmarks/diagnosis.py > docs/evidence/diagnosis.md
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from kvconform.harness import registry
from kvconform.harness.conformance import subject
from kvconform.harness.diagnosis.diagnose import Diagnoser
from kvconform.harness.diagnosis.diagnosis import Confidence
from kvconform.harness.fault import Fault, Kind
from kvconform.harness.judging import PROFILES, judge_clause
from kvconform.harness.target import Resolved
from tabulate import tabulate

if TYPE_CHECKING:
    from kvconform.harness.clause import Clause
    from kvconform.harness.diagnosis.diagnosis import Diagnosis

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

FEW = replace(PROFILES["quick"], stop_at_failure=True)
MODELS = ("gpt", "llama", "window", "hybrid", "noisy")


@dataclass(frozen=True)
class Cell:
    """One implementation: what it must be called, and what it is called."""

    target: str
    wanted: str
    got: Diagnosis | None
    program: str
    seconds: float

    @property
    def right(self) -> bool:
        """A class counts once: a name that no program tells apart from the wanted one is right."""
        return self.got is not None and self.wanted in (self.got.sentence, *self.got.candidates)

    @property
    def first(self) -> bool:
        return self.got is not None and self.got.sentence == self.wanted


def judged(target: str, resolved: Resolved, clauses: list[Clause], wanted: str) -> Cell | None:
    """The first finding of these clauses, diagnosed; None where nothing fails."""
    asked = subject(resolved, "float64" if "to" in resolved.implementation.capabilities else "float32")
    for clause in clauses:
        case = judge_clause(clause, asked, target, FEW)
        if case.findings:
            diagnoser, began = Diagnoser(resolved, asked), time.process_time()
            finding = diagnoser.finding(case.findings[0])
            return Cell(target, wanted, finding.diagnosis, finding.program, time.process_time() - began)
    return None


def built_in(kind: Kind) -> Iterator[tuple[str, Fault, Cell | None]]:
    clauses = registry.clauses()
    for model in MODELS:
        for fault in registry.faults().values():
            if fault.kind is not kind or model not in fault.models or model in fault.equivalent:
                continue
            target = f"builtin:{model}/{fault.name}"
            family = sorted((c for c in clauses if c.family == fault.clause_family), key=lambda c: c.id != fault.clause)
            chosen = family if kind is Kind.FAULT else clauses
            yield target, fault, judged(target, registry.resolve(target), chosen, fault.diagnosis)
            print(".", end="", file=sys.stderr, flush=True)


def by_users() -> Iterator[Cell]:
    from user_caches import MISTAKES, made

    clauses = {clause.id: clause for clause in registry.clauses()}
    for kind, (clause, wanted) in MISTAKES.items():
        engine, plain = made(kind)
        if cell := judged(kind.__name__, Resolved(engine, plain), [clauses[clause]], wanted):
            yield cell


def unknown() -> Iterator[Cell]:
    from user_caches import UNKNOWN, made

    clauses = {clause.id: clause for clause in registry.clauses()}
    for kind, clause in UNKNOWN.items():
        engine, plain = made(kind)
        if cell := judged(kind.__name__, Resolved(engine, plain), [clauses[clause]], ""):
            yield cell


def table(cells: list[Cell]) -> str:
    """What is wrong, and what is right with less than certainty; everything else is only counted."""
    lines = [
        (f"`{cell.target}`", cell.wanted, str(cell.got), f"`{cell.program[:60]}`", f"{cell.seconds:.1f}")
        for cell in cells
        if not cell.first or cell.got is None or cell.got.confidence is not Confidence.CERTAIN
    ]
    return tabulate(
        lines, ("implementation", "it is", "it is called", "program", "s"), tablefmt="github", disable_numparse=True
    )


def summary(cells: list[Cell]) -> str:
    first, right = sum(cell.first for cell in cells), sum(cell.right for cell in cells)
    certain = sum(cell.first and cell.got is not None and cell.got.confidence is Confidence.CERTAIN for cell in cells)
    wrong = sum(not cell.right and cell.got is not None and cell.got.confidence is Confidence.CERTAIN for cell in cells)
    slowest = max((cell.seconds for cell in cells), default=0.0)
    return (
        f"{len(cells)} faults: {first} named right in first place, {right} with classes counted once "
        f"({100 * right / len(cells):.1f} %); {certain} of them certain; {wrong} certain and wrong; "
        f"the slowest took {slowest:.1f} s of the processor."
    )


def main() -> None:
    torch.set_num_threads(1)
    models = [cell for _, _, cell in built_in(Kind.FAULT) if cell]
    flagged = [target for target, _, cell in built_in(Kind.CONTROL) if cell]
    users, strange = list(by_users()), list(unknown())
    print("# Is the bug named right?\n\nMade by `python benchmarks/diagnosis.py`.\n\n## Built-in models\n")
    print(f"{summary(models)}\n\nControls that got a diagnosis: {', '.join(flagged) or 'none'}.\n")
    print(f"Not right in first place, or less than certain:\n\n{table(models)}\n")
    print(f"## Caches as a user writes them\n\n`tests/user_caches.py`: no code shared.\n\n{summary(users)}\n\n{table(users)}\n")
    print("## Faults that the catalogue does not have\n\nNone may be named with confidence.\n")
    print(
        tabulate(
            [(f"`{cell.target}`", str(cell.got)) for cell in strange], ("implementation", "it is called"), tablefmt="github"
        )
    )


if __name__ == "__main__":
    main()

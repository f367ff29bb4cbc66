"""Is the bug named right? The catalogue's faults on the built-in models, and faults that were written apart from what is
simulated: those of the engines in JavaScript and C, of caches over models of transformers, of caches that a user wrote;
besides, bugs that no catalogue has, and controls. Each part keeps what it found, so that a run that was stopped goes on.

    python benchmarks/diagnosis.py            every part, then the page
    python benchmarks/diagnosis.py javascript c
    python benchmarks/diagnosis.py page > docs/evidence/diagnosis.md
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from statistics import median

import torch
from kvconform.harness import registry
from kvconform.harness.conformance import precisions, subject
from kvconform.harness.diagnosis.diagnose import Diagnoser
from kvconform.harness.diagnosis.diagnosis import Confidence, Diagnosis
from kvconform.harness.errors import Unsupported
from kvconform.harness.fault import Kind
from kvconform.harness.judging import PROFILES, judge_clause
from kvconform.harness.program import Program
from kvconform.harness.runner import Divergence
from kvconform.harness.scope import unsupported
from kvconform.harness.sources import judged_by
from kvconform.harness.target import Resolved
from tabulate import tabulate

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
KEPT = ROOT / "reports" / "diagnosis"
FEW = replace(PROFILES["quick"], stop_at_failure=True)
MODELS = ("gpt", "llama", "window", "hybrid", "noisy")
SURE = (Confidence.CERTAIN, Confidence.LIKELY)


@dataclass(frozen=True)
class Asked:
    """One implementation: what it must be called (nothing: it must not be named), and the clauses that show it."""

    target: str
    wanted: str
    clauses: tuple[str, ...]
    made: Callable[[], Resolved]


@dataclass(frozen=True)
class Cell:
    """What came of it. `seconds` are the processor's, `waited` those of the clock."""

    target: str
    wanted: str
    failed: bool
    named: str = ""
    confidence: str = ""
    margin: float | None = None
    candidates: tuple[str, ...] = ()
    line: str = ""
    basis: str = ""
    program: str = ""
    clause: str = ""
    seconds: float = 0.0
    waited: float = 0.0

    @property
    def first(self) -> bool:
        return self.failed and self.named == self.wanted

    @property
    def right(self) -> bool:
        """A class counts once: what no program tells apart from the wanted one is named with it."""
        return self.first or (self.failed and self.wanted in self.candidates)

    @property
    def sure(self) -> bool:
        return self.confidence in SURE


def judged(asked: Asked) -> Cell:
    """The first finding of the clauses, diagnosed."""
    resolved = asked.made()
    try:
        known = {clause.id: clause for clause in registry.clauses()}
        for dtype, clause in product(precisions(resolved), asked.clauses):
            about = subject(resolved, dtype)
            case = judge_clause(known[clause], about, asked.target, FEW)
            if not case.findings:
                continue
            finding, diagnoser = case.findings[0], Diagnoser(resolved, about)
            diagnoser.simulator.patience = 3600.0  # computing is what is bounded, however busy the machine
            began, since = time.process_time(), time.monotonic()
            got = diagnoser.finding(finding).diagnosis
            took, waited = time.process_time() - began, time.monotonic() - since
            return _cell(asked, got, finding.program, clause, took, waited)
        return Cell(asked.target, asked.wanted, failed=False)
    finally:
        if close := getattr(resolved.implementation, "close", None):
            close()


def _cell(asked: Asked, got: Diagnosis | None, program: str, clause: str, took: float, waited: float) -> Cell:
    if got is None:
        return Cell(asked.target, asked.wanted, True, program=program, clause=clause, seconds=took, waited=waited)
    return Cell(
        asked.target, asked.wanted, True, got.sentence, got.confidence.value, got.margin, got.candidates, str(got), got.basis,
        program, clause, took, waited,
    )  # fmt: skip


ANYHOW = (
    "append a 1 2; append a 3",
    "append a 1 2 3; fork a b; append a 4; append b 5 6; crop a 2; append a 7",
    "append a 1 2 | 3 4; select a 1 0; append a 5 | 6; restore a; append a 7 8 | 9 1",
    "append a 1 2 3 | 4; append a 5 | 6; reset a; append a 7 8 | 9; append a 1 | 2",
)
"""What controls are diagnosed by, as though it had failed."""


def anyhow(asked: Asked) -> Cell:
    """A control, asked for the diagnosis of programs in which nothing is wrong."""
    resolved = asked.made()
    try:
        about = subject(resolved, precisions(resolved)[0])
        diagnoser = Diagnoser(resolved, about)
        clause = next(one for one in registry.clauses() if one.id == "any.program")
        began, since = time.process_time(), time.monotonic()
        for text in ANYHOW:
            program = Program.parse(text)
            if unsupported(program, about.scope) is None and (
                got := diagnoser.program(clause, program, Divergence.LOGITS, len(program.ops) - 1)
            ):
                return _cell(asked, got, text, clause.id, time.process_time() - began, time.monotonic() - since)
        return Cell(
            asked.target, "", False, seconds=(time.process_time() - began) / len(ANYHOW), waited=time.monotonic() - since
        )
    finally:
        if close := getattr(resolved.implementation, "close", None):
            close()


# The parts


def built_in(model: str) -> Iterator[Asked]:
    """The catalogue's faults, each by the family of clauses that must catch it."""
    clauses = registry.clauses()
    for fault in registry.faults().values():
        if fault.kind is not Kind.FAULT or model not in fault.models or model in fault.equivalent:
            continue
        target = f"builtin:{model}/{fault.name}"
        family = sorted((c.id for c in clauses if c.family == fault.clause_family), key=lambda name: name != fault.clause)
        yield Asked(target, fault.diagnosis, tuple(family), lambda target=target: registry.resolve(target))


def controls() -> Iterator[Asked]:
    """Ways to keep a cache that are right, some of them in a strange way."""
    from library_caches import ALL, Library, made
    from user_caches import GPT, Llama
    from user_caches import made as by_user

    for way in (GPT, Llama):
        yield Asked(f"a user's {way.__name__}", "", (), lambda way=way: Resolved(*by_user(way)))
    for architecture in ALL:
        yield Asked(f"the library's {architecture}", "", (), lambda name=architecture: made(Library, name))
    for name, command, model in (("javascript", _node(""), "gpt"), ("c", _c(""), "llama"), (f"c {RIGHT}", _c(RIGHT), "llama")):
        yield Asked(name, "", (), lambda command=command, model=model: _engine(command, model))
    for kind, model in product((Kind.CONTROL, Kind.CORRECT), MODELS):
        for fault in registry.faults().values():
            if fault.kind is kind and model in fault.models:
                target = f"builtin:{model}/{fault.name}"
                yield Asked(target, "", (), lambda target=target: registry.resolve(target))


RIGHT = "reset_keeps_position"
ENGINES = ROOT / "implementations" / "engines"


def _node(fault: str) -> str:
    return f"node {ENGINES}/javascript/engine.mjs {ROOT}/reference/weights/gpt" + (f" --fault {fault}" if fault else "")


def _c(fault: str) -> str:
    KEPT.mkdir(parents=True, exist_ok=True)
    if not (KEPT / "engine").exists():
        subprocess.run(["cc", "-O2", "-o", str(KEPT / "engine"), str(ENGINES / "c" / "engine.c"), "-lm"], check=True)
    return f"{KEPT}/engine {ROOT}/reference/weights/llama" + (f" --fault {fault}" if fault else "")


def _engine(command: str, model: str) -> Resolved:
    return judged_by(registry.resolve(f"cmd:{command}"), f"builtin:{model}/concat")


def javascript() -> Iterator[Asked]:
    from engine_faults import JAVASCRIPT
    from test_engines import JAVASCRIPT as CLAUSES

    for fault, wanted in JAVASCRIPT.items():
        yield Asked(fault, wanted, (CLAUSES[fault],), lambda fault=fault: _engine(_node(fault), "gpt"))


def c() -> Iterator[Asked]:
    from engine_faults import C
    from test_engines import C as CLAUSES

    for fault, wanted in C.items():
        yield Asked(fault, wanted, (CLAUSES[fault],), lambda fault=fault: _engine(_c(fault), "llama"))


def transformers() -> Iterator[Asked]:
    from library_caches import MISTAKES, made

    for kind, (clause, wanted, architectures) in MISTAKES.items():
        for name in architectures:
            yield Asked(f"{kind.__name__} on {name}", wanted, (clause,), lambda kind=kind, name=name: made(kind, name))


def users() -> Iterator[Asked]:
    from user_caches import MISTAKES, made

    for kind, (clause, wanted) in MISTAKES.items():
        yield Asked(kind.__name__, wanted, (clause,), lambda kind=kind: Resolved(*made(kind)))


def fresh() -> Iterator[Asked]:
    from more_user_caches import MORE
    from user_caches import made

    for kind, (clause, wanted) in MORE.items():
        yield Asked(kind.__name__, wanted, (clause,), lambda kind=kind: Resolved(*made(kind)))


def unknown() -> Iterator[Asked]:
    from user_caches import UNKNOWN, made

    for kind, clause in UNKNOWN.items():
        yield Asked(kind.__name__, "", (clause,), lambda kind=kind: Resolved(*made(kind)))


WRITTEN_APART: Mapping[str, tuple[str, Callable[[], Iterator[Asked]]]] = {
    "javascript": ("The engine in JavaScript, on the weights of the GPT", javascript),
    "c": ("The engine in C, on the weights of the llama, in float32", c),
    "transformers": ("Caches over models of transformers (`tests/library_caches.py`)", transformers),
    "users": ("Caches that a user wrote (`tests/user_caches.py`)", users),
    "fresh": ("More of them, written when all else stood (`tests/more_user_caches.py`)", fresh),
}
BUILT_IN: Mapping[str, tuple[str, Callable[[], Iterator[Asked]]]] = {
    model: (f"builtin:{model}", lambda model=model: built_in(model)) for model in MODELS
}
PARTS = {**WRITTEN_APART, **BUILT_IN, "unknown": ("", unknown), "controls": ("", controls)}


# Running and reading


def run(part: str, only: str = "") -> None:
    """Ask what the part's file does not hold yet."""
    KEPT.mkdir(parents=True, exist_ok=True)
    known = {cell.target for cell in read(part)}
    for asked in PARTS[part][1]():
        if asked.target in known or only not in asked.target:
            continue
        try:
            cell = (anyhow if part == "controls" else judged)(asked)
        except Unsupported as reason:
            print(f"{part} {asked.target}: unsupported, {reason}", file=sys.stderr)
            continue
        with (KEPT / f"{part}.jsonl").open("a") as kept:
            kept.write(json.dumps(asdict(cell)) + "\n")
        mark = "" if part in ("unknown", "controls") else "ok " if cell.first else "class " if cell.right else "MISSED "
        print(f"{part} {asked.target}: {mark}{cell.line or cell.failed} {cell.seconds:.1f} s", file=sys.stderr, flush=True)


def read(part: str) -> list[Cell]:
    path = KEPT / f"{part}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    cells = [Cell(**json.loads(line)) for line in lines]
    return [replace(cell, candidates=tuple(cell.candidates)) for cell in cells]


def summary(cells: list[Cell]) -> str:
    first, right = sum(cell.first for cell in cells), sum(cell.right for cell in cells)
    surely = sum(not cell.right and cell.sure for cell in cells)
    return (
        f"{len(cells)} faults: {first} named right in first place ({100 * first / len(cells):.1f} %), {right} with classes "
        f"counted once ({100 * right / len(cells):.1f} %); {surely} named wrong with confidence."
    )


COLUMNS = ("fault", "named as", "confidence", "margin", "s", "")


def table(cells: list[Cell]) -> str:
    lines = [
        (
            f"`{cell.target}`",
            cell.named or (cell.line if cell.failed else "nothing failed"),
            cell.confidence or "-",
            "-" if cell.margin is None else f"{cell.margin:.2g}",
            f"{cell.seconds:.1f}",
            "" if cell.first else f"one of a class with: {cell.wanted}" if cell.right else f"**it is: {cell.wanted}**",
        )
        for cell in cells
    ]
    return tabulate(lines, COLUMNS, tablefmt="github", disable_numparse=True)


def speed(cells: list[Cell]) -> str:
    seconds = [cell.seconds for cell in cells if cell.failed]
    return f"seconds of the processor a diagnosis: median {median(seconds):.1f}, most {max(seconds):.1f}" if seconds else ""


HEAD = """# Is the bug named right?

Made by `python benchmarks/diagnosis.py`: one finding of each faulty implementation, of the clause that must show its fault, and
its diagnosis. A margin is how far the logits of the next best simulation are from those that were given. What is wrong is in
bold; what no program tells apart from the right name, and stands before it, is told as a class.

What was written apart shares no code with what is simulated. Not all of it was named at first sight: 13 of 14 faults of the
engine in JavaScript were, 13 of 17 of that in C, 55 of 59 of the caches over models of transformers, and 12 of the 16 caches
that were written last. The others got symptoms and a suspect, but for two, which were told as the same history in other
words. Each was another way to make a known mistake, and is a form of that fault now. Expect the first figures of a bug that
nobody has met."""


def page() -> str:
    apart, ours = {part: read(part) for part in WRITTEN_APART}, {part: read(part) for part in BUILT_IN}
    every = [cell for cells in apart.values() for cell in cells]
    silent = [cell for cells in ours.values() for cell in cells if not cell.failed]
    ours = {part: [cell for cell in cells if cell.failed] for part, cells in ours.items()}
    built = [cell for cells in ours.values() for cell in cells]
    strange, right = read("unknown"), read("controls")
    parts = [HEAD]
    groups = (*apart.items(), ("all written apart", every), ("built in", built))
    sums = [(name, *_counts(cells)) for name, cells in groups if cells]
    heads = ("carrier", "faults", "first place", "classes counted once", "of them surely", "wrong and sure")
    parts.append(tabulate(sums, heads, tablefmt="github", disable_numparse=True))
    flagged = [f"`{cell.target}`: {cell.line}" for cell in right if cell.failed]
    parts.append(
        f"{len(right)} controls and right caches were asked for the diagnosis of {len(ANYHOW)} programs as though they had "
        f"failed. Diagnoses given: {'; '.join(flagged) or 'none'}."
    )
    if silent:
        names = ", ".join(f"`{cell.target}`" for cell in silent)
        why = "the verdict is inconclusive, or is one over all programs together"
        parts.append(f"Without a finding that could be diagnosed, and not counted ({why}): {names}.")
    parts.append(f"On built-in models: {speed(built)}; written apart: {speed(every)}.")
    parts.append("## Bugs that the catalogue does not have\n\nNone may be named with confidence.")
    lines = [(f"`{cell.target}`", cell.confidence, cell.line) for cell in strange]
    parts.append(tabulate(lines, ("implementation", "confidence", "what is told"), tablefmt="github"))
    for part, (title, _) in WRITTEN_APART.items():
        if apart[part]:
            parts.append(f"## {title}\n\n{summary(apart[part])}\n\n{table(apart[part])}")
    parts.append(f"## Built-in models\n\n{summary(built)} Listed are those that are not first, or not certain.")
    parts.append(table([cell for cell in built if not cell.first or cell.confidence != Confidence.CERTAIN]))
    return "\n\n".join(parts)


def _counts(cells: list[Cell]) -> tuple[str, ...]:
    right = [cell for cell in cells if cell.right]
    return (
        str(len(cells)),
        f"{sum(cell.first for cell in cells)} ({sum(cell.first for cell in cells) / len(cells):.1%})",
        f"{len(right)} ({len(right) / len(cells):.1%})",
        str(sum(cell.sure for cell in right)),
        str(sum(cell.sure and not cell.right for cell in cells)),
    )


def main() -> None:
    torch.set_num_threads(1)
    words = sys.argv[1:]
    if words != ["page"]:
        for word in words or PARTS:
            part, _, only = word.partition("/")
            run(part, only)
    if not words or words == ["page"]:
        print(page())


if __name__ == "__main__":
    main()

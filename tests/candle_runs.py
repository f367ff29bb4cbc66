"""How the tests of candle's engine start it, ask clauses of it, and feed it by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import join

from kvconform.harness import registry
from kvconform.harness.conformance import chosen, conform
from kvconform.harness.implementation import Implementation
from kvconform.harness.judging import Profile
from kvconform.harness.program import Program
from kvconform.harness.results import Case
from kvconform.harness.runner import Step, execute
from kvconform.harness.trial import Verdict

SHIPPED = Path(__file__).parent.parent / "reference" / "weights" / "llama"
REFERENCE = "builtin:llama/concat"
ONCE = Profile("once", examples=3, shrink=False, stop_at_failure=True, fixed=8)
RIGHT = (Verdict.PASSED, Verdict.UNSUPPORTED)


def converted(binary: Path, folder: Path, file: Path, kind: str) -> Path:
    """A model of transformers as a GGUF file, written by the engine's converter."""
    subprocess.run([str(binary), "convert", str(folder), str(file), kind], check=True)
    return file


@contextmanager
def engine(*words: object) -> Iterator[Implementation]:
    """The engine, started with these words."""
    started = registry.resolve(f"cmd:{join(map(str, words))}").implementation
    try:
        yield started
    finally:
        started.close()


def asked(pattern: str, *words: object, profile: Profile = ONCE, reference: str = REFERENCE) -> list[Case]:
    """The clauses of a pattern, asked of the engine that these words start."""
    with engine(*words) as implementation:
        resolved = replace(registry.resolve(reference), implementation=implementation, carrier=None)
        return list(conform("candle", resolved, chosen(registry.clauses(), pattern), profile, ["float32"]))


def ran(implementation: Implementation, program: str) -> list[Step]:
    """The steps of a program, with their logits; nothing is compared."""
    return list(execute(Program.parse(program), implementation, None, keep=True))


def append(tokens: Sequence[int], cache: str = "a") -> str:
    return f"append {cache} {' '.join(map(str, tokens))}"


def wrong(cases: list[Case]) -> list[str]:
    return [f"{case.clause} {case.verdict}: {case.reason}" for case in cases if case.verdict not in RIGHT]

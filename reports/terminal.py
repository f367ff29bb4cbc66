"""What the terminal shows of a run: failures first, each as one block, then what ran, then one last line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..harness.coverage import summary
from ..harness.diagnosis.diagnosis import Diagnosis
from ..harness.registry import FOUNDATION
from ..harness.results import Case, Finding
from ..harness.run import Run
from ..harness.trial import Verdict
from .causes import by_cause
from .noise import noises
from .table import case_table, figure
from .text import many, visible

LONGEST_PROGRAM = 300
LONGEST_LINE = 100_000


def made(run: Run) -> str:
    """What it takes to make the run again, and how long it took."""
    return f"seed {run.header.seed}, profile {visible(run.header.profile)}, {run.seconds:.1f} s"


def check_report(run: Run, sentences: Mapping[str, str], only_failures: bool = False) -> str:
    """A check: a block a distinct failure, a line a clause, and the verdict."""
    parts = [failure_block(alike, sentences) for alike in by_cause(f for case in run.cases for f in case.findings)]
    shown = [case for case in run.cases if not only_failures or case.verdict not in (Verdict.PASSED, Verdict.UNSUPPORTED)]
    if shown:
        parts.append(case_table(shown))
    parts += replayed_lines(run)
    if run.cases:
        parts.append(covered(run))
    parts += noises(run.cases, visible)
    parts.append(last_line(run))
    return "\n\n".join(parts)


def replayed_lines(run: Run) -> list[str]:
    """What has become of programs that failed before."""
    told = [
        f"{outcome:<6} {visible(case.clause)} ({visible(case.dtype)}): {short(program)}"
        for case in run.cases
        for program, outcome in case.replayed
    ]
    return ["Failed before:\n" + "\n".join(told)] if told else []


def covered(run: Run) -> str:
    """What the programs covered: ops that followed each other, and lengths around landmarks."""
    pairs = {pair for case in run.cases for pair in case.pairs}
    relations = {relation for case in run.cases for relation in case.relations}
    landmarks = {relation.rpartition(" ")[2] for relation in relations}
    return summary(pairs, relations, len(landmarks))


def short(program: str) -> str:
    if len(program) <= LONGEST_PROGRAM:
        return visible(program)
    return f"{visible(program[:LONGEST_PROGRAM])} … ({len(program)} characters)"


SIZED = ("logits", "unstable", "aliased", "work")
"""Divergences with a size; for others nothing was compared where they show."""


def failure_block(alike: Sequence[Finding], sentences: Mapping[str, str]) -> str:
    """What was promised, what happened, and how to see it again."""
    finding = alike[0]
    size = f", size {figure(finding.difference)}" if finding.divergence in SIZED else ""
    also = sorted({other.clause for other in alike} - {finding.clause})
    head = "KNOWN" if finding.known else "FAILED"
    lines = [
        f"{head} {finding.clause} ({', '.join(dict.fromkeys(other.dtype for other in alike))})",
        f"  promised:  {sentences.get(finding.clause, '')}",
        f"  happened:  {finding.detail}",
        f"  where:     op {finding.step} ({finding.op}), token {finding.token}{size}",
        f"  program:   {short(finding.program)}",
    ]
    if finding.known:
        lines.append(f"  known:     {finding.known}")
    if finding.diagnosis:
        lines += diagnosis_lines(finding.diagnosis)
    if finding.located:
        lines.append(f"  located:   {finding.located}")
    if also:
        lines.append(f"  breaks too: {', '.join(also)}")
    lines += ["  Reproduce with:", f"    {finding.reproduce}"]
    return "\n".join(visible(line, longest=LONGEST_LINE) for line in lines)


def diagnosis_lines(diagnosis: Diagnosis) -> list[str]:
    """Which bug it is, what that rests on, and what to look at next."""
    lines = [f"  diagnosis: {diagnosis}"]
    if diagnosis.candidates:
        lines.append(f"  or:        {'; '.join(diagnosis.candidates)}")
    if diagnosis.sentence and diagnosis.symptoms:
        lines.append(f"  symptoms:  {'; '.join(diagnosis.symptoms)}")
    if diagnosis.basis:
        lines.append(f"  because:   {diagnosis.basis}")
    if diagnosis.next_check:
        lines.append(f"  check:     {diagnosis.next_check}")
    return lines


def last_line(run: Run) -> str:
    """The verdict on all that ran, with counts that add up."""
    counts = ", ".join(f"{count} {verdict}" for verdict, count in run.counts.items() if count)
    what = visible(run.header.targets[0]) if len(run.header.targets) == 1 else f"{len(run.header.targets)} targets"
    programs = sum(case.programs for case in run.cases)
    ran = f"{many(len(run.cases), 'case')}: {counts or 'none'}; {many(programs, 'program')}"
    told = f"{what}: {overall(run.cases)} ({ran}; {made(run)})"
    blame = {case.reason.partition(": ")[0] for case in run.cases if case.verdict is Verdict.INCONCLUSIVE}
    more = [text for text in FOUNDATION.values() if text in blame]
    more += [f"judged by {visible(run.header.reference)}"] if run.header.reference else []
    return "; ".join([told, *more])


def overall(cases: Sequence[Case]) -> str:
    """One word for all cases, by the rule of the exit code."""
    found = {case.verdict for case in cases}
    for verdict in (Verdict.FAILED, Verdict.ERRORED, Verdict.INCONCLUSIVE, Verdict.PASSED, Verdict.KNOWN, Verdict.UNSUPPORTED):
        if verdict in found:
            return str(verdict)
    return "nothing ran"

"""The one line that everybody reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..harness.fault import Kind
from ..harness.mutation import Mutant, Outcome, tried
from ..harness.mutation import exit_code as mutation_exit
from ..harness.results import exit_code as cases_exit
from ..harness.run import Run
from ..harness.trial import Verdict
from .matrix import matrix
from .text import many
from .verdicts import WORST_FIRST


def headline(run: Run) -> tuple[Verdict, str]:
    """What came of a run, and the verdict that colours it."""
    if run.cells:
        return _of_sweep(run)
    counts, odd = run.counts, sum(not row.as_expected for row in run.rows)
    code = mutation_exit(run.mutants) if run.mutants else 0 if run.rows else cases_exit(run.cases)
    if run.problems:
        return Verdict.FAILED, f"{many(len(run.problems), 'problem')} with the check itself"
    if odd:
        return Verdict.FAILED, f"{odd} of {many(len(run.rows), 'implementation')} not as expected"
    if run.mutants or run.rows:
        could, asked = tried(run.mutants)
        if asked and not could:
            return Verdict.INCONCLUSIVE, untried(run.mutants)
        some = " that could be tried" if could < asked else ""
        good = (Verdict.PASSED, f"Every fault{some} is caught, and everything correct passes")
        return (good, (Verdict.FAILED, "A fault survives"), (Verdict.ERRORED, "Not every fault could be judged"))[code]
    if code == 0:
        return Verdict.PASSED, f"{_holds(run)}: {many(counts['passed'], 'case')} passed{_as_listed(run)}"
    for verdict in WORST_FIRST[:3]:
        if counts[verdict]:
            return verdict, f"{counts[verdict]:,} of {many(len(run.cases), 'case')} {verdict}"
    return Verdict.INCONCLUSIVE, "Nothing was judged"


def untried(mutants: Sequence[Mutant]) -> str:
    """That no fault could be tried, with the reason that is given most often."""
    why = Counter(mutant.detail for mutant in mutants if mutant.kind is Kind.FAULT).most_common(1)[0][0]
    return f"No fault could be tried, so nothing is proved: {why}"


def _of_sweep(run: Run) -> tuple[Verdict, str]:
    counts = cell_counts(run)
    for verdict in WORST_FIRST[:3]:
        if counts[verdict]:
            causes = f", {many(len(run.groups), 'cause')}" if run.groups else ""
            return verdict, f"{counts[verdict]:,} of {many(len(run.cells), 'cell')} {verdict}{causes}"
    if run.problems:
        return Verdict.INCONCLUSIVE, "The sweep is not finished, or its known deviations are not up to date"
    return Verdict.PASSED, f"{_holds(run)} in {many(len(run.cells), 'cell')}{_as_listed(run)}"


def _holds(run: Run) -> str:
    return "Nothing new is wrong" if run.counts[Verdict.KNOWN] else "The contract holds"


def _as_listed(run: Run) -> str:
    known = run.counts[Verdict.KNOWN]
    return f", {many(known, 'case')} {'deviates' if known == 1 else 'deviate'} as listed" if known else ""


def cell_counts(run: Run) -> Counter[Verdict]:
    """Of a sweep, how many cells have each verdict."""
    return Counter(cell.verdict for cell in matrix(run).cells.values())


def counted(run: Run) -> str:
    """What ran, in counts that add up."""
    if run.cells:
        counts = cell_counts(run)
        told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
        return f"{many(len(run.cells), 'cell')}: {told or 'none'}"
    if run.rows:
        faults = [row.as_expected for row in run.rows if row.kind is Kind.FAULT]
        right = [row.as_expected for row in run.rows if row.kind is not Kind.FAULT]
        caught = f"{sum(faults)} of {len(faults)} faults caught"
        return f"{caught}, {sum(right)} of {len(right)} correct implementations and controls passed"
    if run.mutants:
        found = Counter(mutant.outcome for mutant in run.mutants)
        could, asked = tried(run.mutants)
        faults = f"{could} of {many(asked, 'fault')} could be tried; " if asked else ""
        cells = ", ".join(f"{found[one]} {one}" for one in Outcome if found[one])
        return f"{faults}{many(len(run.mutants), 'cell')}: {cells}"
    counts = ", ".join(f"{count} {verdict}" for verdict, count in run.counts.items() if count)
    return f"{many(len(run.cases), 'case')}: {counts or 'none'}"

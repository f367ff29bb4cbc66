"""A run as JUnit XML, which CI systems show as a list of tests.

A suite a target, a test a clause and precision; of the failure table a test a row, of the mutation check a test a cell.
What errored and what could not be told are errors, for neither is a pass; what is unsupported is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from xml.etree import ElementTree

from ..harness.mutation import Mutant
from ..harness.results import Case
from ..harness.run import Run
from ..harness.table import TableRow
from .text import visible

LONGEST = 4000
"""Characters of one text; the result file has the rest."""
TAGS = {
    "failed": "failure",
    "survived": "failure",
    "flagged": "failure",
    "equivalent": "failure",
    "errored": "error",
    "inconclusive": "error",
    "unsupported": "skipped",
    "not applicable": "skipped",
    "known": "skipped",
}
"""By verdict or outcome; what is not here is a pass."""


@dataclass(frozen=True)
class Test:
    """One line in a CI system's list. `tag` is failure, error or skipped, or empty for a pass."""

    suite: str
    name: str
    tag: str = ""
    kind: str = ""
    message: str = ""
    text: str = ""
    seconds: float = 0.0


def render_junit(run: Run) -> str:
    """The document, with an XML declaration."""
    root = ElementTree.Element("testsuites", {"name": _legal(f"kvconform {run.header.command}")})
    tests = sorted(_tests(run), key=lambda test: test.suite)
    for suite, inside in groupby(tests, key=lambda test: test.suite):
        _suite(root, suite, list(inside), run)
    root.attrib |= _counts(tests)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(root: ElementTree.Element, name: str, tests: list[Test], run: Run) -> None:
    about = {"name": _legal(name), **_counts(tests), "skipped": _count(tests, "skipped")}
    suite = ElementTree.SubElement(root, "testsuite", about)
    properties = ElementTree.SubElement(suite, "properties")
    made = {"seed": str(run.header.seed), "profile": run.header.profile, **run.header.versions}
    for key, value in made.items():
        ElementTree.SubElement(properties, "property", {"name": _legal(key), "value": _legal(value)})
    for test in tests:
        about = {"classname": _legal(name), "name": _legal(test.name), "time": f"{test.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", about)
        if test.tag == "skipped":
            ElementTree.SubElement(case, "skipped", {"message": _legal(test.message)})
        elif test.tag:
            told = ElementTree.SubElement(case, test.tag, {"type": _legal(test.kind), "message": _legal(test.message)})
            told.text = _legal(test.text or test.message)


def _tests(run: Run) -> Iterator[Test]:
    """Of the failure table the rows count, whose faults are meant to fail; else the cases. Then cells and problems."""
    yield from map(_of_row, run.rows) if run.rows else map(_of_case, run.cases)
    yield from map(_of_mutant, run.mutants)
    for number, problem in enumerate(run.problems, 1):
        yield Test("kvconform: the check itself", f"problem {number}", "failure", "problem", problem)


def _of_case(case: Case) -> Test:
    told = "\n\n".join(
        "\n".join(
            part
            for part in (
                finding.detail,
                f"at op {finding.step} ({finding.op}), token {finding.token}: {finding.program}",
                finding.diagnosis and f"diagnosis: {finding.diagnosis}",
                finding.located and f"located: {finding.located}",
                f"reproduce with: {finding.reproduce}",
            )
            if part
        )
        for finding in case.findings
    )
    return Test(
        case.target, f"{case.clause} [{case.dtype}]", TAGS.get(case.verdict, ""), case.verdict, case.reason, told, case.seconds
    )


def _of_row(row: TableRow) -> Test:
    if row.as_expected:
        return Test("failure table", row.target)
    return Test("failure table", row.target, "failure", row.verdict, f"it is {row.kind}, and {row.verdict}", row.diagnosis)


def _of_mutant(mutant: Mutant) -> Test:
    return Test(mutant.target, mutant.fault, TAGS.get(mutant.outcome, ""), mutant.outcome, mutant.detail)


def _counts(tests: Iterable[Test]) -> dict[str, str]:
    tests = list(tests)
    return {
        "tests": str(len(tests)),
        "failures": _count(tests, "failure"),
        "errors": _count(tests, "error"),
        "time": f"{sum(test.seconds for test in tests):.3f}",
    }


def _count(tests: Iterable[Test], tag: str) -> str:
    return str(sum(test.tag == tag for test in tests))


def _legal(text: str) -> str:
    """A text that every XML reader takes: what XML forbids is written out, and so is what turns the text around it."""
    return visible(text, kept="\n", longest=LONGEST)

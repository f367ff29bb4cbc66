"""JUnit XML as CI systems read it."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness.mutation import Outcome
from kvconform.harness.run import Run
from kvconform.harness.trial import Verdict
from kvconform.reports.junit import render_junit
from report_runs import CAUGHT, FAILED, FINDING, PASSED, ROW, RUNS, run

ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors", "disabled"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id", "package"},
    "properties": set[str](),
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time", "assertions", "status"},
    "skipped": {"message"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
}
"""What the schema of Jenkins's JUnit reader allows; `name` and, of a property, `value` are required."""
INSIDE = {"testsuites": {"testsuite"}, "testsuite": {"properties", "testcase"}, "properties": {"property"}}


def read(of: Run) -> ElementTree.Element:
    """The document, held against the rules of the schema that CI systems share, and its counts against its content."""
    root = ElementTree.fromstring(render_junit(of))
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag]
        inside = [child.tag for child in element]
        if element.tag == "testcase":
            assert len(inside) <= 1
            assert set(inside) <= {"skipped", "failure", "error"}
        else:
            assert set(inside) <= INSIDE.get(element.tag, set())
        if element.tag == "testsuite":
            assert inside.index("properties") == 0
            assert inside.count("properties") == 1
        if element.tag in ("testsuites", "testsuite"):
            for name, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
                if name in element.attrib:
                    assert int(element.attrib[name]) == len(list(element.iter(tag)))
        if element.tag in ("testsuite", "testcase", "property"):
            assert element.attrib["name"]
    return root


@pytest.mark.parametrize("kind", RUNS)
def test_every_kind_of_run_keeps_to_the_schema(kind: str) -> None:
    read(RUNS[kind])


@pytest.mark.parametrize(
    ("verdict", "tag"),
    [
        (Verdict.PASSED, None),
        (Verdict.FAILED, "failure"),
        (Verdict.ERRORED, "error"),
        (Verdict.INCONCLUSIVE, "error"),
        (Verdict.UNSUPPORTED, "skipped"),
    ],
)
def test_a_case_is_a_test_of_its_target(verdict: Verdict, tag: str | None) -> None:
    (case,) = read(run(replace(PASSED, verdict=verdict, reason="because", seconds=1.25))).iter("testcase")
    assert case.attrib == {"classname": PASSED.target, "name": "decode.incremental [float32]", "time": "1.250"}
    assert [child.tag for child in case] == ([tag] if tag else [])
    if tag:
        assert case[0].attrib["message"] == "because"


def test_a_failure_says_what_happened_and_how_to_see_it_again() -> None:
    (failure,) = read(run(FAILED)).iter("failure")
    for part in (FINDING.detail, FINDING.program, str(FINDING.diagnosis), FINDING.reproduce):
        assert part in str(failure.text)


def test_of_the_table_rows_count_whose_faults_are_meant_to_fail() -> None:
    passed = replace(ROW, target="builtin:gpt/overlooked", verdict=Verdict.PASSED)
    root = read(run(FAILED, rows=(ROW, passed), problems=("overlooked was not caught",)))
    assert [case.attrib["name"] for case in root.iter("testcase")] == [ROW.target, passed.target, "problem 1"]
    assert [failure.attrib["message"] for failure in root.iter("failure")] == [
        "it is fault, and passed",
        "overlooked was not caught",
    ]


@pytest.mark.parametrize("outcome", Outcome)
def test_of_the_mutation_check_survivors_fail(outcome: Outcome) -> None:
    (case,) = read(run(mutants=(replace(CAUGHT, outcome=outcome),))).iter("testcase")
    bad = {Outcome.SURVIVED: "failure", Outcome.FLAGGED: "failure", Outcome.EQUIVALENT: "failure", Outcome.ERRORED: "error"}
    tag = bad.get(outcome, "skipped" if outcome is Outcome.NOT_APPLICABLE else None)
    assert [child.tag for child in case] == ([tag] if tag else [])


@given(st.text() | st.sampled_from(["]]>", "<!--", "&#0;", "\ud800", "\x00", "\ufffe", "\u202e"]))
@settings(max_examples=100, deadline=None)
def test_any_text_is_legal_xml_and_stays_text(text: str) -> None:
    failed = replace(FAILED, target="x" + text, clause="x" + text, reason=text, findings=(replace(FINDING, detail=text),))
    source = render_junit(replace(run(failed), problems=(text,)))
    source.encode()
    assert "\u202e" not in source
    read(replace(run(failed), problems=(text,)))

"""What could not be judged for one reason is told once, wherever it is told, and the counts still add up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from kvconform.harness.results import Case
from kvconform.harness.trial import Verdict
from kvconform.reports.causes import FEW, unjudged_together
from kvconform.reports.html import render_html
from kvconform.reports.markdown import render_markdown
from kvconform.reports.terminal import check_report
from report_runs import FAILED, PASSED, run

WHY = "the adapter is at fault, not the cache: adapter.answers failed"
DOUBTFUL = Case("py:mine.py:Mine", "x", "float32", Verdict.INCONCLUSIVE, WHY)


def doubtful(count: int) -> list[Case]:
    return [replace(DOUBTFUL, clause=f"family.clause{number}") for number in range(count)]


CASES = st.builds(
    lambda clause, dtype, verdict, reason: replace(DOUBTFUL, clause=clause, dtype=dtype, verdict=verdict, reason=reason),
    st.sampled_from("abcdefg"),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(list(Verdict)),
    st.sampled_from(["", "why"]),
)


@given(st.lists(CASES, max_size=30))
def test_every_case_is_in_one_line(cases: Sequence[Case]) -> None:
    lines = unjudged_together(cases)
    assert sorted(map(repr, (case for line in lines for case in line))) == sorted(map(repr, cases))
    for line in lines:
        assert len(line) == 1 or len(line) > FEW
        assert len({(case.dtype, case.verdict, case.reason) for case in line}) == 1
        assert len(line) == 1 or line[0].verdict in (Verdict.ERRORED, Verdict.INCONCLUSIVE)


def test_a_failed_smoke_stage_is_told_in_one_line() -> None:
    found = run(FAILED, *doubtful(28), PASSED)
    text = check_report(found, {})
    (line,) = [line for line in text.splitlines() if WHY in line and "clauses" in line]
    assert re.match(r"28 clauses +float32 +inconclusive ", line)
    assert "(30 cases: 1 passed, 1 failed, 28 inconclusive;" in text
    markdown = render_markdown(found, {})
    assert markdown.count(f"`{WHY}`") == 1
    assert "| `28 clauses` |" in markdown
    page = render_html(found).partition('id="reasons"')[2]
    assert page.count(f'<td class="text">{WHY}</td>') == 1


def test_a_few_keep_a_line_each() -> None:
    text = check_report(run(*doubtful(FEW)), {})
    assert text.count("inconclusive  ") == FEW

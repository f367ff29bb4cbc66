"""The HTML report: one file that loads nothing, shows everything, and takes no orders from what it shows."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser

import pytest
from kvconform.harness.fault import Kind
from kvconform.harness.mutation import Outcome
from kvconform.harness.run import Run
from kvconform.harness.trial import Verdict
from kvconform.reports import html
from kvconform.reports.html import LARGEST, MOST, render_html
from kvconform.reports.markdown import render_markdown
from kvconform.reports.plot import HEAD, MOST_POINTS, ZERO, plot
from kvconform.reports.table import size
from kvconform.reports.text import LONGEST
from kvconform.reports.timeline import timeline
from report_runs import CAUGHT, FAILED, FINDING, KNOWN, PASSED, ROW, RUNS, many_findings, run

VOID = {"meta", "input", "br"}
APART = {"dt", "dd", "li", "p", "td", "th", "h3"}
WRITTEN_OUT = "<script>alert(1)</script>\"' onclick=x⏎\\u0009\\u001b[31m\\u0000\\u202eevil\\u2066 שלום &amp; {{ 7 * 7 }}"


class Page(HTMLParser):
    """A page read strictly: every element closed in turn, no attribute twice, no id twice."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source, self.text = source, ""
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(source)
        self.close()
        assert not self._open, f"never closed: {self._open}"
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(ids) == len(set(ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len({name for name, _ in attrs}), attrs
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes nothing"
        self.text += " " * (tag in APART)

    def handle_data(self, data: str) -> None:
        if "script" in self._open:
            self.scripts.append(data)
        elif "style" not in self._open:
            self.text += data

    def all(self, tag: str, **wanted: str) -> list[dict[str, str]]:
        """The attributes of every such element; `class_` is looked for among the classes."""
        return [
            attributes
            for name, attributes in self.elements
            if name == tag
            and all(
                value in attributes.get("class", "").split() if key == "class_" else attributes.get(key) == value
                for key, value in wanted.items()
            )
        ]


@pytest.fixture(params=RUNS)
def page(request: pytest.FixtureRequest) -> Page:
    return Page(render_html(RUNS[request.param], {"decode.incremental": "Every step gives the right logits."}))


def test_nothing_is_loaded_from_anywhere(page: Page) -> None:
    assert not {"link", "img", "iframe", "base", "object", "embed", "form action"} & {tag for tag, _ in page.elements}
    for tag, attributes in page.elements:
        assert "src" not in attributes, tag
        assert attributes.get("href", "#").startswith("#"), attributes
    assert not re.search(r"https?://|@import|url\((?!#)", page.source)


def test_every_link_leads_somewhere(page: Page) -> None:
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    for link in page.all("a"):
        assert link["href"][1:] in ids


def test_only_the_reports_own_script_may_run(page: Page) -> None:
    (script,) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert f"script-src 'sha256-{digest}';" in policy["content"]
    assert "default-src 'none'" in policy["content"]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


def test_no_character_steers_the_page(page: Page) -> None:
    page.source.encode()  # a lone surrogate would stop the file from being written
    assert not re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", page.source)


def test_hostile_text_is_shown_as_text() -> None:
    page = Page(render_html(RUNS["hostile"]))
    shown = page.text.replace("onclick=x\n", "onclick=x⏎")  # an error text and a source keep their lines
    assert shown.count(WRITTEN_OUT) > 30
    assert any(WRITTEN_OUT in cell.get("title", "") for cell in page.all("td"))
    assert len(page.scripts) == 1


def test_a_name_is_kept_apart_from_what_stands_around_it() -> None:
    """A name in a script that runs from right to left may not turn the line that it stands in."""
    assert render_html(RUNS["hostile"]).count("<bdi>&lt;script&gt;") >= 6


def test_an_empty_run_says_so() -> None:
    page = Page(render_html(RUNS["empty"]))
    assert "Nothing was judged" in page.text
    assert not page.all("table")


@pytest.mark.parametrize(
    ("found", "line", "verdict"),
    [
        (run(PASSED), "The contract holds: 1 case passed", "passed"),
        (run(PASSED, FAILED), "1 of 2 cases failed", "failed"),
        (run(PASSED, replace(PASSED, verdict=Verdict.ERRORED)), "1 of 2 cases errored", "errored"),
        (run(replace(PASSED, verdict=Verdict.INCONCLUSIVE)), "1 of 1 case inconclusive", "inconclusive"),
        (run(replace(PASSED, verdict=Verdict.UNSUPPORTED)), "Nothing was judged", "inconclusive"),
        (run(KNOWN, PASSED), "Nothing new is wrong: 1 case passed, 1 case deviates as listed", "passed"),
        (run(FAILED, rows=(ROW,)), "Every fault is caught", "passed"),
        (run(FAILED, rows=(replace(ROW, kind=Kind.CORRECT),)), "1 of 1 implementation not as expected", "failed"),
        (run(mutants=(CAUGHT,)), "Every fault is caught", "passed"),
        (run(mutants=(replace(CAUGHT, outcome=Outcome.SURVIVED),), problems=("it survives",)), "1 problem with", "failed"),
        (run(mutants=(replace(CAUGHT, outcome=Outcome.ERRORED),)), "Not every fault could be judged", "errored"),
    ],
)
def test_the_headline(found: Run, line: str, verdict: str) -> None:
    page = Page(render_html(found))
    assert line in page.text
    (bar,) = re.findall(r"<header.*?</header>", page.source, re.DOTALL)
    assert f'class="badge {verdict}"' in bar


def test_how_the_run_was_made_and_what_it_counted() -> None:
    text = " ".join(Page(render_html(RUNS["check"])).text.split())
    for part in ("kvconform check", "Seed 7", "Profile quick", "torch 2.15.0", "kvconform 0.1.0"):
        assert part in text
    assert "3 cases: 1 ✓ passed 1 ✗ failed 0 ! errored 1 – unsupported 0 ? inconclusive 0 ≈ known" in text


def test_a_finding_says_what_was_promised_what_happened_and_how_to_see_it_again() -> None:
    text = " ".join(Page(render_html(run(FAILED), {"decode.incremental": "Every step is right."})).text.split())
    for part in (
        "Every step is right.",
        "max |Δlogit| 1.62, allowed 0.0001 (absolute 0.0001), at op 2 (append), token 1.",
        "max |Δ| 1.62 float32",
        "size 1.62 (16,170 × allowed) allowed 0.0001 (absolute 0.0001) floor 1.3e-06",
        "positions restart at 0 on every call",
        "one of 16 that fail this way",
        "append a 379 511 114; append a 17 552",
        FINDING.reproduce,
    ):
        assert part in text


def test_the_first_thing_said_is_what_is_wrong_and_how_to_see_it() -> None:
    """Below the verdict, before how the run was made: the diagnosis, the smallest program, the command."""
    text = " ".join(Page(render_html(RUNS["check"])).text.split())
    top = text[text.index("fails 1 of 1 clause: positions restart at 0 on every call") : text.index("Seed 7")]
    for part in (FINDING.program, f"See it: {FINDING.reproduce}"):
        assert part in top


def test_a_known_deviation_is_no_failure_and_says_where_it_is_listed() -> None:
    page = Page(render_html(RUNS["known"]))
    (finding,) = page.all("details", class_="finding")
    assert finding["data-status"] == "known"
    assert "open" not in finding
    assert "it is listed: entry 1" in page.text


def test_what_a_diagnosis_cannot_tell_apart_is_cut_and_counted() -> None:
    unsure = replace(FINDING.diagnosis, candidates=tuple(f"shifted by {offset}" for offset in range(22)))
    text = Page(render_html(run(replace(FAILED, findings=(replace(FINDING, diagnosis=unsure),))))).text
    assert "Or: shifted by 0; shifted by 1; shifted by 2; shifted by 3; shifted by 4 and 17 others" in text


def test_a_finding_without_figures() -> None:
    bare = replace(FINDING, curve=(), allowed=None, floor=None, detail="", divergence="raised", tolerance="", diagnosis=None)
    text = " ".join(Page(render_html(run(replace(FAILED, findings=(bare,))))).text.split())
    assert "size" not in text
    assert "there is no curve" in text
    unread = replace(bare, divergence="logits", difference=None)  # pyright: ignore[reportArgumentType]
    assert "size — allowed — floor —" in " ".join(Page(render_html(run(replace(FAILED, findings=(unread,))))).text.split())


def test_many_findings_are_cut_and_counted() -> None:
    page = Page(render_html(many_findings(targets=60, clauses=6, each=3)))
    assert len(page.all("details", class_="finding")) == MOST == 200
    assert "The first 200 of 720 distinct findings" in page.text


def test_one_bug_in_several_clauses_and_precisions_is_one_finding() -> None:
    """The same program on the same implementation: told once, and linked from every clause that it breaks."""
    double = replace(FINDING, dtype="float64")
    chunked = replace(FINDING, clause="prefill.chunked")
    cases = [replace(FAILED, clause=found.clause, dtype=found.dtype, findings=(found,)) for found in (double, FINDING, chunked)]
    page = Page(render_html(run(*cases, replace(PASSED, target=FINDING.target, clause="branch.crop"))))
    assert len(page.all("details", class_="finding")) == 1
    text = " ".join(page.text.split())
    assert "1 distinct finding, " in text
    assert "float64, float32" in text
    assert "Breaks too prefill.chunked" in text
    assert len([link for link in page.all("a") if link["href"] == "#finding-1"]) == 3


def test_a_finding_of_a_fault_shows_the_override_that_is_the_bug() -> None:
    shown = Page(render_html(run(FAILED, rows=(replace(ROW, target=FINDING.target),)))).text
    assert shown.count(ROW.override) == 2
    correct = Page(render_html(run(FAILED, rows=(replace(ROW, target=FINDING.target, kind=Kind.CORRECT),)))).text
    assert correct.count(ROW.override) == 1


def test_a_large_run_stays_small() -> None:
    source = render_html(many_findings(targets=150, clauses=40, each=2))
    assert len(source.encode()) < LARGEST
    assert "150 implementations, 40 clauses" in source


def test_a_sweep_has_models_and_causes_beside_its_clauses() -> None:
    page = Page(render_html(RUNS["sweep"]))
    text = " ".join(page.text.split())
    assert "3 of 3 cells failed, " in text
    assert page.all("section", id="swept")
    assert page.all("section", id="clauses")
    assert page.all("details", id="cause-1")
    links = [link["href"] for link in page.all("a")]
    assert links.count("#cause-1") >= 4  # at the top, and in the cell of each model


def test_a_page_that_grows_too_large_says_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """First fewer findings, then no figures of what passed; what failed keeps them."""
    large = many_findings(targets=40, clauses=12, each=1)
    whole = Page(render_html(large))
    assert len(whole.all("details", class_="finding")) == 160
    assert all("title" in cell for cell in whole.all("td", class_="passed"))
    monkeypatch.setattr(html, "LARGEST", 1)
    least = Page(render_html(large))
    assert len(least.all("details", class_="finding")) == html.LEVELS[-1][0]
    assert "The first 5 of 160 distinct findings" in least.text
    assert not any("title" in cell for cell in least.all("td", class_="passed"))
    assert all("title" in cell for cell in least.all("td", class_="failed"))


def test_long_texts_are_cut_and_say_so() -> None:
    long = replace(FAILED, findings=(replace(FINDING, detail="x" * (LONGEST + 250), program="append a " + "1 " * 5000),))
    page = Page(render_html(run(long)))
    assert "250 characters more" in page.text
    assert "The command is too long for this page" in page.text


def test_a_cell_is_its_worst_dtype_and_tells_of_all() -> None:
    page = Page(render_html(run(PASSED, replace(PASSED, dtype="bfloat16", verdict=Verdict.INCONCLUSIVE, reason="too noisy"))))
    (cell,) = page.all("td", class_="inconclusive")
    assert cell["title"] == "float32 ✓ 1.2e-06 of 0.0001\nbfloat16 ? 1.2e-06 of 0.0001 too noisy"
    assert "?bf16" in page.text


def test_what_was_not_judged_is_told_once_a_reason() -> None:
    crop = replace(PASSED, verdict=Verdict.UNSUPPORTED, reason="it has no crop")
    page = Page(render_html(run(crop, replace(crop, clause="branch.crop"), replace(crop, target="other", reason="no past"))))
    assert len(page.all("tr", class_="reason")) == 2
    (row,) = page.all("tr", id="reason-1")
    assert row["data-families"] == "decode branch"
    assert page.text.count("it has no crop") == 1


def test_the_failure_table_has_every_column_and_the_bug() -> None:
    page = Page(render_html(run(FAILED, rows=(ROW,))))
    text = " ".join(page.text.split())
    assert "Every fault is caught, and everything correct passes 1 of 1 faults caught, " in text
    for part in ("fault 0 8.4 0 7 of 33 2 of 48 ✗ failed", "high", "prefill.identity", ROW.sentence):
        assert part in text
    assert ROW.override in page.text
    assert "a<mark>&lt;x</mark>d" in page.source


def test_what_noise_there_is_is_said_of_a_check_and_not_above_a_table() -> None:
    noisy = replace(PASSED, noise=0.01, deviation=2.0, ratio=1.0, usual=1.0)
    for render in (render_html, partial(render_markdown, sentences={})):
        assert "precision, no bug" in render(run(noisy))
        assert "precision, no bug" not in render(run(noisy, rows=(ROW,)))


def test_a_figure_that_is_missing_says_what_ended_it() -> None:
    raised = replace(ROW, prefill=0.0, incremental=None, ended_by="raised", ended_in="incremental")
    assert (size(raised, "prefill"), size(raised, "incremental")) == ("0", "raised")
    at_once = replace(raised, prefill=None, ended_by="not finite", ended_in="prefill")
    assert (size(at_once, "prefill"), size(at_once, "incremental")) == ("NaN", "NaN")
    branch = replace(raised, prefill=None)  # a branch has no prefill of its own
    assert (size(branch, "prefill"), size(branch, "incremental")) == ("—", "raised")
    assert size(replace(ROW, incremental=math.nan), "incremental") == "NaN"
    assert "raised" in " ".join(Page(render_html(run(FAILED, rows=(raised,)))).text.split())


def test_a_row_without_figures() -> None:
    empty = {"first_token": None, "prefill": None, "incremental": None, "changed": None, "first_changed": None, "text": ""}
    text = Page(render_html(run(FAILED, rows=(replace(ROW, **empty),)))).text  # pyright: ignore[reportArgumentType]
    assert "No text is generated in this scenario." in text
    stopped = replace(ROW, text="ab", changed=46, incremental=math.nan)
    assert "ends here" in Page(render_html(run(FAILED, rows=(stopped,)))).text


def test_faults_stand_with_the_problems_first() -> None:
    survivor = replace(CAUGHT, fault="zz_survivor", outcome=Outcome.SURVIVED, detail="it moves logits")
    apart = replace(CAUGHT, fault="aa_apart", outcome=Outcome.NOT_APPLICABLE, detail="for llama only")
    text = Page(render_html(run(mutants=(CAUGHT, apart, survivor)))).text
    assert text.index("zz_survivor") < text.index("no_mask") < text.index("aa_apart")
    assert "1 not applicable" in text


def test_the_plot_has_a_place_for_zero_and_for_what_is_not_finite() -> None:
    drawn = plot([(0, 0.0), (1, 1e-3), (2, math.nan), (3, math.inf)], allowed=1e-4, floor=1e-6)
    assert drawn is not None
    heights = [int(place.split(",")[1]) for place in drawn.segments[0].split()]
    assert heights[0] == ZERO
    assert heights[2:4] == [HEAD, HEAD]
    assert drawn.has_zero
    assert drawn.has_unbounded
    assert drawn.bad.count("M") == 3
    (_, allowed, _, _), (_, floor, _, _) = drawn.bounds
    assert heights[1] < allowed < floor < ZERO


def test_the_plot_marks_landmarks_that_the_curve_passes() -> None:
    curve = [(token, 1e-6) for token in range(9, 15)]
    drawn = plot(curve, allowed=1e-4, floor=None, landmarks=(9, 12, 15))
    assert drawn is not None
    places = [int(place.split(",")[0]) for place in drawn.segments[0].split()]
    ((x, landmark),) = drawn.landmarks
    assert landmark == 12
    assert places[2] < x < places[3]  # between tokens 11 and 12: a cache of 12 tokens


def test_the_plot_of_zeros_alone() -> None:
    drawn = plot([(0, 0.0), (1, 0.0)], allowed=0.0, floor=None)
    assert drawn is not None
    assert (drawn.grid, drawn.bad) == ((), "")


def test_the_plot_joins_no_two_pasts() -> None:
    """Where the token index goes back, another cache or a rollback begins."""
    drawn = plot([(0, 1.0), (1, 1.0), (1, 1.0), (2, 1.0)], allowed=None, floor=None)
    assert drawn is not None
    assert len(drawn.segments) == 2


def test_a_long_plot_keeps_its_peak() -> None:
    drawn = plot([(token, 1.0 if token == 777 else 1e-6) for token in range(5000)], allowed=1e-4, floor=None)
    assert drawn is not None
    assert drawn.peak[2] == "1"
    assert drawn.bad.count("M") == 1
    assert len(drawn.segments[0].split()) <= MOST_POINTS + 1


def test_labels_of_the_plot_do_not_lie_on_each_other() -> None:
    drawn = plot([(0, 1.0)], allowed=1.00e-14, floor=0.99e-14)
    assert drawn is not None
    assert drawn.bounds[1][2] - drawn.bounds[0][2] >= 12
    assert plot([], allowed=1.0, floor=None) is None


def test_the_timeline_shows_caches_side_by_side() -> None:
    beats = timeline("append a 1 2; fork a b; append b 3; append a! 99; join a b; append a 4 | 4; drop a")
    assert [beat.rails for beat in beats] == ["●", "●─╮", "│ ●", "○ │", "●─╯", "●", "●"]
    assert [beat.length for beat in beats] == [2, 2, 3, 2, 3, 4, 0]


def test_the_timeline_passes_over_caches_that_are_not_touched() -> None:
    beats = timeline("append a 1; append b 1; append c 1; fork a d; drop b; join c a")
    assert [beat.rails for beat in beats][3:] == ["●─┼─┼─╮", "│ ● │ │", "╰───● │"]


@pytest.mark.parametrize("program", ["", "no program", "crop a 3", "append a " + "1 " * 2000])
def test_a_program_that_cannot_be_drawn_is_shown_as_text(program: str) -> None:
    assert timeline(program) == []
    assert Page(render_html(run(replace(FAILED, findings=(replace(FINDING, program=program),)))))

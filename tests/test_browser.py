"""The HTML report in a real browser: what a reader does with it, and that nothing in it does anything by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kvconform.reports.html import render_html
from playwright.sync_api import Browser, Page, expect, sync_playwright
from report_runs import RUNS, many_findings

pytestmark = pytest.mark.needs("chromium")
SIZES = {"wide": 1280, "phone": 390}


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def shown(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens a page from its file. Afterwards: it has asked nobody for anything, and nothing went wrong."""
    context = browser.new_context()
    asked: list[str] = []
    wrong: list[str] = []

    def show(source: str, width: int = 1280, scheme: str = "light") -> Page:
        path = tmp_path / "report.html"
        path.write_text(source, encoding="utf-8")
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)  # pyright: ignore[reportArgumentType]
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.goto(path.as_uri())
        return page

    yield show
    context.close()
    assert {url.partition("#")[0] for url in asked} == {(tmp_path / "report.html").as_uri()}
    assert not wrong


@pytest.fixture(params=RUNS)
def source(request: pytest.FixtureRequest) -> str:
    return render_html(RUNS[request.param], {"decode.incremental": "Every step gives the right logits."})


@pytest.mark.parametrize("width", SIZES.values(), ids=SIZES)
def test_the_page_is_never_wider_than_the_screen(width: int, source: str, shown: Callable[..., Page]) -> None:
    page = shown(source, width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for link in page.locator(".bar nav a:visible").all():
        box = link.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width, link.inner_text()


def test_the_page_follows_the_readers_light_or_dark(shown: Callable[..., Page]) -> None:
    """And every text stands out from what is behind it: 4.5 to 1 and more, in both."""
    source = render_html(RUNS["table"])
    for scheme in ("light", "dark"):
        page = shown(source, scheme=scheme)
        page.locator(".expand").click()
        page.locator(".toggle").first.click()
        assert not page.evaluate(FAINT)
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(18, 21, 24)") == (scheme == "dark")


FAINT = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255).map((c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0);
  const behind = (one) => { for (; one; one = one.parentElement) {
    const rgb = parse(getComputedStyle(one).backgroundColor); if (rgb.length === 3 || rgb[3] > 0) return rgb; } };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
  for (let node; node = walker.nextNode();) {
    const one = node.parentElement;
    if (!node.data.trim() || !one.checkVisibility() || one.closest("script, svg, [aria-hidden=true]")) continue;
    const [a, b] = [light(parse(getComputedStyle(one).color)), light(behind(one))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) faint.push(node.data);
  }
  return faint.join("; ");
}"""


def test_filters_show_what_fits_and_say_how_much(shown: Callable[..., Page]) -> None:
    page = shown(render_html(many_findings(targets=12, clauses=9, each=1)))
    rows = page.locator("#matrix tbody tr:not(.more)")
    columns = page.locator("#matrix .names th[data-clause]")
    output = page.locator(".filters output")
    page.get_by_label("Filter by text").fill("model-7")
    expect(rows.locator("visible=true")).to_have_count(1)
    expect(page.locator(".finding:visible")).to_have_count(4)
    expect(output).to_have_text("Showing 1 of 12 implementations, 9 of 9 clauses, 4 of 48 findings")
    page.get_by_role("button", name="Clear").click()
    expect(rows.locator("visible=true")).to_have_count(12)

    page.get_by_label("failed").check()
    expect(columns.locator("visible=true")).to_have_count(4)
    page.get_by_label("Clause family").select_option("family2")
    expect(columns.locator("visible=true")).to_have_count(1)
    expect(output).to_contain_text("12 of 12 implementations, 1 of 9 clauses")
    page.get_by_label("Filter by text").fill("no such thing")
    expect(output).to_contain_text("Showing 0 of 12 implementations, 0 of 9 clauses, 0 of 48 findings")


def test_the_filter_reaches_the_matrix_and_the_causes_of_a_sweep(shown: Callable[..., Page]) -> None:
    page = shown(render_html(RUNS["sweep"]))
    signs, models = page.locator("#swept td").first.locator("span"), page.locator("#swept tbody tr")
    output = page.locator(".filters output")
    page.get_by_label("passed").check()
    expect(signs.and_(page.locator(".dim"))).to_have_count(4)
    expect(output).to_have_text(
        "Showing 3 of 3 models, 3 of 3 implementations, 2 of 6 clauses, 0 of 1 causes, 0 of 12 findings"
    )
    page.get_by_label("Clause family").select_option("family4")
    expect(signs.and_(page.locator(".dim"))).to_have_count(5)
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#swept .dim")).to_have_count(0)
    page.get_by_label("Filter by text").fill("model-1")
    expect(models.locator("visible=true")).to_have_count(1)


def test_the_filter_reaches_the_failure_table_and_the_faults(shown: Callable[..., Page]) -> None:
    page = shown(render_html(RUNS["table"]))
    page.get_by_label("Filter by text").fill("gpt/b")
    expect(page.locator("#table .entry:visible")).to_have_count(1)
    expect(page.locator(".filters output")).to_contain_text("1 of 2 rows, ")
    page = shown(render_html(RUNS["mutate"]))
    page.get_by_label("passed").check()
    expect(page.locator(".filters output")).to_have_text("Showing 1 of 1 faults")


def test_a_sign_says_what_it_stands_for(shown: Callable[..., Page]) -> None:
    page = shown(render_html(RUNS["sweep"]))
    sign = page.locator("#swept td").first.locator("span").nth(5)
    sign.hover()
    expect(sign).to_have_attribute("title", re.compile("^family5: passed"))


def test_a_cell_leads_to_its_finding_by_keyboard_alone(shown: Callable[..., Page]) -> None:
    page = shown(render_html(RUNS["check"]))
    finding = page.locator("#finding-1")
    finding.evaluate("one => { one.open = false; }")
    page.locator("#matrix td a").first.focus()
    page.keyboard.press("Enter")
    expect(finding).to_have_attribute("open", "")
    expect(finding.locator(".block", has_text="kvconform replay")).to_be_in_viewport()
    finding.locator("> summary").focus()
    page.keyboard.press("Space")
    expect(finding).not_to_have_attribute("open", "")


def test_a_row_opens_and_lists_all_of_its_cases(shown: Callable[..., Page]) -> None:
    page = shown(render_html(RUNS["check"]))
    toggle = page.locator("#matrix .toggle").first
    toggle.focus()
    page.keyboard.press("Enter")
    expect(toggle).to_have_attribute("aria-expanded", "true")
    expect(page.locator("#matrix tr.more dt")).to_have_text(["decode.incremental"])
    page.keyboard.press("Enter")
    expect(page.locator("#matrix tr.more")).to_be_hidden()


def test_the_command_is_copied(shown: Callable[..., Page]) -> None:
    page = shown(render_html(RUNS["check"]))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".copy").first.click()
    expect(page.locator(".copy").first).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == RUNS["check"].cases[0].findings[0].reproduce


def test_on_paper_everything_is_open_and_dark_on_light(shown: Callable[..., Page]) -> None:
    page = shown(render_html(RUNS["table"]), scheme="dark")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    expect(page.locator(".bar")).to_be_hidden()
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(29, 33, 37)"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.finding[open]").count() == 0


def test_hostile_text_stays_text(shown: Callable[..., Page]) -> None:
    """The `shown` fixture sees to it that no script ran and nothing was loaded."""
    page = shown(render_html(RUNS["hostile"]))
    page.locator(".expand").click()
    assert page.locator("script").count() == 1
    assert page.locator("main script, main style, [onclick]").count() == 0
    assert page.locator("#finding-1").inner_text().count("<script>alert(1)</script>") >= 5
    assert page.evaluate("document.body.innerText.includes('{{ 7 * 7 }}')")

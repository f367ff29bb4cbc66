"""How quickly the page of a large run opens and filters in a real browser.

    python benchmarks/report_page.py > docs/evidence/report_page.md

The run has 150 implementations × 40 clauses in one precision; one clause in ten fails, each by a program of its own.
Measured is how long the page's main thread is busy, in processor time, from the change to the second frame behind it: what
a reader waits for on a machine that does nothing else, whatever this one does meanwhile.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from kvconform.reports.html import render_html
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from report_runs import many_findings

TARGETS, CLAUSES, REPEATS = 150, 40, 5
FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
WAIT = 80
TYPE = "const f = document.querySelector('[name=text]'); f.value = %r; f.dispatchEvent(new Event('input', {bubbles: true}));"
CLICK = "document.querySelector(%r).click();"
FILTERS = {
    "a text that fits one implementation": TYPE % "model-77?",
    "a text that fits all": TYPE % "model",
    "no text": TYPE % "",
    "only what failed": CLICK % "[name=status][value=failed]",
    "everything again": CLICK % ".filters [type=reset]",
}


class Busy:
    """How long the page's main thread was busy, in milliseconds of processor time."""

    def __init__(self, page: Page) -> None:
        self.page, self.session = page, page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def during(self, step: Callable[[], object]) -> float:
        before = self._total()
        step()
        self.page.wait_for_timeout(WAIT)
        self.page.evaluate(FRAMES)
        return (self._total() - before) * 1000

    def _total(self) -> float:
        found = self.session.send("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in found if metric["name"] == "TaskDuration")


def main() -> None:
    source = render_html(many_findings(TARGETS, CLAUSES, 1))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        path.write_text(source, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        busy = Busy(page)
        times: dict[str, list[float]] = {}
        for _ in range(REPEATS):
            page.goto("about:blank")
            times.setdefault("open the page", []).append(busy.during(partial(page.goto, path.as_uri())))
            for name, change in FILTERS.items():
                times.setdefault(f"filter: {name}", []).append(busy.during(partial(page.evaluate, change)))
        version = browser.version
        browser.close()
    print(f"# The page of {TARGETS} implementations × {CLAUSES} clauses\n")
    print(f"{len(source.encode()) / 1e6:.2f} MB, {TARGETS * CLAUSES:,} cases, {TARGETS * 4} distinct findings of which 200 are")
    print(f"shown. Chromium {version}, headless, on a {platform.machine()} with two cores; medians of {REPEATS}.\n")
    print("| what | busy for ms |\n|:---|---:|")
    for name, each in times.items():
        print(f"| {name} | {median(each):.0f} |")


if __name__ == "__main__":
    main()

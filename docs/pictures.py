"""The pictures in the README, from real output: `make pictures`, with a Chromium on the path."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent / "images"
KVCONFORM = Path(sys.executable).with_name("kvconform")
TABLE = [f"builtin:gpt/{name}" for name in ("concat", "pos_zero", "pos_per_call", "pos_plus_100", "no_mask", "stored_in_half")]
CHECK = ["builtin:gpt/fork_shares_buffer", "--profile", "quick", "--clause", "[bdp]*"]
WIDTH = 1280


def picture(page: Page, name: str, report: Path, first: str, last: str) -> None:
    """From the top of one element to the foot of another."""
    page.goto(report.as_uri())
    page.add_style_tag(content=".bar, .filters { display: none !important; }")
    top = page.locator(first).first.bounding_box()
    foot = page.locator(last).first.bounding_box()
    assert top
    assert foot
    clip = {"x": 0, "y": top["y"] - 16, "width": WIDTH, "height": foot["y"] + foot["height"] - top["y"] + 32}
    page.screenshot(path=HERE / name, full_page=True, clip=clip)  # pyright: ignore[reportArgumentType]


def main() -> None:
    HERE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        folder = Path(made)
        for words in (["table", *TABLE], ["check", *CHECK]):  # a table's exit code is 0, a failing check's 1
            subprocess.run([KVCONFORM, *words, "--out", words[0]], cwd=folder, check=False, stdout=subprocess.DEVNULL)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, device_scale_factor=1)
        picture(page, "table.png", folder / "table" / "report.html", "#table", "#table .scroll")
        picture(page, "report.png", folder / "check" / "report.html", "#top", "#finding-1")
        browser.close()


if __name__ == "__main__":
    main()

"""The documentation as a site, by Sphinx: `make docs`.

The navigation is made from the pages that are there, so that a page needs no entry anywhere; the command line and the
catalogue of faults are generated, and so is the API, from docstrings.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kvconform
from kvconform.reports.catalogue import render_faults

HERE = Path(__file__).parent
SECTIONS = {
    "Tutorial": ("tutorial",),
    "How to": ("own-cache", "transformers", "engine", "candle", "traces", "ci", "gpu", "sweep", "triage"),
    "Reference": ("contract", "faults", "cli", "protocol", "api"),
    "Explanation": ("why-logits", "tolerances", "diagnosis"),
    "Gallery": ("gallery", "found"),
}
"""Pages by what a reader wants of them. A page that is not named here stands under More; one that is not there is left out."""

project = "kvconform"
version = release = kvconform.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["README.md"]
html_theme = "furo"
html_title = "kvconform"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
pygments_style = "default"
pygments_dark_style = "monokai"


def commands() -> str:
    """The command line, as it describes itself."""
    words = [sys.executable, "-m", "typer", "kvconform.interface.cli", "utils", "docs", "--name", "kvconform"]
    text = subprocess.run(words, capture_output=True, encoding="utf-8", check=True).stdout
    return text.replace("# `kvconform`", "# The command line", 1)


GENERATED = {"cli": commands, "faults": render_faults}
for name, make in GENERATED.items():
    path, text = HERE / f"{name}.md", make()
    if not path.exists() or path.read_text(encoding="utf-8") != text:  # an unchanged page is not built again
        path.write_text(text, encoding="utf-8")


def toctrees() -> str:
    """The navigation."""
    there = {path.stem for path in HERE.glob("*.md")}
    named = {"index", *(page for pages in SECTIONS.values() for page in pages)}
    sections = {title: [page for page in pages if page in there] for title, pages in SECTIONS.items()}
    sections["More"] = sorted(there - named)
    sections["Evidence"] = [f"evidence/{path.stem}" for path in sorted((HERE / "evidence").glob("*.md"))]
    return "\n".join(
        "\n".join(("```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""))
        for title, pages in sections.items()
        if pages
    )


def prepare(app: Any, page: str, source: list[str]) -> None:
    """What a page links to outside of this folder is not on the site: its path is said instead."""
    source[0] = re.sub(r"\[([^\]]+)\]\((?:\.\./)+(?!evidence)([^)#\s]+)[^)]*\)", r"\1 (`\2`)", source[0])
    if page == "index":
        source[0] += "\n" + toctrees()


def renewed(_app: Any, _env: Any, added: set[str], _changed: set[str], removed: set[str]) -> list[str]:
    """The navigation stands in the index: it is read again when a page comes or goes."""
    return ["index"] if added or removed else []


def setup(app: Any) -> None:
    app.connect("source-read", prepare)
    app.connect("env-get-outdated", renewed)

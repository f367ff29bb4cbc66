"""The summary of a CI job: markdown appended to the file that the environment names."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "GITHUB_STEP_SUMMARY"
"""Set by GitHub Actions, Gitea and Forgejo."""


def append_summary(markdown: str) -> str:
    """Append where the environment names a file. Gives one line of complaint where that cannot be written, which spoils
    nobody's verdict; else nothing."""
    name = os.environ.get(VARIABLE)
    if not name:
        return ""
    try:
        with Path(name).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(markdown + "\n")
    except OSError as error:
        return f"kvconform: cannot write the summary that {VARIABLE} names: {error.strerror or error}"
    return ""

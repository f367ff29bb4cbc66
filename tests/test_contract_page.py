"""docs/contract.md is what the clauses say."""

from __future__ import annotations

from pathlib import Path

from kvconform.harness import registry
from kvconform.reports.contract import render_contract


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parent.parent / "docs" / "contract.md"
    assert page.read_text(encoding="utf-8") == render_contract(), "run python -m kvconform.reports.contract > docs/contract.md"


def test_the_changelog_counts_the_clauses() -> None:
    told = (Path(__file__).parent.parent / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"The contract with its {len(registry.clauses())} clauses" in told

"""The pytest plugin: `pytest --kvconform-target builtin:gpt/concat` adds one test a clause.

It imports nothing of the package until it is asked for something, so a run without kvconform tests loads no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..harness.target import Resolved


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvconform", "conformance of key/value caches")
    group.addoption("--kvconform-target", action="append", default=[], metavar="TARGET", help="judge this target; repeatable")
    group.addoption("--kvconform-clause", default="*", metavar="PATTERN", help="ask only clauses that match, as branch.*")
    group.addoption("--kvconform-profile", default="quick", help="how much is asked: quick, default or thorough")
    group.addoption("--kvconform-max-examples", type=int, default=None, help="generated programs a clause")
    group.addoption("--kvconform-seed", type=int, default=0, help="seed of the generated programs")
    group.addoption("--kvconform-dtype", default="", help="precisions, comma-separated; the implementation's own without")


def _option(config: pytest.Config, name: str) -> Any:
    return config.getoption(name)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kvconform(target, clause): one clause of the contract asked of one implementation")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the asked targets' items before -k and -m choose among them."""
    targets: list[str] = _option(config, "--kvconform-target")
    if targets:
        items.extend(_items(session, config, targets))


def pytest_report_header(config: pytest.Config) -> str | None:
    targets: list[str] = _option(config, "--kvconform-target")
    if not targets:
        return None
    seed, profile = _option(config, "--kvconform-seed"), _option(config, "--kvconform-profile")
    return f"kvconform: {', '.join(targets)} (seed {seed}, profile {profile})"


def _items(session: pytest.Session, config: pytest.Config, targets: Iterable[str]) -> Iterable[pytest.Item]:
    from ..harness import registry
    from ..harness.conformance import chosen
    from ..harness.errors import KvconformError
    from ..harness.target import Target

    try:
        clauses = chosen(registry.clauses(), _option(config, "--kvconform-clause"))
        for target in targets:
            Target.parse(target, registry.schemes())
    except KvconformError as error:
        raise pytest.UsageError(f"kvconform: {error}") from None
    for target in targets:
        for clause in clauses:
            yield ClauseItem.from_parent(session, name=f"{target}::{clause.id}", target=target, clause=clause.id)


class ClauseItem(pytest.Item):
    """One clause asked of one target."""

    loaded: dict[str, Resolved] = {}  # noqa: RUF012  (shared by all items on purpose: a target is loaded once)

    def __init__(self, *, target: str, clause: str, **about: Any) -> None:
        super().__init__(**about)
        self.target, self.clause = target, clause
        self.add_marker(pytest.mark.kvconform(target, clause))

    def runtest(self) -> None:
        from ..harness import registry
        from ..harness.errors import KvconformError
        from .conformance import ask
        from .options import dtype_names

        option = partial(_option, self.config)
        try:
            if self.target not in self.loaded:
                self.loaded[self.target] = registry.resolve(self.target)
            ask(
                self.target,
                self.loaded[self.target],
                self.clause,
                option("--kvconform-profile"),
                tuple(dtype_names(option("--kvconform-dtype"))),
                examples=option("--kvconform-max-examples"),
                seed=option("--kvconform-seed"),
            )
        except KvconformError as error:
            pytest.fail(f"kvconform: {error}", pytrace=False)

    def reportinfo(self) -> tuple[str, None, str]:
        return self.target, None, f"{self.target} {self.clause}"

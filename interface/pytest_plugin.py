"""The pytest plugin: `pytest --kvconform-target builtin:gpt/concat` adds one test a clause.

It imports nothing of the package until it is asked for something, so a run without kvconform tests loads no torch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from ..harness.results import Case
    from ..harness.target import Resolved


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kvconform", "conformance of key/value caches")
    group.addoption("--kvconform-target", action="append", default=[], metavar="TARGET", help="judge this target; repeatable")
    group.addoption("--kvconform-clause", default="*", metavar="PATTERN", help="ask only clauses that match, as branch.*")
    group.addoption("--kvconform-profile", default="quick", help="how much is asked: quick, default or thorough")
    group.addoption("--kvconform-max-examples", type=int, default=None, help="generated programs a clause")
    group.addoption("--kvconform-seed", type=int, default=0, help="seed of the generated programs")
    group.addoption("--kvconform-reference", default="", metavar="TARGET", help="judge by this target's reference")
    group.addoption("--kvconform-device", default="", help="where models run, as cuda; for targets that take it")
    group.addoption("--kvconform-dtype", default="", help="precisions, comma-separated; the implementation's own without")

    group.addoption("--kvconform-locate", action="store_true", help="say in which layer and tensor a failure begins")
    group.addoption("--kvconform-known", default="", metavar="FILE", help="known deviations, which count as xfailed")
    group.addoption("--kvconform-strict", action="store_true", help="fail on known deviations that no longer fail")


ENTRIES = pytest.StashKey[Any]()
"""The known deviations."""
SEEN = "kvconform"
"""Under this name a test's report carries what its clause gave, for the process that knows them all."""


def _option(config: pytest.Config, name: str) -> Any:
    return config.getoption(name)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ENTRIES] = ()
    config.pluginmanager.register(Deviations(config), "kvconform deviations")
    config.addinivalue_line("markers", "kvconform(target, clause): one clause of the contract asked of one implementation")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Tell what is wrong with the options before anything is collected."""
    if _option(session.config, "--kvconform-target"):
        _validated(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The asked targets' items stand beside the files of a session, and are counted, chosen and reported like them."""
    report = yield
    if isinstance(collector, pytest.Session) and report.passed:
        targets: list[str] = _option(collector.config, "--kvconform-target")
        report.result.extend(TargetCollector.from_parent(collector, name=target) for target in targets)
    return report


def pytest_report_header(config: pytest.Config) -> str | None:
    targets: list[str] = _option(config, "--kvconform-target")
    if not targets:
        return None
    seed, profile = _option(config, "--kvconform-seed"), _option(config, "--kvconform-profile")
    return f"kvconform: {', '.join(targets)} (seed {seed}, profile {profile})"


def _validated(config: pytest.Config) -> list[str]:
    """The ids of the clauses that are asked for. Raises `pytest.UsageError`, one line, where an option is wrong."""
    from ..harness import registry
    from ..harness.conformance import chosen, precisions
    from ..harness.errors import KvconformError
    from ..harness.sources import judged_by, placed
    from .api import profile_named
    from .options import dtype_names, known_deviations

    try:
        names = [clause.id for clause in chosen(registry.clauses(), _option(config, "--kvconform-clause"))]
        examples = _option(config, "--kvconform-max-examples")
        if examples is not None and examples < 0:
            raise KvconformError(f"--kvconform-max-examples {examples} is less than 0")
        profile_named(_option(config, "--kvconform-profile"))
        config.stash[ENTRIES] = known_deviations(_known_file(config))
        dtypes = dtype_names(_option(config, "--kvconform-dtype"))
        for target in _option(config, "--kvconform-target"):
            if target not in ClauseItem.loaded:
                device, reference = _option(config, "--kvconform-device"), _option(config, "--kvconform-reference")
                resolved = registry.resolve(placed(target, device))
                ClauseItem.loaded[target] = judged_by(resolved, placed(reference, device, strict=False) or None)
            precisions(ClauseItem.loaded[target], dtypes)
    except KvconformError as error:
        raise pytest.UsageError(f"kvconform: {error}") from None
    return names


def _known_file(config: pytest.Config) -> Path | None:
    """The option, else `known` of `[tool.kvconform]`."""
    from .options import defaults

    found = _option(config, "--kvconform-known") or defaults(config.rootpath).get("known")
    return Path(found) if found else None


class Deviations:
    """Known deviations that no longer fail, or match nothing: told at the end, and failed on with `--kvconform-strict`."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.seen: list[Any] = []
        self.odd: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.seen += [one for name, value in report.user_properties if name == SEEN for one in cast("list[Any]", value)]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.config.stash[ENTRIES] or hasattr(self.config, "workerinput"):
            return
        from ..harness.known import Seen
        from .options import stale_entries

        seen = [Seen(target, clause, dtype, verdict, tuple(ops)) for target, clause, dtype, verdict, ops in self.seen]
        self.odd = stale_entries(self.config.stash[ENTRIES], seen)
        if self.odd and _option(self.config, "--kvconform-strict"):
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.odd:
            terminalreporter.write_line(f"kvconform: known deviation {line}")


class TargetCollector(pytest.Collector):
    """A target, with an item for each clause."""

    def collect(self) -> Iterable[pytest.Item]:
        for clause in _validated(self.config):
            yield ClauseItem.from_parent(self, name=clause, target=self.name, clause=clause)


class ClauseItem(pytest.Item):
    """One clause asked of one target."""

    loaded: dict[str, Resolved] = {}  # noqa: RUF012  (shared by all items on purpose: a target is loaded once)

    def __init__(self, *, target: str, clause: str, **about: Any) -> None:
        super().__init__(**about)
        self.target, self.clause = target, clause
        self.add_marker(pytest.mark.kvconform(target, clause))

    def runtest(self) -> None:
        from ..harness.errors import KvconformError
        from .conformance import ask
        from .options import dtype_names

        option = partial(_option, self.config)
        try:
            ask(
                self.target,
                self.loaded[self.target],
                self.clause,
                option("--kvconform-profile"),
                tuple(dtype_names(option("--kvconform-dtype"))),
                examples=option("--kvconform-max-examples"),
                seed=option("--kvconform-seed"),
                known=self.config.stash[ENTRIES],
                told=self._tell,
                locate=option("--kvconform-locate"),
            )
        except KvconformError as error:
            pytest.fail(f"kvconform: {error}", pytrace=False)

    def _tell(self, cases: Sequence[Case]) -> None:
        from dataclasses import astuple

        from ..harness.known import Seen

        if self.config.stash[ENTRIES]:
            self.user_properties.append((SEEN, [astuple(Seen.of(case)) for case in cases]))  # type: ignore[arg-type]

    def reportinfo(self) -> tuple[str, None, str]:
        return self.target, None, f"{self.target} {self.clause}"

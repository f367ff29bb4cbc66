"""Shared by all tests. It imports nothing of the package: a clone's root folder may have any name."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# The tests' models are tiny: two threads that wait for each other are slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAYON_NUM_THREADS", "1")

pytest_plugins = ["pytester"]

ABSENT = pytest.StashKey[dict[str, int]]()
"""How many tests were deselected for what they need, by what is not here."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def pytest_configure(config: pytest.Config) -> None:
    what = "programs, python:modules or engine:candle, without which the test is deselected"
    config.addinivalue_line("markers", f"needs(tool, ...): {what}")
    config.stash[ABSENT] = {}


def built(engine: str) -> Path:
    """Where `make engines` puts an engine in Rust. The rule is that of `harness/cache_folder.py`."""
    own, users = os.environ.get("KVCONFORM_CACHE"), os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cache = Path(own) if own else Path(users) / "kvconform"
    return cache.expanduser() / engine / "release" / f"kvconform-{engine}"


def is_here(tool: str) -> bool:
    """Is there a program of this name, or, behind `python:`, a module, behind `engine:`, one that `make engines` built?"""
    kind, _, name = tool.rpartition(":")
    if kind == "engine":
        return built(name).is_file()
    if kind == "python":
        return find_spec(name) is not None
    return any(shutil.which(program) for program in (BROWSERS if name == "chromium" else (name,)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that needs what this machine lacks is neither failed nor skipped: it is not asked, and that is counted."""
    lacking = {item: [tool for mark in item.iter_markers("needs") for tool in mark.args if not is_here(tool)] for item in items}
    left = [item for item in items if lacking[item]]
    if left:
        items[:] = [item for item in items if not lacking[item]]
        config.hook.pytest_deselected(items=left)
        config.stash[ABSENT] = dict(Counter(" and ".join(dict.fromkeys(lacking[item])) for item in left))


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["absent"] = session.config.stash[ABSENT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a worker of xdist deselected is told by the main process; all of them collect the same."""
    node.config.stash[ABSENT].update(getattr(node, "workeroutput", {}).get("absent", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for tools, count in config.stash[ABSENT].items():
        terminalreporter.write_line(f"deselected: {count} test{'s' * (count != 1)} that need {tools}, which is not here")


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a browser; a test that asks for it is marked `needs("chromium")`."""
    return next(path for path in map(shutil.which, BROWSERS) if path)


@pytest.fixture(scope="session")
def candle() -> Path:
    """candle's engine, as its source is now; a test that asks for it is marked `needs("cargo", "engine:candle")`."""
    binary = built("candle")
    source = Path(__file__).parent / "implementations" / "engines" / "candle" / "Cargo.toml"
    where = ["--target-dir", str(binary.parent.parent), "--manifest-path", str(source)]
    subprocess.run(["cargo", "build", "--quiet", "--release", "--locked", "--offline", *where], check=True)
    return binary


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A command's outcome in an empty folder; the same words run once. See tests/command_line.py."""
    from command_line import kvconform

    known: dict[tuple[str, ...], Any] = {}

    def run(*words: str) -> Any:
        if words not in known:
            known[words] = kvconform(*words, cwd=tmp_path_factory.mktemp("empty"))
        return known[words]

    return run

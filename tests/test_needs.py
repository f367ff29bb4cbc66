"""Tests that need an optional tool: without it they are deselected and counted, never failed or skipped."""

from __future__ import annotations

from pathlib import Path

import pytest

INNER = """
import pytest

@pytest.mark.needs("no-such-program", "python:no_such_module")
@pytest.mark.parametrize("number", range(3))
def test_away(number):
    raise AssertionError

@pytest.mark.needs("python:json", "sh")
def test_here():
    pass
"""


@pytest.mark.parametrize("how", [("-p", "no:xdist"), ("-n", "1")], ids=["alone", "xdist"])
def test_what_is_absent_is_counted(how: tuple[str, ...], pytester: pytest.Pytester) -> None:
    here = (Path(__file__).parent.parent / "conftest.py").read_text(encoding="utf-8")
    pytester.makeconftest(here.replace('pytest_plugins = ["pytester"]', ""))
    pytester.makepyfile(INNER)
    done = pytester.runpytest_subprocess("-p", "no:kvconform", "--strict-markers", *how)
    assert done.ret == 0
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["deselected: 3 tests that need no-such-program and python:no_such_module, which is not here"])

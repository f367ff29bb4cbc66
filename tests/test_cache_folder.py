"""One folder for what is dear to make, by one rule in the package, in the Makefile and in the tests."""

from __future__ import annotations

import os
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from kvconform.harness.cache_folder import cache_folder

ROOT = Path(__file__).parents[1]


@pytest.mark.needs("make")
@pytest.mark.parametrize(
    ("own", "xdg", "due"),
    [
        ("", "", "/home/me/.cache/kvconform"),
        ("", "/caches", "/caches/kvconform"),
        ("/mine", "", "/mine"),
        ("/mine", "/caches", "/mine"),
    ],
)
def test_all_mean_the_same_folder(own: str, xdg: str, due: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"KVCONFORM_CACHE": own, "XDG_CACHE_HOME": xdg, "HOME": "/home/me"}.items():
        monkeypatch.setenv(name, value)
    asked = ["make", "-s", "--no-print-directory", "--eval=where: ; @echo $(CACHE)", "where"]
    said = subprocess.run(asked, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True).stdout
    assert (str(cache_folder()), said.strip()) == (due, due)
    assert _conftest().built("candle") == Path(due) / "candle" / "release" / "kvconform-candle"


def _conftest() -> Any:
    """The tests' own file, which may import nothing of the package."""
    spec = spec_from_file_location("the_conftest", ROOT / "conftest.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

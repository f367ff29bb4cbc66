"""`py:` targets: an implementation of one's own, from a file or a module, and what can be wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import kvconform
import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.errors import TargetError
from kvconform.harness.sources import CALL, judged_by
from kvconform.harness.trial import Verdict

ENGINE = """
import torch
from kvconform import Implementation
from kvconform.reference.shipped import reference


class Mine(Implementation):
    name, vocab_size, max_length = "mine", 1200, 128

    def __init__(self, lost=0):
        self.lost = lost

    def new_cache(self, rows=1):
        return [torch.zeros(rows, 0, dtype=torch.int64)]

    def append(self, cache, tokens, lengths=None):
        cache[0] = torch.cat([cache[0], tokens], dim=1)
        return reference("llama").logits(cache[0])[:, -tokens.shape[1] :]

    def crop(self, cache, length):
        cache[0] = cache[0][:, : max(length - self.lost, 0)]


class Broken(Mine):
    def crop(self, cache, length):
        cache[0].nothing()


class Clings(Mine):
    def drop(self, cache):
        cache[1].free()


class Picky(Mine):
    def __init__(self, weights, lost):
        pass


class Unfinished(Mine):
    def __init__(self):
        self.weights = {}["layers"]


def build(lost=0):
    return Mine(lost)


def forgets_to_return():
    Mine()


mine = Mine()
number = 5


class Cache:
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "engine.py").write_text(ENGINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("name", ["Mine", "mine", "build", "Mine?lost=1", "build?lost=1"])
def test_a_class_an_instance_and_a_function_are_loaded(name: str, folder: Path) -> None:
    found = registry.resolve(f"py:engine.py:{name}")
    assert type(found.implementation).__name__ == "Mine"
    assert found.implementation.capabilities == {"crop"}
    assert vars(found.implementation)["lost"] == (1 if "?" in name else 0)
    assert (found.reference, found.judged_by) == (None, CALL)


def test_a_module_is_loaded_from_the_current_folder(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "inside.py").write_text(ENGINE, encoding="utf-8")
    assert registry.resolve("py:package.inside:Mine").implementation.name == "mine"


def test_a_reference_in_the_file_is_what_it_is_judged_by(folder: Path) -> None:
    for line in ("reference = 'builtin:llama/concat'", "reference = reference('llama')", "def reference(tokens): ..."):
        name = f"with_{abs(hash(line))}"
        (folder / f"{name}.py").write_text(ENGINE + line, encoding="utf-8")
        found = registry.resolve(f"py:{name}.py:Mine")
        assert found.reference is not None
        assert (found.reference.name, found.given is None) in (("llama", True), ("reference", True))


def test_a_file_is_loaded_once_and_finds_its_neighbours(folder: Path) -> None:
    (folder / "neighbour.py").write_text("vocabulary = 1200\n", encoding="utf-8")
    (folder / "other.py").write_text(f"from neighbour import vocabulary\n{ENGINE}", encoding="utf-8")
    one, other = registry.resolve("py:other.py:Mine"), registry.resolve(f"py:{folder}/other.py:Mine")
    assert type(one.implementation) is type(other.implementation)


def test_what_raises_in_an_op_is_a_finding_with_its_place(folder: Path) -> None:
    line = ENGINE.splitlines().index("        cache[0].nothing()") + 1
    told = f"AttributeError: 'Tensor' object has no attribute 'nothing' in crop (engine.py:{line})"
    for isolate in (False, True):
        run = kvconform.check("py:engine.py:Broken", clause="branch.crop", profile="quick", quiet=True, isolate=isolate)
        (finding,) = run.cases[0].findings
        assert (finding.divergence, finding.detail) == ("raised", told)
        assert finding.reproduce.startswith("kvconform replay py:engine.py:Broken 'append a 1; crop a 0' ")


def test_what_raises_between_the_ops_of_a_program_is_told_with_its_place_too(folder: Path) -> None:
    line = ENGINE.splitlines().index("        cache[1].free()") + 1
    told = f"IndexError: list index out of range in drop (engine.py:{line})"
    for isolate in (False, True):
        run = kvconform.check("py:engine.py:Clings", clause="branch.crop", profile="quick", quiet=True, isolate=isolate)
        assert (run.cases[0].verdict, run.cases[0].reason) == (Verdict.ERRORED, told)


WRONG = {
    "nothing": "'py:nothing' does not say what to load and from where; write py:FILE.py:NAME or py:PACKAGE.MODULE:NAME",
    "absent.py:Mine": "there is no file absent.py; write py:FILE.py:NAME or py:PACKAGE.MODULE:NAME",
    "absent.module:Mine": "there is no module absent in {folder} or installed; write py:FILE.py:NAME or py:PACKAGE.MODULE:NAME",
    "syntax.py:Mine": "syntax.py cannot be loaded: syntax.py:2: SyntaxError: invalid syntax",
    "raises.py:Mine": "raises.py cannot be loaded: ZeroDivisionError: division by zero in half (raises.py:2)",
    "ends.py:Mine": "ends.py cannot be loaded: it raises SystemExit in <module> (ends.py:1)",
    "imports.py:Mine": "imports.py cannot be loaded: ModuleNotFoundError: No module named 'absent' in <module> (imports.py:1)",
    "engine.py:Mien": "no name in engine.py: 'Mien'; did you mean Mine?",
    "engine.py:number": "number in engine.py is of type int, and is no kvconform.Implementation: derive it from that class, "
    "or name a function that gives one",
    "engine.py:Cache": "Cache in engine.py is the class Cache, and is no kvconform.Implementation: derive it from that class, "
    "or name a function that gives one (engine.py:{Cache})",
    "engine.py:forgets_to_return": "forgets_to_return() in engine.py gives nothing, which is no "
    "kvconform.Implementation: derive it from that class, or name a function that gives one (engine.py:{forgets})",
    "engine.py:Picky": "Picky cannot be made: missing a required argument: 'weights'; give arguments as Picky?name=value, "
    "or name a function without any that gives the implementation (engine.py:{Picky})",
    "engine.py:Mine?lots=1": "Mine cannot be made: got an unexpected keyword argument 'lots'; give arguments as "
    "Mine?name=value, or name a function without any that gives the implementation (engine.py:{Mine})",
    "engine.py:mine?lost=1": "mine in engine.py is an instance, which takes no options: leave out everything from the ? on",
    "engine.py:Unfinished": "Unfinished cannot be made: KeyError: 'layers' in __init__ (engine.py:{weights})",
}


@pytest.mark.parametrize("address", WRONG)
def test_what_is_wrong_is_told_in_one_line(address: str, folder: Path) -> None:
    for name, text in {
        "syntax": "class Mine:\n  def = 5\n",
        "raises": "def half(): return\ndef half(): return 1 / 0\nhalf()\n",
        "ends": "raise SystemExit(3)\n",
        "imports": "import absent\n",
    }.items():
        (folder / f"{name}.py").write_text(dedent(text), encoding="utf-8")
    lines = ENGINE.splitlines()
    begins = {"Cache": "class Cache:", "forgets": "def forgets_to_return():", "Picky": "class Picky(Mine):"}
    begins |= {"Mine": "class Mine(Implementation):", "weights": '        self.weights = {}["layers"]'}
    places = {name: lines.index(line) + 1 for name, line in begins.items()}
    with pytest.raises(TargetError) as told:
        registry.resolve(f"py:{address}")
    assert str(told.value) == WRONG[address].format(folder=folder, **places)


def test_a_plain_class_of_the_users_own_can_be_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain_pass.py").write_text(
        dedent("""
            import torch
            from kvconform.reference.shipped import reference

            class Plain:
                name, vocab_size = "plain", 1200

                def __init__(self, dtype=torch.float32):
                    self.inner = reference("llama").to(dtype)

                def logits(self, tokens):
                    return self.inner.logits(tokens)

                def to(self, dtype):
                    return Plain(dtype)
        """)
    )
    monkeypatch.chdir(tmp_path)
    mine = registry.resolve("builtin:llama/concat")
    judged = judged_by(mine, "py:plain_pass.py:Plain")
    assert judged.reference is not None
    assert judged.judged_by == "py:plain_pass.py:Plain"
    assert judged.reference.logits(torch.tensor([[1, 2]])).shape == (1, 2, 1200)

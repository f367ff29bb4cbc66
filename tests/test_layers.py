"""The shape of the package: imports go down only, everything is packaged, and loading the root loads nothing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = {
    "harness": set[str](),
    "reference": {"harness"},
    "implementations": {"reference", "harness"},
    "cases": {"reference", "harness"},
    "reports": {"cases", "implementations", "reference", "harness"},
    "interface": {"reports", "cases", "implementations", "reference", "harness"},
}
"""What each layer may import, itself aside. The harness reaches everything else through entry points."""
OUTSIDE = {"tests", "benchmarks", "docs"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def tracked() -> list[Path]:
    """Every file of the project, relative to its root: what git has and what it does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return [Path(name) for name in listed if name and (ROOT / name).is_file()]


FILES = tracked()
MODULES = [path for path in FILES if path.suffix == ".py" and (path.parts[0] in LAYERS or path.name == "__init__.py")]
"""The package's modules; the root's other Python files and the folders outside belong to nobody's install."""


def imports(path: Path) -> Iterator[tuple[int, int, str]]:
    """Line, level and dotted name of every import in a file, those for type checkers and inside functions too."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, 0, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.lineno, node.level, node.module
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, node.level, name.name) for name in node.names)


def resolved(path: Path, level: int, name: str) -> tuple[str, ...]:
    """Where a relative import leads, as the folders and modules below the package's root."""
    folders = path.parent.parts
    assert level - 1 <= len(folders), f"{path} imports from outside the package"
    return (*folders[: len(folders) - (level - 1)], *name.split("."))


def package(path: Path) -> str:
    return ".".join(("kvconform", *path.parts[:-1]))


def test_there_is_something_to_look_at() -> None:
    assert {path.parts[0] for path in MODULES} == {*LAYERS, "__init__.py"}
    assert len(MODULES) > 40


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_down_only(layer: str) -> None:
    wrong = [
        f"{path}:{line} imports {'.'.join(target)}"
        for path in MODULES
        if path.parts[0] == layer
        for line, level, name in imports(path)
        if level and (target := resolved(path, level, name))[0] not in LAYERS[layer] | {layer}
    ]
    assert not wrong


def test_imports_inside_the_package_are_relative_and_lead_somewhere() -> None:
    own = {"kvconform", *LAYERS}
    for path in MODULES:
        for line, level, name in imports(path):
            if not level:
                assert name.partition(".")[0] not in own, f"{path}:{line} imports {name} by an absolute name"
                continue
            target = ROOT.joinpath(*resolved(path, level, name))
            assert target.is_dir() or target.with_suffix(".py").is_file(), f"{path}:{line} imports {name}, which is not there"


def test_no_two_modules_need_each_other() -> None:
    """Imports inside functions count too, those for type checkers do not: they are what a circle is hidden in."""
    needs: dict[Path, set[Path]] = {}
    for path in MODULES:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        typed = {node for block in ast.walk(tree) if _for_types(block) for node in ast.walk(block)}
        found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level and node not in typed]
        names = [name for node in found for name in _reached(path, node)]
        needs[path] = {name for name in names if name != path}
    TopologicalSorter(needs).prepare()


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _reached(path: Path, node: ast.ImportFrom) -> Iterator[Path]:
    """The modules that a `from` imports: the one that is named, or those among its names."""
    base = (
        resolved(path, node.level, node.module) if node.module else path.parent.parts[: len(path.parent.parts) - node.level + 1]
    )
    module = Path(*base).with_suffix(".py")
    if (ROOT / module).is_file():
        yield module
        return
    for name in node.names:
        inside = Path(*base, f"{name.name}.py")
        yield inside if (ROOT / inside).is_file() else Path(*base, "__init__.py")


def test_only_the_root_names_modules_of_the_package_in_strings() -> None:
    """What is loaded by name escapes the rule above; entry points stand in pyproject.toml, where everybody sees them."""
    layers = "|".join(LAYERS)
    for path in MODULES:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        named = [text for text in strings if re.fullmatch(rf"kvconform\.({layers})(\.\w+)*", text)]
        assert not named or path == Path("__init__.py"), f"{path} names {named}"


def test_the_list_of_packages_is_complete() -> None:
    assert SETUPTOOLS["package-dir"] == {"kvconform": "."}
    found = {package(path) for path in FILES if path.name == "__init__.py" and path.parts[0] not in OUTSIDE}
    assert sorted(SETUPTOOLS["packages"]) == sorted(found)
    strays = {path for path in FILES if path.suffix == ".py" and path.parts[0] in LAYERS} - set(MODULES)
    assert not strays
    for path in MODULES:
        assert package(path) in found, f"{path} lies in a folder without __init__.py"


def test_every_file_that_the_package_needs_is_packaged() -> None:
    covered = {
        found.relative_to(ROOT)
        for name, patterns in SETUPTOOLS["package-data"].items()
        for pattern in patterns
        for found in ROOT.joinpath(*name.split(".")[1:]).glob(pattern)
    }
    needed = {path for path in FILES if path.parts[0] in LAYERS and path.suffix != ".py"} | {Path("py.typed")}
    assert len(needed) > 5
    assert needed <= covered, f"not covered by package-data: {sorted(map(str, needed - covered))}"


def test_every_pattern_of_package_data_finds_something() -> None:
    for name, patterns in SETUPTOOLS["package-data"].items():
        for pattern in patterns:
            folder = ROOT.joinpath(*name.split(".")[1:])
            assert any(found.is_file() for found in folder.glob(pattern)), f"{name}: {pattern} finds nothing"


def test_tests_and_their_configuration_are_no_part_of_the_package() -> None:
    assert not {name.split(".")[1] for name in SETUPTOOLS["packages"] if "." in name} & OUTSIDE
    assert "py-modules" not in SETUPTOOLS
    for path in FILES:
        if path.parts[0] in OUTSIDE:
            assert path.name != "__init__.py"


LOAD = """
import sys
before = set(sys.modules)
{load}
new = set(sys.modules) - before
print(*sorted(name for name in new if name.partition(".")[0] in ("kvconform", "torch", "numpy", "harness", "interface")))
"""


@pytest.mark.parametrize(
    "load",
    [
        "import kvconform",
        # As pytest does in a clone of any name: a file, loaded under the folder's name.
        "import importlib.util as u\n"
        "spec = u.spec_from_file_location('kv-conform.x', {root!r} + '/__init__.py')\n"
        "spec.loader.exec_module(u.module_from_spec(spec))",
    ],
    ids=["by name", "by path"],
)
def test_the_root_loads_nothing_of_the_package(load: str, tmp_path: Path) -> None:
    code = LOAD.format(load=load.format(root=str(ROOT)))
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() in (["kvconform"], [])


def test_the_root_reaches_every_public_name_and_no_other() -> None:
    import kvconform

    assert sorted(kvconform.__all__) == dir(kvconform)
    for name in kvconform.__all__:
        assert getattr(kvconform, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kvconform.nothing


def test_type_checkers_see_every_public_name() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    shown = {name.name for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    import kvconform

    assert shown == set(kvconform.__all__) - {"__version__"}
    assert kvconform.__version__ == PROJECT["project"]["version"]


def test_conftest_imports_nothing_of_the_package() -> None:
    found = [path for path in FILES if path.name == "conftest.py"]
    assert found
    for path in found:
        for line, level, name in imports(path):
            assert not level, f"{path}:{line} imports relatively"
            assert name.partition(".")[0] not in {"kvconform", *LAYERS, "torch"}


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_no_module_is_two_ideas(path: Path) -> None:
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= 400

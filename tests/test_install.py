"""The package as it is installed: a wheel beside folders of its own folders' names, and editable clones of any name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
UV = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])) or "uv"
GENERIC = ("tests", "benchmarks", "docs", "harness", "reference", "implementations", "cases", "reports", "interface")


def run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON", "VIRTUAL_ENV"))}
    environment = {**kept, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", timeout=600)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}"
    return done


def clone(folder: Path) -> Path:
    """What a fresh clone of the working tree holds: what git has and what it does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def installed(folder: Path, *what: str | Path) -> Path:
    """A new virtual environment with the locked packages and `what`; the folder of its commands."""
    run(UV, "venv", "--quiet", "--python", sys.executable, folder, cwd=ROOT)
    python = folder / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, "-r", ROOT / "requirements.lock", cwd=ROOT)
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", *what, cwd=ROOT)
    return python.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, out = clone(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source, cwd=source)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = [name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name]
    assert {name.split("/")[0] for name in names} == {"kvconform"}
    inner = {name.removeprefix("kvconform/") for name in names}
    assert not {name for name in inner if name.startswith(("tests/", "benchmarks/", "docs/", "setup"))}
    assert "conftest.py" not in inner
    for needed in ("py.typed", "__init__.py", "interface/cli.py", "reports/report.html.jinja", "reports/result.schema.json"):
        assert needed in inner
    for model in ("gpt", "llama"):
        assert f"reference/weights/{model}/model.safetensors" in inner
        assert f"reference/weights/{model}/config.json" in inner


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (folder,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = archive.read(f"{folder}/METADATA").decode()
        points = archive.read(f"{folder}/entry_points.txt").decode()
        licences = {name.rpartition("/")[2] for name in archive.namelist() if "/licenses/" in name}
    assert "License-Expression: Apache-2.0" in metadata
    assert licences == {"LICENSE", "NOTICE"}
    for group in ("console_scripts", "pytest11", "kvconform.clauses", "kvconform.schemes", "kvconform.faults"):
        assert f"[{group}]" in points


def test_an_installed_wheel_works_beside_folders_of_the_same_names(wheel: Path, tmp_path: Path) -> None:
    commands = installed(tmp_path / "venv", wheel)
    site = Path(
        run(commands / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).stdout.strip()
    )
    assert not {path.name for path in site.iterdir()} & {*GENERIC, "conftest.py"}

    project = tmp_path / "project"
    for name in ("reports", "cases", "kvconform-report"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("raise ImportError('this is the user\\'s own folder')\n", encoding="utf-8")
    (project / "test_mine.py").write_text(
        "import kvconform\n\n\nclass TestMine(kvconform.Conformance):\n    target = 'builtin:llama/concat'\n", encoding="utf-8"
    )
    done = run(commands / "kvconform", "check", "builtin:gpt/concat", "--max-examples", "2", "--out", "reports", cwd=project)
    assert done.stdout.splitlines()[-1].startswith("builtin:gpt/concat: passed (")
    assert (project / "reports" / "report.html").is_file()
    done = run(
        commands / "python", "-m", "pytest", "-q", "-k", "prefill", "--kvconform-target", "builtin:gpt/paged", cwd=project
    )
    assert "4 passed" in done.stdout


@pytest.mark.parametrize("name", ["kv-conform.x", "harness", "main"])
def test_a_clone_of_any_name_works(name: str, tmp_path: Path) -> None:
    folder = clone(tmp_path / name)
    commands = installed(tmp_path / "venv", "--editable", folder)
    for place in (folder, tmp_path):
        where = run(
            commands / "python", "-c", "import kvconform.harness.program as m; print(m.__file__)", cwd=place
        ).stdout.strip()
        assert Path(where) == folder / "harness" / "program.py"
    quick = ("tests/test_program.py", "tests/test_history.py")
    done = run(commands / "python", "-m", "pytest", *quick, "-q", "-p", "no:cacheprovider", cwd=folder)
    assert " passed" in done.stdout
    done = run(commands / "kvconform", "replay", "builtin:gpt/concat", "append a 1 2; append a 3", cwd=folder)
    assert "builtin:gpt/concat in float32: passed" in done.stdout

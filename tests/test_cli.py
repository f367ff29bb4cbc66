"""The command line: starting up, lists, and what a user can get wrong."""

from __future__ import annotations

import re
import time
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent

import pytest
from command_line import COMMANDS, CONCAT, Ran, kvconform, refused
from kvconform.harness import registry
from kvconform.harness.fault import Kind

# Starting up


def test_an_unknown_option_points_to_the_help_of_its_command(ran: Ran) -> None:
    said = ran("record", "builtin:gpt/concat", "append a 1", "--nothing")
    assert (said.returncode, said.stderr) == (
        2,
        "kvconform: No such option: --nothing (kvconform record --help shows what there is)\n",
    )


def test_version(ran: Ran) -> None:
    done = ran("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kvconform {version('kvconform')}\n", "")


def test_help_names_every_command(ran: Ran) -> None:
    done = ran("--help")
    assert (done.returncode, done.stderr) == (0, "")
    listed = done.stdout.partition("Commands:")[2]
    assert re.findall(r"^  (\w+) ", listed, re.MULTILINE)[: len(COMMANDS)] == list(COMMANDS)


def test_without_a_command_the_help_is_shown(ran: Ran) -> None:
    done = ran()
    assert "\nCommands:\n" in done.stdout + done.stderr
    assert done.returncode in (0, 2)


@pytest.mark.parametrize("words", [("--help",), ("--version",), *((command, "--help") for command in COMMANDS)], ids=" ".join)
def test_help_loads_no_torch(words: tuple[str, ...], tmp_path: Path) -> None:
    done = kvconform(*words, cwd=tmp_path, PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "kvconform.interface.cli" in loaded
    assert not loaded & {"torch", "transformers", "numpy", "hypothesis", "safetensors"}


@pytest.mark.parametrize(
    "words",
    [
        ("check", "py:wrong.py:Mine"),
        ("check", CONCAT, "--reference", "py:wrong.py:Mine"),
        ("mutate", "py:wrong.py:Mine"),
        ("replay", "py:wrong.py:Mine", "append a 1"),
        ("record", "py:wrong.py:Mine", "append a 1"),
        ("compare", "one.npy", "other.npy", "--reference", "py:wrong.py:Mine"),
    ],
    ids=" ".join,
)
def test_what_is_no_python_is_told_before_torch_is_loaded(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import torch\nclass Mine:\n    def = 5\n", encoding="utf-8")
    done = kvconform(*words, cwd=tmp_path, PYTHONPROFILEIMPORTTIME="1")
    told = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert (done.returncode, told) == (2, ["kvconform: wrong.py cannot be loaded: wrong.py:3: SyntaxError: invalid syntax"])
    assert not re.search(r"\| +torch$", done.stderr, re.MULTILINE)


@pytest.mark.parametrize("said", ["dtype", "vocab_size"])
def test_what_an_implementation_says_of_itself_may_raise(said: str, tmp_path: Path) -> None:
    text = f"""
        from kvconform import Implementation

        class Mine(Implementation):
            vocab_size = 5

            def new_cache(self, rows=1):
                return []

            def append(self, cache, tokens, lengths=None):
                return tokens

            @property
            def {said}(self):
                return self.weights
    """
    (tmp_path / "mine.py").write_text(dedent(text), encoding="utf-8")
    line = refused(kvconform("check", "py:mine.py:Mine", cwd=tmp_path))
    assert f"AttributeError: 'Mine' object has no attribute 'weights' in {said} (mine.py:15)" in line


def test_help_is_quick(tmp_path: Path) -> None:
    def seconds() -> float:
        started = time.perf_counter()
        assert kvconform("--help", cwd=tmp_path).returncode == 0
        return time.perf_counter() - started

    assert min(seconds() for _ in range(5)) <= 0.4


# What a user can get wrong


@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("sing",),
        ("--sing",),
        ("check", "nonsense"),
        ("check", ""),
        ("check", "nonsense:gpt/concat"),
        ("check", "builtin:nothing/concat"),
        ("check", "builtin:gpt/rope_convention"),
        ("check", f"{CONCAT}?cache"),
        ("check", CONCAT, "surplus"),
        ("check", CONCAT, "--sing"),
        ("check", CONCAT, "--clause", "nothing.*"),
        ("check", CONCAT, "--profile", "lazy"),
        ("check", CONCAT, "--dtype", "float8"),
        ("check", CONCAT, "--max-examples", "-1"),
        ("check", CONCAT, "--max-examples", "many"),
        ("check", CONCAT, "--seed", "x"),
        ("check", CONCAT, "--seed"),
        ("check", CONCAT, "--budget", "0s"),
        ("check", CONCAT, "--budget", "soon"),
        ("check", CONCAT, "--budget", "nan"),
        ("replay", CONCAT),
        ("replay", CONCAT, ""),
        ("replay", CONCAT, "sing a 1"),
        ("replay", CONCAT, "append"),
        ("replay", CONCAT, "append a x"),
        ("replay", CONCAT, "append a -1"),
        ("replay", CONCAT, "append a"),
        ("replay", CONCAT, "crop a 1"),
        ("replay", CONCAT, "append a 1; crop a 2"),
        ("replay", CONCAT, "append a 1; fork a a"),
        ("replay", CONCAT, "append a 1; select a 1"),
        ("replay", CONCAT, "append a 1 \udcff"),
        ("replay", CONCAT, "append a 1\nsing"),
        ("replay", "nonsense", "append a 1"),
        ("table", "builtin:nothing/*"),
        ("list",),
        ("list", "everything"),
    ],
    ids=lambda words: ascii(" ".join(words)),
)
def test_what_a_user_gets_wrong_is_told_in_one_line(words: tuple[str, ...], tmp_path: Path) -> None:
    line = refused(kvconform(*words, cwd=tmp_path))
    wrong = next((word for word in reversed(words) if "nothing" in word or word in ("sing", "lazy", "float8", "soon")), "")
    assert wrong.removeprefix("builtin:").strip("/*gpt").partition("/")[0] in line


def test_the_error_for_a_target_names_the_nearest_ones(ran: Ran) -> None:
    line = refused(ran("check", "builtin:gpt/concta"))
    assert "'concta'" in line
    assert "did you mean concat" in line


def test_a_folder_for_reports_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = kvconform("check", CONCAT, "--clause", "limit.tokens", "--out", "file/below", cwd=tmp_path)
    assert "cannot write report files to file/below" in refused(done)


# Lists


def test_the_list_of_clauses(ran: Ran) -> None:
    done = ran("list", "clauses")
    assert done.returncode == 0
    for clause in registry.clauses():
        assert re.search(rf"^{re.escape(clause.id)} +{re.escape(clause.sentence)}", done.stdout, re.MULTILINE)


def test_the_list_of_targets(ran: Ran) -> None:
    done = ran("list", "targets")
    assert done.returncode == 0
    shown = [line.split()[:2] for line in done.stdout.splitlines()[2:]]
    assert shown == [[one.target, one.kind] for scheme in registry.schemes().values() for one in scheme.listing()]
    assert len(shown) > 50


def test_the_list_of_faults_and_their_overrides(ran: Ran) -> None:
    faults = [fault for fault in registry.faults().values() if fault.kind is Kind.FAULT]
    listed, printed = ran("list", "faults"), ran("list", "faults", "--override")
    assert (listed.returncode, printed.returncode) == (0, 0)
    assert [line.split()[0] for line in listed.stdout.splitlines()[2:]] == [fault.name for fault in faults]
    for fault in faults:
        assert f"# {fault.name}: {fault.sentence}\nclass " in printed.stdout
    assert "return torch.arange(count)" in printed.stdout

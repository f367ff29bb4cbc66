"""Somebody else's targets and faults on the command line, through entry points."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CONCAT, Done, Ran, kvconform, last_line
from kvconform.harness import mutation
from kvconform.reports import result_file

# Somebody else's targets and faults, through entry points


TOY = '''
from dataclasses import replace

from kvconform import Implementation
from kvconform.harness import mutation, registry
from kvconform.harness.fault import Kind
from kvconform.harness.scope import Scope
from kvconform.interface import api
from kvconform.harness.target import Listed, Resolved, Scheme


class Mouthful(Implementation):
    """Raises what a text format can least bear."""

    name, vocab_size = "mouthful", 1200

    def new_cache(self, rows=1):
        return []

    def append(self, cache, tokens, lengths=None):
        raise RuntimeError("first\\udcff\\u2028line \\x1b[31m \\x00 </script>\\nsecond line")


def resolve(target):
    right = registry.resolve("builtin:gpt/concat")
    if target.address == "mouthful":
        return Resolved(Mouthful(), right.reference, "gpt")
    kind = {"overlooked": Kind.FAULT, "right": Kind.CORRECT}[target.address]
    return replace(right, fault=replace(right.fault, kind=kind, clause="decode.incremental"))


def faults():
    from kvconform.implementations.targets import catalogue

    ways = catalogue()
    return {
        "toy_survivor": replace(ways["reuse_without_reset"], name="toy_survivor", clause="decode.incremental"),
        "toy_flagged": replace(ways["pos_zero"], name="toy_flagged", kind=Kind.CONTROL),
        "toy_equivalent": replace(ways["cat_order"], name="toy_equivalent", kind=Kind.FAULT, clause="branch.fork"),
    }


TOY = Scheme(resolve, lambda: [Listed("toy:right", Kind.CORRECT, ""), Listed("toy:overlooked", Kind.FAULT, "")])
'''


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Done]:
    """A command with another package on the path, which registers a scheme and three faults."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.py").write_text(TOY, encoding="utf-8")
    about = folder / "toy-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n", encoding="utf-8")
    points = "[kvconform.schemes]\ntoy = toy:TOY\n[kvconform.faults]\ntoy = toy:faults\n"
    (about / "entry_points.txt").write_text(points, encoding="utf-8")
    return lambda *words, **extra: kvconform(*words, cwd=folder, PYTHONPATH=str(folder), **extra)


def test_the_table_exits_1_for_a_fault_that_is_not_caught(toy: Callable[..., Done]) -> None:
    done = toy("table", "toy:*", "--only-failures")
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()[2:3]] == ["toy:overlooked"]
    assert "toy:overlooked is a fault, and it was not caught: passed" in done.stdout
    assert last_line(done).startswith("0 of 1 faults caught, 1 of 1 correct implementations and controls passed")


def test_the_mutation_check_exits_1_for_a_catalogue_that_is_wrong(toy: Callable[..., Done], tmp_path: Path) -> None:
    done = toy("mutate", CONCAT, "--fault", "toy_*", "--max-examples", "1", "--out", str(tmp_path))
    assert done.returncode == 1
    said = {
        "toy_survivor": "toy_survivor survives on builtin:gpt/concat: caught by lifecycle.reset only",
        "toy_flagged": "control toy_flagged is flagged on builtin:gpt/concat by ",
        "toy_equivalent": "toy_equivalent is equivalent on every model",
    }
    run = result_file.read(tmp_path / "result.jsonl")
    assert {mutant.fault for mutant in run.mutants} == set(said)
    for mutant in run.mutants:
        assert any(line.startswith(said[mutant.fault]) for line in done.stdout.splitlines())
        assert mutation.exit_code([mutant]) == 1
    survivors_first = [line.split()[0] for line in done.stdout.splitlines()[2:5]]
    assert survivors_first == ["toy_survivor", "toy_flagged", "toy_equivalent"]


def test_an_engines_worst_message_breaks_neither_the_terminal_nor_the_reports(toy: Callable[..., Done], tmp_path: Path) -> None:
    done = toy(
        "check",
        "toy:mouthful",
        "--clause",
        "prefill",
        "--no-isolate",
        "--out",
        str(tmp_path / "out"),
        PYTHONIOENCODING="utf-8:strict",
    )
    assert done.returncode == 2, done.stderr  # its first call raises: nothing can be asked of such an adapter
    assert "RuntimeError: first" in done.stdout
    assert "second line" not in done.stdout
    assert result_file.read(tmp_path / "out" / "result.jsonl").cases


def test_the_mutation_check_exits_0_where_faults_are_caught_and_controls_pass(ran: Ran) -> None:
    done = ran("mutate", CONCAT, "--fault", "no_[cm]a*", "--max-examples", "3", "--seed", "9")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[2:] if CONCAT in line}
    assert set(rows) == {"no_cat", "no_mask"}
    for line, clause in ((rows["no_cat"], "decode.incremental"), (rows["no_mask"], "prefill.identity")):
        assert re.search(rf" fault +caught +{clause} +\d+ ", line)
    told = r"2 of 2 faults could be tried; 2 cells: 2 caught \(seed 9, profile quick, [\d.]+ s\)"
    assert re.fullmatch(told, last_line(done))

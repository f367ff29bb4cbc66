"""The command line as its users meet it: a process of its own, its output, its exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent

import pytest
from kvconform.harness import mutation, registry
from kvconform.harness.fault import Kind
from kvconform.harness.scope import Scope
from kvconform.interface import api
from kvconform.reports import result_file
from syrupy.assertion import SnapshotAssertion

COMMAND = Path(sys.executable).with_name("kvconform")
COMMANDS = ("check", "table", "mutate", "replay", "sweep", "list", "report", "diff", "record", "compare")

Done = subprocess.CompletedProcess[str]


def environment(extra: Mapping[str, str] = {}) -> dict[str, str]:
    path = os.pathsep.join([str(COMMAND.parent), os.environ.get("PATH", "")])
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("KVCONFORM", "PYTHON", "COLUMNS", "GITHUB"))
    }
    return {**kept, "PATH": path, "OMP_NUM_THREADS": "1", **extra}


def kvconform(*words: str, cwd: Path, **extra: str) -> Done:
    """The command on the PATH of this environment, in a folder of its own."""
    return subprocess.run(
        [COMMAND, *words], cwd=cwd, env=environment(extra), capture_output=True, encoding="utf-8", errors="replace", timeout=300
    )


Ran = Callable[..., Done]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A command's outcome in an empty folder; the same words run once."""
    known = dict[tuple[str, ...], Done]()

    def run(*words: str) -> Done:
        if words not in known:
            known[words] = kvconform(*words, cwd=tmp_path_factory.mktemp("empty"))
        return known[words]

    return run


def last_line(done: Done) -> str:
    return done.stdout.rstrip("\n").rpartition("\n")[2]


def refused(done: Done) -> str:
    """What a user can cause ends in one line on standard error and exit code 2."""
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("kvconform: ")
    assert "Traceback" not in line
    assert "a defect in kvconform" not in line
    return line


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


def test_help_is_quick(tmp_path: Path) -> None:
    def seconds() -> float:
        started = time.perf_counter()
        assert kvconform("--help", cwd=tmp_path).returncode == 0
        return time.perf_counter() - started

    assert min(seconds() for _ in range(5)) <= 0.4


# Judging one target


SMALL = ("--profile", "quick", "--max-examples", "1")
PREFILL = ("check", "builtin:gpt/no_mask", "--clause", "prefill", "--max-examples", "0")


def counts(line: str) -> tuple[str, dict[str, int], dict[str, str]]:
    """The last line of a check: its verdict, how many cases have each, and the rest."""
    found = re.fullmatch(
        r"(?P<target>\S+): (?P<verdict>[a-z ]+) \((?P<cases>\d+) cases: (?P<counts>[^;]*); (?P<programs>\d+) programs; "
        r"seed (?P<seed>\d+), profile (?P<profile>\w+), (?P<seconds>[\d.]+) s\)",
        line,
    )
    assert found, line
    each = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", found["counts"])}
    assert sum(each.values()) == int(found["cases"])
    return found["verdict"], each, found.groupdict()


def test_what_holds_the_contract_exits_0(ran: Ran) -> None:
    done = ran("check", "builtin:gpt/concat", *SMALL, "--seed", "7", "--dtype", "float32", "--only-failures")
    assert (done.returncode, done.stderr) == (0, "")
    verdict, each, rest = counts(last_line(done))
    assert verdict == "passed"
    assert set(each) <= {"passed", "unsupported"}
    assert each["passed"] >= 20
    assert (rest["target"], rest["seed"], rest["profile"]) == ("builtin:gpt/concat", "7", "quick")
    assert "FAILED" not in done.stdout
    assert "prefill.identity" not in done.stdout  # no table of what passes


def test_what_breaks_the_contract_exits_1(ran: Ran) -> None:
    done = ran(*PREFILL)
    assert (done.returncode, done.stderr) == (1, "")
    verdict, each, _ = counts(last_line(done))
    assert (verdict, each) == ("failed", {"failed": 4})
    (block,) = blocks(done)
    assert block.startswith("FAILED prefill.identity (float64, float32)")
    for line in (
        r"  where:     op 0 \(append\), token 0, size \d",
        r"  program:   append a 1 2$",
        r"  breaks too: prefill.chunked$",
    ):
        assert re.search(line, block, re.MULTILINE)


def blocks(done: Done) -> list[str]:
    return [part for part in done.stdout.split("\n\n") if part.startswith("FAILED ")]


def plain(text: str) -> str:
    """The measured noise differs from machine to machine; everything else of a float64 run does not."""
    text = re.sub(r"allowed [0-9.e-]+ \(rounding", "allowed … (rounding", text)
    return re.sub(r"size \d\S*e-1\d", "size …", text)


SHOWN = {
    "logits": PREFILL,
    "raised": ("check", "builtin:gpt/pos_plus_100", "--clause", "decode.incremental", "--max-examples", "0"),
    "accepted": ("check", "builtin:gpt/limit_wraps", "--clause", "limit.refuses", "--max-examples", "0"),
}
"""A fault for each kind of divergence that a user meets."""


@pytest.mark.parametrize("kind", SHOWN)
def test_the_failure_block(kind: str, ran: Ran, snapshot: SnapshotAssertion) -> None:
    done = ran(*SHOWN[kind])
    assert done.returncode == 1
    assert [plain(block) for block in blocks(done)] == snapshot


@pytest.mark.parametrize("kind", ["logits", "accepted"])
def test_the_command_of_a_block_fails_again_when_it_is_pasted(kind: str, ran: Ran, tmp_path: Path) -> None:
    for block in blocks(ran(*SHOWN[kind])):
        command = block.partition("  Reproduce with:\n")[2]
        again = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, encoding="utf-8", timeout=300
        )
        assert (again.returncode, again.stderr) == (1, "")
        detail = re.search(r"happened:  (.*)", block)
        assert detail
        assert last_line(again).endswith(detail[1])


def test_a_replay_step_by_step(ran: Ran, snapshot: SnapshotAssertion) -> None:
    done = ran("replay", "builtin:gpt/no_mask", "append a 1 2; fork a b; append b! 5000; append a 3")
    assert done.returncode == 1
    assert done.stdout == snapshot


@pytest.mark.parametrize(
    ("program", "code", "verdict"),
    [
        ("append a 5 9 3; append a 7", 0, "passed: max |Δlogit| "),
        ("append a 5 5000", 2, "unsupported: its vocabulary has 1200 tokens"),
    ],
)
def test_the_exit_code_of_a_replay(program: str, code: int, verdict: str, ran: Ran) -> None:
    done = ran("replay", "builtin:gpt/concat", program)
    assert (done.returncode, done.stderr) == (code, "")
    assert last_line(done).startswith(f"builtin:gpt/concat in float32: {verdict}")


def test_a_budget_ends_the_run_early(ran: Ran) -> None:
    done = ran("check", "builtin:gpt/concat", "--profile", "thorough", "--budget", "1s", "--dtype", "float64")
    verdict, _, rest = counts(last_line(done))
    assert verdict in ("passed", "inconclusive")
    assert int(rest["programs"]) < 2000
    assert float(rest["seconds"]) < 30


# The result file and the report files


DECODE = ("check", "builtin:gpt/no_mask", "--clause", "decode.incremental", "--profile", "quick", "--dtype", "float64")


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """A check that prints its result file and writes report files into a folder that was not there."""
    folder = tmp_path_factory.mktemp("reported")
    return kvconform(*DECODE, "--seed", "3", "--json", "--out", "deep/down", cwd=folder), folder / "deep" / "down"


def test_json_and_report_files(reported: tuple[Done, Path]) -> None:
    done, folder = reported
    assert done.returncode == 1
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["type"] for record in records] == ["header", "case", "footer"]
    assert records[-1]["counts"]["failed"] == 1

    names = ("result.jsonl", "report.md", "report.html")
    assert done.stderr == f"reports: {', '.join(f'deep/down/{name}' for name in names)}\n"
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert (folder / "result.jsonl").read_text(encoding="utf-8") == done.stdout
    assert len(result_file.read(folder / "result.jsonl").cases) == 1
    assert "builtin:gpt/no_mask" in (folder / "report.md").read_text(encoding="utf-8")
    assert (folder / "report.html").read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")


def test_the_seed_decides_which_programs_are_drawn(reported: tuple[Done, Path]) -> None:
    def drawn(seed: int) -> list[tuple[float, int]]:
        run = api.check(
            "builtin:gpt/no_mask", clause="decode.incremental", profile="quick", dtypes=["float64"], seed=seed, quiet=True
        )
        return [(case.largest, case.positions) for case in run.cases]

    run = result_file.read(reported[1] / "result.jsonl")
    assert run.header.seed == 3
    assert [(case.largest, case.positions) for case in run.cases] == drawn(3)
    assert drawn(3) != drawn(4)


# What a user can get wrong


CONCAT = "builtin:gpt/concat"


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


# The failure table


def test_the_table_shows_only_rows_that_are_not_as_expected(tmp_path: Path) -> None:
    done = kvconform("table", "builtin:gpt/concat", "builtin:gpt/pos_z*", "--only-failures", "--seed", "5", cwd=tmp_path)
    assert done.returncode == 0
    assert "builtin:" not in done.stdout
    assert last_line(done).startswith("1 of 1 faults caught, 1 of 1 correct implementations and controls passed (seed 5, ")
    assert (tmp_path / "kvconform-report" / "report.html").is_file()
    rows = result_file.read(tmp_path / "kvconform-report" / "result.jsonl").rows
    assert [row.target for row in rows] == ["builtin:gpt/concat", "builtin:gpt/pos_zero"]


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
    assert done.returncode == 1, done.stderr
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
    assert re.fullmatch(r"2 cells: 2 caught \(seed 9, profile quick, [\d.]+ s\)", last_line(done))


# Defaults from pyproject.toml


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(dedent(text), encoding="utf-8")
    return folder


def test_defaults_are_taken_from_the_nearest_pyproject(tmp_path: Path) -> None:
    project(
        tmp_path,
        """
        [tool.kvconform]
        target = "builtin:gpt/no_mask"
        clause = "prefill.*"
        profile = "quick"
        max-examples = 0
        seed = 11
        dtype = "float64"
        budget = "5m"
        only-failures = true
        out = "reports"
        """,
    )
    below = tmp_path / "src" / "below"
    below.mkdir(parents=True)
    done = kvconform("check", "--max-examples", "1", cwd=below)  # what is written on the command line comes first
    assert done.returncode == 1
    verdict, each, rest = counts(last_line(done))
    assert (verdict, each) == ("failed", {"failed": 2})
    assert (rest["target"], rest["seed"], rest["profile"]) == ("builtin:gpt/no_mask", "11", "quick")
    assert "float32" not in done.stdout
    cases = result_file.read(below / "reports" / "result.jsonl").cases
    fixed = [clause for clause in registry.clauses() if clause.family == "prefill"]
    scope = Scope(vocab_size=1200, max_length=64)
    assert [case.programs for case in cases] == [len(list(clause.fixed(scope))) + 1 for clause in fixed]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[tool.kvconform]\nsed = 1\n", "sed"),
        ("[tool.kvconform]\nmax_examples = 1\n", "max_examples"),
        ('[tool.kvconform]\nseed = "x"\n', "seed"),
        ("[tool.kvconform]\nmax-examples = -1\n", "max-examples"),
        ('[tool.kvconform]\nprofile = "lazy"\n', "lazy"),
        ("[tool.kvconform\n", "pyproject.toml"),
        ("[tool]\nkvconform = 5\n", "tool.kvconform"),
        ("tool = 5\n", "pyproject.toml"),
    ],
    ids=ascii,
)
def test_a_pyproject_that_is_wrong_is_told_in_one_line(text: str, named: str, tmp_path: Path) -> None:
    assert named in refused(kvconform("check", CONCAT, cwd=project(tmp_path, text)))


def test_another_tools_pyproject_is_none_of_ours(tmp_path: Path) -> None:
    project(tmp_path, '[project]\nname = "mine"\n[tool.other]\nseed = "x"\n')
    assert kvconform("list", "clauses", cwd=tmp_path).returncode == 0

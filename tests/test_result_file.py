"""The result file: what is written can be read again, what is broken is refused in one line, and the schema tells which."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import kvconform
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from kvconform.harness.diagnosis.diagnosis import Confidence, Diagnosis
from kvconform.harness.errors import ResultError
from kvconform.harness.fault import Kind
from kvconform.harness.judging import PROFILES
from kvconform.harness.mutation import Mutant, Outcome
from kvconform.harness.mutation_run import chosen_faults, run_mutation
from kvconform.harness.program import KINDS
from kvconform.harness.results import Case, Cell, Finding
from kvconform.harness.run import SCHEMA_VERSION, Header, Run
from kvconform.harness.runner import Divergence
from kvconform.harness.sweeps.grouping import Group
from kvconform.harness.table import Danger, TableRow
from kvconform.harness.table_run import listed, run_table
from kvconform.harness.trial import Verdict
from kvconform.reports import result_file

# Runs


def checked() -> Run:
    return kvconform.check("builtin:gpt/no_mask", clause="[pr]*", profile="quick", quiet=True)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    """A run of each kind, small and real: a check that fails, the table, the mutation check."""
    quick = replace(PROFILES["quick"], examples=2)
    faults = [
        fault for name in ("no_mask", "cat_order", "rope_convention", "error_moves_counter") for fault in chosen_faults(name)
    ]
    return {
        "check": checked(),
        "table": run_table(listed(["builtin:gpt/concat", "builtin:gpt/no_mask", "builtin:llama/*_cleared"]), quick),
        "mutate": run_mutation("builtin:gpt/concat", faults, quick),
    }


def written(run: Run, path: Path) -> Path:
    with path.open("w", encoding="utf-8") as stream:
        result_file.write(run, stream)
    return path


@pytest.fixture(scope="module")
def paths(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("results")
    return {name: written(run, folder / f"{name}.jsonl") for name, run in runs.items()}


HOSTILE = (
    "",
    '"',
    "\\",
    "\x00",
    "\x1b[2J",
    "a\nb\r\nc\rd",
    "line\u2028separator",
    "paragraph\u2029separator",
    "next\x85line",
    "\x0b\x0c\x1c\x1d\x1e",
    "\u202eright to left",
    "</script><script>alert(1)</script>",
    '{"type": "footer"}',
    "\ufeff",
    "山\U0001f600",
)
TEXT = st.sampled_from(HOSTILE) | st.text(max_size=20)
COUNT = st.integers(0, 2**53)
FIGURE = st.floats(min_value=0, allow_infinity=False)
INFINITE = st.floats(min_value=0, allow_infinity=True)
SECONDS = st.integers(0, 10**9).map(lambda milliseconds: milliseconds / 1000)


def some(what: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(what, max_size=2).map(tuple)


def generated(figure: st.SearchStrategy[float]) -> st.SearchStrategy[Run]:
    """Runs of any content: text that breaks lines and formats, numbers at the edges."""
    maybe = {"allowed": st.none() | figure, "floor": st.none() | figure}
    diagnosis = st.builds(
        Diagnosis,
        confidence=st.sampled_from(Confidence),
        **dict.fromkeys(("name", "sentence", "parameter", "basis", "next_check"), TEXT),
        **dict.fromkeys(("candidates", "symptoms", "suspects"), some(TEXT)),
        margin=st.none() | figure,
    )
    finding = st.builds(
        Finding,
        **dict.fromkeys(("id", "target", "clause", "dtype", "divergence", "op", "program", "found_in", "detail"), TEXT),
        **dict.fromkeys(("step", "token", "occurrences"), COUNT),
        **maybe,
        difference=figure,
        tolerance=TEXT,
        landmarks=some(COUNT),
        known=TEXT,
        diagnosis=st.none() | diagnosis,
        curve=some(st.tuples(COUNT, figure)),
    )
    case = st.builds(
        Case,
        **dict.fromkeys(("target", "clause", "dtype", "reason", "tolerance"), TEXT),
        **dict.fromkeys(("programs", "conclusive", "positions", "flips"), COUNT),
        verdict=st.sampled_from(Verdict),
        largest=figure,
        allowed=maybe["allowed"],
        seconds=SECONDS,
        examples_to_failure=st.none() | COUNT,
        findings=some(finding),
        replayed=some(st.tuples(TEXT, st.sampled_from(["FIXED", "FAILED", "ERROR", "UNSUPPORTED", "INCONCLUSIVE"]))),
        pairs=st.dictionaries(TEXT, COUNT, max_size=2),
        relations=st.dictionaries(TEXT, COUNT, max_size=2),
    )
    row = st.builds(
        TableRow,
        **dict.fromkeys(
            ("target", "sentence", "scenario", "text", "reference_text", "error", "diagnosis", "clause", "override"), TEXT
        ),
        **dict.fromkeys(("first_token", "first_call", "changed", "first_changed"), st.none() | COUNT),
        **dict.fromkeys(("flips", "positions", "generated"), COUNT),
        **dict.fromkeys(("prefill", "incremental"), st.none() | figure),
        **dict.fromkeys(("ended_by", "ended_in"), TEXT),
        kind=st.sampled_from(Kind),
        verdict=st.sampled_from(Verdict),
        danger=st.sampled_from(Danger),
    )
    mutant = st.builds(
        Mutant,
        **dict.fromkeys(("target", "fault", "family", "listed", "clause", "detail"), TEXT),
        kind=st.sampled_from(Kind),
        outcome=st.sampled_from(Outcome),
        examples=st.none() | COUNT,
    )
    cell = st.builds(Cell, target=TEXT, dtype=TEXT, tags=st.dictionaries(TEXT, TEXT, max_size=2), seconds=SECONDS)
    group = st.builds(Group, finding, TEXT, some(TEXT), some(TEXT), some(TEXT))
    about = st.builds(
        Header,
        command=TEXT,
        profile=TEXT,
        targets=some(TEXT),
        seed=st.integers(),
        schema=st.just(SCHEMA_VERSION),
        versions=st.dictionaries(TEXT, TEXT, max_size=2),
    )
    return st.builds(
        Run,
        header=about,
        cases=some(case),
        rows=some(row),
        mutants=some(mutant),
        cells=some(cell),
        groups=some(group),
        problems=some(TEXT),
        seconds=SECONDS,
    )


several = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# Writing and reading


@pytest.mark.parametrize("kind", ["check", "table", "mutate"])
def test_a_real_run_is_read_as_it_was_written(kind: str, runs: dict[str, Run], paths: dict[str, Path]) -> None:
    run = runs[kind]
    assert run.cases or run.mutants
    assert result_file.read(paths[kind]) == replace(run, seconds=round(run.seconds, 3))


def test_the_real_runs_hold_records_of_every_kind(runs: dict[str, Run]) -> None:
    assert any(case.findings for case in runs["check"].cases)
    assert {row.kind for row in runs["table"].rows} == {Kind.CORRECT, Kind.FAULT}
    assert {mutant.outcome for mutant in runs["mutate"].mutants} == {Outcome.CAUGHT, Outcome.PASSED, Outcome.NOT_APPLICABLE}


@given(generated(FIGURE))
@several
def test_any_run_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    assert result_file.read(written(run, tmp_path_factory.getbasetemp() / "any.jsonl")) == run


@given(generated(INFINITE))
@several
def test_a_run_with_infinite_figures_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, run: Run) -> None:
    assert result_file.read(written(run, tmp_path_factory.getbasetemp() / "infinite.jsonl")) == run


def of_text(text: str) -> Run:
    """A run with the same text wherever a program under test can put text of its own."""
    finding = Finding(
        id=text, target=text, clause=text, dtype=text, divergence=text, op=text, program=text, found_in=text, step=0, token=0,
        detail=text, difference=0.0, allowed=None, floor=None, tolerance=text, curve=(), occurrences=1,
    )  # fmt: skip
    case = Case(text, text, text, Verdict.FAILED, reason=text, findings=(finding,))
    return Run(Header(text, (text,), text, 0), cases=(case,), problems=(text,))


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_text_is_read_as_it_was_written(text: str, tmp_path: Path) -> None:
    run = of_text(text)
    assert result_file.read(written(run, tmp_path / "result.jsonl")) == run


def test_text_that_is_no_unicode_can_be_written(tmp_path: Path) -> None:
    """An error from an engine may quote a file's name whose bytes are no UTF-8."""
    case = Case("builtin:x", "decode.incremental", "float32", Verdict.ERRORED, reason="no such file: \udcff.gguf")
    run = Run(Header("check builtin:x", ("builtin:x",), "quick", 0), cases=(case,))
    found = result_file.read(written(run, tmp_path / "result.jsonl"))
    assert found.cases[0].reason.startswith("no such file: ")


@pytest.mark.parametrize("kind", ["check", "table", "mutate"])
def test_each_record_is_a_line_of_json_between_header_and_footer(
    kind: str, paths: dict[str, Path], runs: dict[str, Run]
) -> None:
    records = [json.loads(line) for line in paths[kind].read_bytes().decode().split("\n")[:-1]]
    assert [record["type"] for record in (records[0], records[-1])] == ["header", "footer"]
    inner = [record["type"] for record in records[1:-1]]
    assert records[-1]["records"] == {name: inner.count(name) for name in ("case", "row", "mutant", "cell", "group")}
    assert records[-1]["counts"] == runs[kind].counts
    assert sum(runs[kind].counts.values()) == len(runs[kind].cases)


def test_ids_depend_on_content_alone(runs: dict[str, Run]) -> None:
    again = checked()
    assert [case.id for case in again.cases] == [case.id for case in runs["check"].cases]
    found = [[finding.id for case in run.cases for finding in case.findings] for run in (again, runs["check"])]
    assert found[0] == found[1]
    assert len({case.id for case in again.cases}) == len(again.cases)


# Files that are none


def refused(path: Path) -> str:
    with pytest.raises(ResultError) as caught:
        result_file.read(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def of_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def lines(paths: dict[str, Path]) -> list[str]:
    return paths["check"].read_text(encoding="utf-8").split("\n")[:-1]


def test_a_file_that_is_cut_off_is_refused(paths: dict[str, Path], tmp_path: Path) -> None:
    whole = paths["check"].read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole[:-1]) if byte == ord("\n")]
    cut = tmp_path / "cut.jsonl"
    for end in {0, 1, *ends, *range(2, len(whole) - 1, len(whole) // 40), len(whole) - 2}:
        cut.write_bytes(whole[:end])
        refused(cut)


def test_a_file_that_lost_a_record_is_refused(lines: list[str], tmp_path: Path) -> None:
    refused(of_lines(tmp_path / "shorter.jsonl", lines[:3] + lines[4:]))


def test_a_file_with_a_record_twice_is_refused(lines: list[str], tmp_path: Path) -> None:
    refused(of_lines(tmp_path / "longer.jsonl", [*lines[:3], *lines[2:]]))


def test_two_files_in_one_are_refused(lines: list[str], tmp_path: Path) -> None:
    refused(of_lines(tmp_path / "both.jsonl", lines + lines))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"hello\n",
        b"\x00\xff\xfe",
        b"\x89PNG\r\n\x1a\n",
        b"[]\n",
        b"1\n",
        b"null\n",
        b'"header"\n',
        b"{}\n",
        b'{"type": "nothing"}\n',
        b'{"type": []}\n',
        b'{"type": "header"}\n',
        b'{"type": "header"}\n{"type": "footer"}\n',
        b'{"type": "header", "schema": 1}\n{"type": "footer"}\n',
        b"[" * 100_000 + b"\n",
        b'{"type": ' + b"9" * 10_000 + b"}\n",
    ],
    ids=lambda content: ascii(content[:30].decode("latin-1")),
)
def test_garbage_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "garbage.jsonl"
    path.write_bytes(content)
    refused(path)


@pytest.mark.parametrize("version", [0, SCHEMA_VERSION + 1, "1", None, [1]])
def test_another_schema_is_refused_and_named(version: object, lines: list[str], tmp_path: Path) -> None:
    header = json.loads(lines[0]) | {"schema": version}
    text = refused(of_lines(tmp_path / "other.jsonl", [json.dumps(header), *lines[1:]]))
    assert f"schema {version}" in text
    assert str(SCHEMA_VERSION) in text


def test_a_newer_file_is_refused_as_such_whatever_else_is_in_it(lines: list[str], tmp_path: Path) -> None:
    header = json.loads(lines[0]) | {"schema": SCHEMA_VERSION + 1, "surplus": 1}
    newer = [json.dumps(header), '{"type": "what only a later version knows"}', *lines[1:]]
    text = refused(of_lines(tmp_path / "newer.jsonl", newer))
    assert text.endswith(f"has schema {SCHEMA_VERSION + 1}; this kvconform reads {SCHEMA_VERSION}; update kvconform")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "nothing.jsonl")
    refused(tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "failed", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "curve", "x"]), inner, max_size=2),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a value inside a record."""
    if path:
        yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in entries:
        yield from places(part, (*path, key))


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_mangled_file_is_read_or_refused_and_nothing_else(paths: dict[str, Path], data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(paths)))
    lines = paths[kind].read_text(encoding="utf-8").split("\n")[:-1]
    line = data.draw(st.integers(0, len(lines) - 1))
    record = json.loads(lines[line])
    *above, last = data.draw(st.sampled_from(list(places(record))))
    inner = record
    for key in above:
        inner = inner[key]
    inner[last] = data.draw(JSON)
    path = of_lines(paths[kind].with_name("mangled.jsonl"), [*lines[:line], json.dumps(record), *lines[line + 1 :]])
    with suppress(ResultError):
        assert isinstance(result_file.read(path), Run)


# The schema

SCHEMA: dict[str, Any] = json.loads((files("kvconform.reports") / "result.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["header"]["properties"]["schema"] == {
        "description": "The version of this schema.",
        "const": SCHEMA_VERSION,
    }


@pytest.mark.parametrize("kind", ["check", "table", "mutate"])
def test_every_line_of_a_real_run_is_valid(kind: str, paths: dict[str, Path]) -> None:
    for line in paths[kind].read_text(encoding="utf-8").split("\n")[:-1]:
        VALIDATOR.validate(json.loads(line))


def test_a_figure_that_is_no_number_is_valid() -> None:
    endless = Finding(
        id="0" * 10, target="x", clause="x", dtype="float16", divergence="logits", op="append", program="append a 1",
        found_in="append a 1", step=0, token=0, detail="", difference=math.inf, allowed=math.inf, floor=math.inf, tolerance="",
        curve=((0, math.inf),), occurrences=1,
    )  # fmt: skip
    run = Run(
        Header("check x", ("x",), "quick", 0),
        cases=(Case("x", "x", "float16", Verdict.FAILED, largest=math.inf, findings=(endless,)),),
    )
    for line in result_file.lines(run):
        VALIDATOR.validate(json.loads(line))


@pytest.mark.parametrize(
    ("name", "kind", "beside"),
    [
        ("header", Header, {"type"}),
        ("case", Case, {"type", "id"}),
        ("finding", Finding, set()),
        ("row", TableRow, {"type"}),
        ("mutant", Mutant, {"type", "id"}),
        ("cell", Cell, {"type", "id"}),
        ("group", Group, {"type", "id"}),
    ],
)
def test_the_schema_knows_every_field(name: str, kind: type[Any], beside: set[str]) -> None:
    named = {field.name for field in fields(kind)} | beside
    assert set(SCHEMA["$defs"][name]["properties"]) == named
    assert set(SCHEMA["$defs"][name]["required"]) == named


@pytest.mark.parametrize(
    ("name", "words"),
    [("verdict", Verdict), ("kind", Kind), ("danger", Danger), ("outcome", Outcome), ("divergence", Divergence), ("op", KINDS)],
)
def test_the_schema_knows_every_word(name: str, words: Any) -> None:
    assert SCHEMA["$defs"][name]["enum"] == list(words)


@pytest.mark.parametrize("kind", ["check", "table", "mutate"])
def test_mangled_records_are_invalid(kind: str, paths: dict[str, Path]) -> None:
    seen: set[str] = set()
    for line in paths[kind].read_text(encoding="utf-8").split("\n")[:-1]:
        record = json.loads(line)
        if record["type"] in seen:
            continue
        seen.add(record["type"])
        for name in record:
            assert not VALIDATOR.is_valid({key: value for key, value in record.items() if key != name}), f"{name} left out"
            assert not VALIDATOR.is_valid(record | {name: {"an": ["object"]}}), f"{name} of another type"
        assert not VALIDATOR.is_valid(record | {"surplus": 1})
        assert not VALIDATOR.is_valid([record])
    assert {"header", "footer"} < seen


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "fine"},
        {"programs": -1},
        {"programs": 1.5},
        {"largest": "0"},
        {"largest": -1.0},
        {"id": "not ten hexadecimal digits"},
        {"target": ""},
        {"examples_to_failure": 0},
        {"findings": {}},
        {"findings": [{}]},
        {"verdict": "passed"},
    ],
    ids=str,
)
def test_a_case_with_a_wrong_value_is_invalid(changes: dict[str, Any], paths: dict[str, Path]) -> None:
    assert not VALIDATOR.is_valid(failed_case(paths) | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"divergence": "bad luck"},
        {"op": "sing"},
        {"step": -1},
        {"occurrences": 0},
        {"difference": "2.47"},
        {"curve": [[0]]},
        {"curve": [[0, 1.0, 2.0]]},
        {"curve": [["0", 1.0]]},
        {"surplus": 1},
    ],
    ids=str,
)
def test_a_finding_with_a_wrong_value_is_invalid(changes: dict[str, Any], paths: dict[str, Path]) -> None:
    record = failed_case(paths)
    record["findings"][0] |= changes
    assert not VALIDATOR.is_valid(record)


def failed_case(paths: dict[str, Path]) -> dict[str, Any]:
    records = map(json.loads, paths["check"].read_text(encoding="utf-8").split("\n")[:-1])
    record = next(record for record in records if record.get("findings"))
    assert VALIDATOR.is_valid(record)
    return copy.deepcopy(record)

"""Traces: what is written is read, and what a file's numbers show is told, right or wrong."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness import registry
from kvconform.harness.errors import KvconformError, TraceError
from kvconform.harness.program import Program
from kvconform.harness.traces.compare import Judgement, judge_traces, round_up
from kvconform.harness.traces.layout import REFERENCE, Header, chosen_positions, places, simple_program
from kvconform.harness.traces.read import open_trace
from kvconform.harness.traces.record import record_implementation, record_reference
from kvconform.harness.traces.write import CODES, TraceWriter
from kvconform.harness.trial import Verdict
from safetensors.torch import load_file, save_file
from torch import Tensor

TEXT = "append a 5 9 3 20 31 7 | 8 8 1 2 3 4; append a 7 | 9; append a 100 | 101; crop a 4; append a 44 12 | 1 2"
PROGRAM = Program.parse(TEXT)
LINES = 20


def write(path: Path, logits: Tensor, header: Header | None = None, noise: Tensor | None = None) -> Path:
    header = header or Header(str(simple_program(tuple(range(len(logits))), 1)))
    name = str(logits.dtype).removeprefix("torch.")
    with TraceWriter(path, name, logits.shape[1], header) as writer:
        for block in logits.split(3):
            writer.write(block)
        writer.finish(header, noise)
    return path


def drawn(lines: int = LINES, vocab: int = 50, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn((lines, vocab), generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 5).to(dtype)


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Judgement]:
    """REF and GOT as tables, judged as files. REF's header says a floor of 1e-6."""

    def judge(ref: Tensor, got: Tensor, program: Program = PROGRAM, **options: object) -> Judgement:
        header = Header(str(program), logits_of=REFERENCE, dtype="float32", floor=1e-6)
        write(tmp_path / "ref.safetensors", ref, header)
        save_file({"logits": got.contiguous()}, tmp_path / "got.safetensors")
        found = [open_trace(tmp_path / f"{name}.safetensors") for name in ("ref", "got")]
        return judge_traces(*found, **options)  # type: ignore[arg-type]

    return judge


# What is written is read


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(list(CODES)),
    st.integers(1, 9),
    st.integers(1, 17),
    st.integers(0, 1000),
    st.booleans(),
    st.data(),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, name: str, lines: int, vocab: int, seed: int, noisy: bool, data: st.DataObject
) -> None:
    logits = drawn(lines, vocab, seed, getattr(torch, name))
    program = simple_program(tuple(range(lines)), 1)
    positions = None if noisy else tuple(range(lines))
    header = Header(str(program), "t", REFERENCE, "s", name, vocab, 1e-7, 12.5, positions, "0")
    noise = drawn(lines, 2).abs().double() if noisy else None
    path = write(tmp_path_factory.mktemp("round") / "trace.safetensors", logits, header, noise)
    found = open_trace(path)
    assert (found.dtype, found.shape, found.header) == (name, (lines, vocab), header)
    picks = data.draw(st.lists(st.integers(0, lines - 1), min_size=1, max_size=12))
    assert found.take(picks).equal(logits[picks].double())
    assert (found.noise is None) == (noise is None)
    if noise is not None and found.noise is not None:
        assert found.noise.allclose(noise)
    assert load_file(path)["logits"].equal(logits)  # the library reads it too


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["<f2", "<f4", "<f8", ">f4"]),
    st.integers(0, 3),
    st.integers(1, 6),
    st.integers(1, 9),
    st.booleans(),
    st.data(),
)
def test_npy_is_read(
    tmp_path_factory: pytest.TempPathFactory, kind: str, rows: int, lines: int, vocab: int, turned: bool, data: st.DataObject
) -> None:
    shape = (rows, lines, vocab) if rows else (lines, vocab)
    array = numpy.random.default_rng(0).normal(size=shape).astype(kind)
    path = tmp_path_factory.mktemp("npy") / "trace.npy"
    numpy.save(path, numpy.asfortranarray(array) if turned else array)
    found = open_trace(path)
    assert found.count == max(1, rows) * lines
    flat = torch.from_numpy(array.astype("<f8")).reshape(-1, vocab)
    picks = data.draw(st.lists(st.integers(0, found.count - 1), min_size=1, max_size=12))
    assert found.take(picks).equal(flat[picks])


@settings(max_examples=100, deadline=None)
@given(
    st.booleans(), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6), st.integers(0, 600)
)
def test_a_mangled_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, npy: bool, changes: list[tuple[int, int]], end: int
) -> None:
    path = tmp_path_factory.mktemp("mangled") / "x"
    if npy:
        numpy.save(path.with_suffix(".npy"), drawn(5, 7).numpy())
        path = path.with_suffix(".npy")
    else:
        save_file({"logits": drawn(5, 7)}, path, {"program": "append a 1 2 3 4 5", "floor": "1e-6", "positions": "[0, 1, 2]"})
    data = bytearray(path.read_bytes())
    for at, value in changes:
        data[at % len(data)] = value
    path.write_bytes(data[: max(len(data) - 100, 0) + end])
    line = ""
    try:
        found = open_trace(path)
        assert found.take(range(found.count)).shape == (found.count, found.vocab)
    except TraceError as error:
        line = str(error)
    assert "\n" not in line


def test_a_writer_that_is_left_leaves_no_file(tmp_path: Path) -> None:
    def leave() -> None:
        with TraceWriter(tmp_path / "x.safetensors", "float32", 3, Header("append a 1")) as writer:
            writer.write(torch.zeros(1, 3))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        leave()
    assert list(tmp_path.iterdir()) == []


def test_the_writer_of_the_documentation_writes_a_trace(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "traces.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Callable[..., None]] = {}
    exec(source, names)
    logits = drawn(4, 7)
    names["write_trace"](tmp_path / "x.safetensors", logits.tolist())
    assert open_trace(tmp_path / "x.safetensors").take([0, 1, 2, 3]).equal(logits.double())


def test_places_say_what_each_line_is_about() -> None:
    found = places(PROGRAM)
    assert len(found) == LINES
    assert [(one.op, one.row, one.index, one.token) for one in found[-4:]] == [
        (4, 0, 4, 44),
        (4, 0, 5, 12),
        (4, 1, 4, 1),
        (4, 1, 5, 2),
    ]
    assert chosen_positions("last", LINES, found) == (5, 11, 12, 13, 14, 15, 17, 19)
    assert chosen_positions("decode", LINES, found) == tuple(range(12, 20))
    assert chosen_positions("3, 5-7", LINES, found) == (3, 5, 6, 7)


# Verdicts


def test_a_trace_passes_against_itself(judged: Callable[..., Judgement]) -> None:
    found = judged(drawn(), drawn())
    assert (found.verdict, found.compared, found.largest, found.smallest, found.agree) == (Verdict.PASSED, LINES, 0, 0, LINES)
    assert found.first is None
    assert found.clues == ()


@pytest.mark.parametrize(
    ("size", "verdict"), [(1e-5, Verdict.PASSED), (3e-4, Verdict.INCONCLUSIVE), (2e-2, Verdict.FAILED)], ids=str
)
def test_a_difference_is_judged_by_the_floor_of_the_header(
    judged: Callable[..., Judgement], size: float, verdict: Verdict
) -> None:
    got = drawn()
    got[7, 3] += size
    found = judged(drawn(), got)
    assert found.verdict is verdict
    assert found.floor == 1e-6
    assert found.largest_at == 7
    assert found.largest == pytest.approx(size, rel=0.2)
    assert found.first == (None if verdict is Verdict.PASSED else 7)
    assert judged(drawn(), got, tolerance=found.smallest).verdict is Verdict.PASSED
    assert judged(drawn(), got, tolerance=found.largest * 0.99).verdict is Verdict.FAILED


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_never_passes(judged: Callable[..., Judgement], value: float) -> None:
    got = drawn()
    got[9, 0] = value
    for options in ({}, {"tolerance": 1e30}):
        found = judged(drawn(), got, **options)
        assert (found.verdict, found.first, found.not_finite, found.agree) == (Verdict.FAILED, 9, 1, LINES - 1)
        assert found.smallest is None
        assert found.detail == "1 position(s) hold NaN or infinity, the first is 9"
    everything = judged(drawn(), torch.full_like(got, value))
    assert (everything.verdict, everything.first, everything.agree) == (Verdict.FAILED, 0, 0)


def test_figures_are_those_of_the_definitions(judged: Callable[..., Judgement]) -> None:
    ref, got = drawn().double(), drawn(seed=1)
    found = judged(drawn(), got)
    given, due = got.double(), ref
    assert found.largest == (given - due).abs().max().item()
    assert found.rms == pytest.approx((given - due).square().mean().sqrt().item())
    apart = torch.nn.functional.kl_div(given.log_softmax(-1), due.log_softmax(-1), log_target=True, reduction="none").sum(-1)
    assert (found.kl_max, found.kl_mean) == pytest.approx((apart.max().item(), apart.mean().item()))
    assert found.agree == int((given.argmax(-1) == due.argmax(-1)).sum())
    assert found.scale == due.abs().max().item()


@pytest.mark.parametrize("block", [8, 50 * 8 * 3, 2**22])
def test_the_size_of_blocks_changes_nothing(
    judged: Callable[..., Judgement], monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr("kvconform.harness.traces.match.BLOCK", block)
    got = drawn().roll(-1, 0)
    found = judged(drawn(), got, program=simple_program(tuple(range(LINES)), 4))
    assert found.clues == ("GOT is one position ahead: GOT[i] is REF[i+1] (19 of 20 positions can tell)",)
    assert found.first == 0


@pytest.mark.parametrize("size", [1e-5, 0.5], ids=str)
def test_without_a_floor_only_what_is_certain_is_told(tmp_path: Path, size: float) -> None:
    ref, got = drawn(), drawn()
    got[2, 2] += size
    for name, table in (("ref", ref), ("mid", ref + 1e-3), ("got", got)):
        numpy.save(tmp_path / f"{name}.npy", table.numpy())
    due, between, given = (open_trace(tmp_path / f"{name}.npy") for name in ("ref", "mid", "got"))
    found = judge_traces(due, given)
    assert found.verdict is (Verdict.PASSED if size < 1e-3 else Verdict.FAILED)
    assert found.judged_by.startswith("no floor: REF's header has none; give --reference or --tolerance")
    assert judge_traces(due, between).verdict is Verdict.INCONCLUSIVE


# Diagnoses

ONE_ROW = simple_program(tuple(range(LINES)), 8)
CLUES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "ahead": (lambda ref: ref.roll(-1, 0), "GOT is one position ahead: GOT[i] is REF[i+1] (19 of 20 positions can tell)"),
    "behind": (lambda ref: ref.roll(1, 0), "GOT is one position behind: GOT[i] is REF[i-1] (19 of 20 positions can tell)"),
    "last": (lambda ref: ref[-1:].repeat(LINES, 1), "GOT holds the logits of the last position at every position"),
    "log-probabilities": (lambda ref: ref.log_softmax(-1), "GOT holds log-probabilities, not logits"),
    "probabilities": (lambda ref: ref.softmax(-1), "GOT holds probabilities, not logits"),
    "constant": (
        lambda ref: ref + torch.arange(LINES)[:, None],
        "GOT adds a constant to all logits of a position: no probability changes",
    ),
    "temperature": (lambda ref: ref / 0.7, "GOT is REF times 1.42857"),
    "sign": (lambda ref: -ref, "GOT is REF times -1"),
    "float16": (lambda ref: ref.half().float(), "GOT rounds REF to float16, and no more"),
    "bfloat16": (lambda ref: ref.bfloat16().float(), "GOT rounds REF to bfloat16, and no more"),
    "vocabulary": (lambda ref: ref.roll(1, 1), "GOT's vocabulary is off by one: entry v holds what is due at v-1"),
}


@pytest.mark.parametrize("name", CLUES)
def test_a_diagnosis_is_told_where_the_numbers_prove_it(judged: Callable[..., Judgement], name: str) -> None:
    spoil, sentence = CLUES[name]
    found = judged(drawn(), spoil(drawn()), program=ONE_ROW)
    assert found.verdict is not Verdict.PASSED
    assert found.clues == (sentence,)


@pytest.mark.parametrize("name", CLUES)
def test_a_diagnosis_is_not_told_where_a_position_denies_it(judged: Callable[..., Judgement], name: str) -> None:
    got = CLUES[name][0](drawn())
    got[11] = drawn(seed=5)[0]
    assert not any(sentence == CLUES[name][1] for sentence in judged(drawn(), got, program=ONE_ROW).clues)


def test_small_noise_is_no_half_precision(judged: Callable[..., Judgement]) -> None:
    assert judged(drawn(), drawn() + drawn(seed=3) * 1e-5, program=ONE_ROW).clues == ()


def test_rows_that_changed_places(judged: Callable[..., Judgement]) -> None:
    got = drawn()
    got[[12, 13]] = got[[13, 12]]
    found = judged(drawn(), got)
    assert found.clues == ("op 1: GOT's rows 0 1 hold what is due for rows 1 0",)
    assert found.where == "2 of 20 positions deviate, all in appends to a cache that already held tokens"
    assert found.place is not None
    assert (found.place.op, found.place.row, found.place.index, found.place.token) == (1, 0, 6, 7)


def test_a_line_that_is_due_elsewhere(judged: Callable[..., Judgement]) -> None:
    got = drawn()
    got[14] = got[3]
    found = judged(drawn(), got, program=ONE_ROW)
    assert found.clues == ("position 14 holds what is due at position 3",)
    assert found.where == "1 of 20 positions deviate, all in appends to a cache that already held tokens"


def test_where_a_row_alone_deviates(judged: Callable[..., Judgement]) -> None:
    got = drawn()
    got[[8, 13, 19]] += 1 + drawn(3, seed=7)
    assert judged(drawn(), got).where == "3 of 20 positions deviate, all in row 1 of cache a"


# Which lines are held against each other


def test_parts_of_the_positions(judged: Callable[..., Judgement], tmp_path: Path) -> None:
    ref = drawn()
    for text in ("last", "decode", "0,4,7-9"):
        held = chosen_positions(text, LINES, places(PROGRAM))
        found = judged(ref, ref[list(held)], positions=text)
        assert (found.verdict, found.compared, found.total) == (Verdict.PASSED, len(held), LINES)
    save_file({"logits": ref[[19, 2]]}, tmp_path / "part.safetensors", {"positions": "[19, 2]"})
    found = judge_traces(open_trace(tmp_path / "ref.safetensors"), open_trace(tmp_path / "part.safetensors"))
    assert (found.verdict, found.compared) == (Verdict.PASSED, 2)


def test_three_dimensions_are_rows(judged: Callable[..., Judgement]) -> None:
    ref = drawn()
    by_row = [[index for index, place in enumerate(places(PROGRAM)) if place.row == row] for row in (0, 1)]
    found = judged(ref, torch.stack([ref[line] for line in by_row]))
    assert (found.verdict, found.largest) == (Verdict.PASSED, 0)


@pytest.mark.parametrize("size", [0, 1e-20, 1e-7, 0.123456, 1.001, 999.9, 12345.6])
def test_rounded_up_is_never_below(size: float) -> None:
    assert size <= round_up(size) <= size * 1.0101


# Against models


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A trace of a built-in, made once."""
    folder = tmp_path_factory.mktemp("recorded")

    def record(target: str, text: str = TEXT, dtype: str = "", reference: bool = False) -> Path:
        path = folder / f"{abs(hash((target, text, dtype, reference)))}.safetensors"
        if not path.exists():
            write = record_reference if reference else record_implementation
            write(target, registry.resolve(target), Program.parse(text), dtype, path)
        return path

    return record


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_right_passes_and_wrong_fails_in_every_precision(recorded: Callable[..., Path], dtype: str) -> None:
    ref = open_trace(recorded("builtin:llama/concat", dtype=dtype, reference=True))
    right = judge_traces(ref, open_trace(recorded("builtin:llama/concat", dtype=dtype)))
    assert (right.verdict, right.dtype) == (Verdict.PASSED, dtype)
    for fault in ("no_mask", "pos_zero", "pos_per_call"):
        wrong = judge_traces(ref, open_trace(recorded(f"builtin:llama/{fault}", dtype=dtype)))
        assert wrong.verdict is Verdict.FAILED, fault
        assert wrong.place is not None
        assert wrong.place.fresh == (fault == "no_mask")


def test_half_precision_without_its_noise_cannot_be_told(recorded: Callable[..., Path]) -> None:
    ref = open_trace(recorded("builtin:gpt/concat", dtype="float32", reference=True))
    got = open_trace(recorded("builtin:gpt/concat", dtype="bfloat16"))
    found = judge_traces(ref, got)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.judged_by == (
        "no floor: REF's was measured in float32, and GOT is bfloat16; "
        "give --reference or --tolerance, or a REF made by kvconform record --dtype bfloat16"
    )
    told = judge_traces(ref, got, reference=registry.resolve("builtin:gpt/concat").reference)
    assert (told.verdict, told.judged_by) == (
        Verdict.PASSED,
        "the noise of the reference's own bfloat16 pass, measured now",
    )


def test_a_reference_goes_on_where_ref_ends(recorded: Callable[..., Path]) -> None:
    longer = f"{TEXT}; append a 6 6 6 | 7 7 7"
    ref = open_trace(recorded("builtin:gpt/concat", reference=True))
    plain = registry.resolve("builtin:gpt/concat").reference
    found = judge_traces(ref, open_trace(recorded("builtin:gpt/concat", longer)), reference=plain)
    assert (found.verdict, found.compared, found.total) == (Verdict.PASSED, LINES + 6, LINES + 6)
    assert found.judged_by == "the floor measured on the reference now"
    with pytest.raises(TraceError, match="GOT was recorded for another program than REF"):
        judge_traces(ref, open_trace(recorded("builtin:gpt/concat", longer)))
    wrong = judge_traces(ref, open_trace(recorded("builtin:gpt/pos_zero", longer)), reference=plain)
    assert wrong.verdict is Verdict.FAILED


def test_a_reference_that_ref_is_not_of_is_told(recorded: Callable[..., Path]) -> None:
    ref = open_trace(recorded("builtin:gpt/concat", reference=True))
    with pytest.raises(TraceError, match=r"^REF is not what --reference gives: max .Δlogit. \S+ at position \d+, allowed"):
        judge_traces(ref, ref, reference=registry.resolve("builtin:llama/concat").reference)


def test_an_engine_that_gives_the_last_position_only(tmp_path: Path, recorded: Callable[..., Path]) -> None:
    from kvconform.harness.target import Resolved

    resolved = registry.resolve("builtin:gpt/concat")
    whole = resolved.implementation.append
    resolved.implementation.append = lambda cache, tokens, lengths=None: whole(cache, tokens, lengths)[:, -1:]  # type: ignore[method-assign]
    path = tmp_path / "last.safetensors"
    header = record_implementation("mine", Resolved(resolved.implementation, resolved.reference), PROGRAM, "", path)
    assert header.positions == chosen_positions("last", LINES, places(PROGRAM))
    found = judge_traces(open_trace(recorded("builtin:gpt/concat", reference=True)), open_trace(path))
    assert (found.verdict, found.compared, found.total) == (Verdict.PASSED, 8, LINES)


def test_the_header_says_what_is_fed(recorded: Callable[..., Path]) -> None:
    from safetensors import safe_open

    with safe_open(recorded("builtin:gpt/concat", reference=True), "pt") as file:
        metadata = file.metadata()
    assert json.loads(metadata["appends"])[-1] == {"op": 4, "cache": "a", "row": 1, "past": 4, "tokens": [1, 2]}
    assert {name: metadata[name] for name in ("trace", "program", "target", "logits_of", "dtype", "vocab")} == {
        "trace": "1",
        "program": TEXT,
        "target": "builtin:gpt/concat",
        "logits_of": "reference",
        "dtype": "float32",
        "vocab": "1200",
    }
    assert float(metadata["floor"]) < 1e-4 < float(metadata["scale"])


def test_what_cannot_be_recorded(tmp_path: Path) -> None:
    resolved, path = registry.resolve("builtin:gpt/concat"), tmp_path / "x.safetensors"

    def refusal(write: Callable[..., Header], text: str) -> str:
        with pytest.raises(KvconformError) as told:
            write("builtin:gpt/concat", resolved, Program.parse(text), "", path)
        assert list(tmp_path.iterdir()) == []
        return str(told.value)

    nothing = "the program appends nothing, so there is nothing to record; write for example: append a 5 9 3"
    assert refusal(record_reference, "append a! 1200") == nothing
    assert refusal(record_implementation, "append a! 1200") == nothing
    assert refusal(record_reference, "append a 1200") == "op 'append a 1200' has a token beyond the vocabulary of 1200"
    long = "append a " + " ".join(["1"] * 129)
    assert refusal(record_reference, long).endswith("…' goes beyond the model's 64 positions")
    assert refusal(record_implementation, "append a 1200") == (
        "builtin:gpt/concat cannot run this program: its vocabulary has 1200 tokens"
    )

"""`kvconform record` and `kvconform compare` as their users meet them: exact texts, exit codes, memory."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from kvconform.harness.traces.layout import REFERENCE, Header, simple_program
from kvconform.harness.traces.write import TraceWriter
from kvconform.interface import cli
from safetensors.torch import save_file

COMMAND = Path(sys.executable).with_name("kvconform")
PROGRAM = "append a 5 9 3 20 31 7; append a 7; append a 9; append a 100; append a 44 12"

Outcome = tuple[int, str, str]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """A command in this process, in a folder of its own: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["kvconform", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return run


def kvconform(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KVCONFORM", "PYTHON"))}
    return subprocess.run(
        [COMMAND, *words], cwd=cwd, env={**environment, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
    )


def test_the_real_commands(tmp_path: Path) -> None:
    """REF from the reference; a faulty and a right GOT from implementations."""
    told = kvconform("record", "builtin:gpt/concat", PROGRAM, cwd=tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    assert re.fullmatch(
        r"ref.safetensors: the reference \(.+\) of builtin:gpt/concat in float32, scale 12\.8, floor \S+e-0[56]\n", told.stdout
    )
    told = kvconform("record", "builtin:gpt/no_mask", PROGRAM, "--implementation", "--out", "got.safetensors", cwd=tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    told = kvconform("compare", "ref.safetensors", "got.safetensors", cwd=tmp_path)
    assert (told.returncode, told.stderr) == (1, "")
    lines = dict(re.findall(r"^(.+?)  +(.+)$", told.stdout, re.MULTILINE))
    assert lines["positions compared"] == "11 of 11"
    assert lines["first bad token"] == "position 0: token 0 of cache a, row 0, in op 0 (append a 5 9 3 20 31 7)"
    assert lines["max |Δlogit|"] == "4.62 at position 0, 0.36 of the scale 12.8"
    assert lines["top-1"] == "10 of 11 agree"
    assert lines["smallest tolerance"] == "--tolerance 4.63 passes"
    assert lines["judged"] == "in float32, by the floor measured when REF was recorded"
    last = told.stdout.splitlines()[-1]
    assert last.startswith("got.safetensors against ref.safetensors: failed: max |Δlogit| 4.62, allowed ")


def test_a_program_from_a_file_and_a_prompt_as_tokens_are_one_trace(ran: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "program.txt").write_text("append a 5 9 3 20\nappend a 7\nappend a 9\n")
    (tmp_path / "tokens.txt").write_text("[5, 9, 3, 20, 7, 9]\n")
    for out, words in {
        "a": ["@program.txt"],
        "b": ["--tokens", "5 9 3 20 7 9", "--prefill", "4"],
        "c": ["--tokens", "@tokens.txt", "--prefill", "4"],
    }.items():
        assert ran("record", "builtin:gpt/concat", *words, "--out", f"{out}.safetensors")[0] == 0
    first, *others = ((tmp_path / f"{name}.safetensors").read_bytes() for name in "abc")
    assert others == [first, first]


def test_json_and_npy(ran: Callable[..., Outcome], tmp_path: Path) -> None:
    assert ran("record", "builtin:gpt/concat", PROGRAM)[0] == 0
    assert ran("record", "builtin:gpt/pos_zero", PROGRAM, "--implementation", "--out", "got.safetensors")[0] == 0
    from safetensors.numpy import load_file

    logits = load_file(tmp_path / "got.safetensors")["logits"]
    numpy.save(tmp_path / "whole.npy", logits[None])
    numpy.save(tmp_path / "decode.npy", logits[6:])
    numpy.save(tmp_path / "prefill.npy", logits[:6].astype(numpy.float64))
    code, out, _ = ran("compare", "ref.safetensors", "whole.npy", "--json")
    found = json.loads(out)
    assert (code, found["verdict"], found["first"], found["place"]["op"], found["compared"]) == (1, "failed", 6, 1, 11)
    assert found["where"] == "5 of 11 positions deviate, all in appends to a cache that already held tokens"
    code, out, _ = ran("compare", "ref.safetensors", "decode.npy", "--positions", "decode", "--json")
    assert (code, json.loads(out)["compared"], json.loads(out)["first"]) == (1, 5, 6)
    code, out, _ = ran("compare", "ref.safetensors", "prefill.npy", "--positions", "0-5")
    assert (code, out.splitlines()[-1].split(":")[1].strip()) == (0, "passed")
    logits[3, 3] = numpy.nan
    numpy.save(tmp_path / "nan.npy", logits)
    code, out, _ = ran("compare", "ref.safetensors", "nan.npy", "--json")
    assert (code, json.loads(out)["not_finite"], json.loads(out)["smallest"]) == (1, 1, None)


# Bad input: one clear line, exit code 2


def table(lines: int = 3, vocab: int = 4) -> torch.Tensor:
    return torch.arange(lines * vocab, dtype=torch.float32).reshape(lines, vocab)


def whole_file(path: Path) -> bytes:
    save_file({"logits": table()}, path)
    return path.read_bytes()


def save_npy(array: numpy.ndarray) -> Callable[[Path], object]:
    return lambda path: numpy.save(path, array, allow_pickle=True)


def saved(**tensors: torch.Tensor) -> Callable[[Path], object]:
    return lambda path: save_file(tensors, path)


def said(**metadata: str) -> Callable[[Path], object]:
    return lambda path: save_file({"logits": table()}, path, metadata)


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "missing": ("got.npy", lambda path: None, "cannot read got.npy: No such file or directory"),
    "folder": ("got.npy", lambda path: path.mkdir(), "cannot read got.npy: Is a directory"),
    "empty": ("got.safetensors", lambda path: path.write_bytes(b""), "got.safetensors is empty"),
    "text": (
        "got.safetensors",
        lambda path: path.write_text("these are no logits"),
        "got.safetensors is neither safetensors nor npy, or cut short",
    ),
    "three bytes": (
        "got.safetensors",
        lambda path: path.write_bytes(b"abc"),
        "got.safetensors is neither safetensors nor npy, or cut short",
    ),
    "header without end": (
        "got.safetensors",
        lambda path: path.write_bytes(whole_file(path)[:40]),
        "got.safetensors is neither safetensors nor npy, or cut short",
    ),
    "numbers without end": (
        "got.safetensors",
        lambda path: path.write_bytes(whole_file(path)[:-5]),
        "got.safetensors is cut short: it holds fewer bytes than its header says",
    ),
    "npy without end": (
        "got.npy",
        lambda path: (save_npy(table().numpy())(path), path.write_bytes(path.read_bytes()[:-5])),
        "got.npy is cut short, or no npy file: ",
    ),
    "torch": (
        "got.pt",
        lambda path: torch.save(table(), path),
        "got.pt is a pickle, which may run code when it is read; write safetensors or npy instead",
    ),
    "pickle by another name": (
        "got.safetensors",
        lambda path: path.write_bytes(pickle.dumps([1.0])),
        "got.safetensors is a pickle, which may run code when it is read; write safetensors or npy instead",
    ),
    "pickle of old": (
        "got.pkl",
        lambda path: path.write_bytes(pickle.dumps([1.0], protocol=0)),
        "got.pkl is a pickle, which may run code when it is read; write safetensors or npy instead",
    ),
    "bin": (
        "got.bin",
        lambda path: path.write_bytes(b"\0" * 64),
        "got.bin is a pickle, which may run code when it is read; write safetensors or npy instead",
    ),
    "objects": (
        "got.npy",
        save_npy(numpy.array([[1.0, None]], dtype=object)),
        "got.npy holds Python objects, that is, a pickle; save an array of plain numbers",
    ),
    "npz": (
        "got.npz",
        lambda path: numpy.savez(path, logits=table().numpy()),
        "got.npz is a zip archive, as npz or torch.save make; write safetensors, or one array by numpy.save",
    ),
    "whole numbers": (
        "got.npy",
        save_npy(numpy.zeros((3, 4), dtype=numpy.int64)),
        "got.npy holds int64 numbers, and logits are float16, bfloat16, float32 or float64 (bfloat16 only in safetensors)",
    ),
    "whole numbers, safetensors": (
        "got.safetensors",
        saved(logits=table().long()),
        "got.safetensors holds I64 numbers, and logits are float16, bfloat16, float32 or float64",
    ),
    "no tensor of the name": (
        "got.safetensors",
        saved(a=table(), b=table()),
        "got.safetensors has no tensor called logits; it holds a, b",
    ),
    "no tensor": ("got.safetensors", saved(), "got.safetensors has no tensor called logits; it holds none"),
    "one dimension": (
        "got.npy",
        save_npy(numpy.zeros(4, dtype=numpy.float32)),
        "got.npy: logits have shape [4]; write [n, vocab] or [rows, n, vocab]",
    ),
    "no positions": ("got.safetensors", saved(logits=table(0)), "got.safetensors is empty: logits have shape [0, 4]"),
    "vocabulary": (
        "got.safetensors",
        saved(logits=table(3, 6)),
        "REF is [3, 4], GOT is [3, 6]: the vocabularies differ (4 and 6); cut padding off the vocabulary before writing",
    ),
    "transposed": (
        "got.safetensors",
        saved(logits=table(4, 3)),
        "REF is [3, 4], GOT is [4, 3]: the vocabularies differ. "
        "GOT is transposed: write a position's logits as one row, [n, vocab]",
    ),
    "too few": (
        "got.safetensors",
        saved(logits=table(2)),
        "GOT is [2, 4], that is 2 position(s), and the trace has 3; "
        "say which by --positions last, --positions decode, or as 16-32",
    ),
    "too many": ("got.safetensors", saved(logits=table(5)), "GOT is [5, 4], that is 5 position(s), and the trace has 3"),
    "another program": (
        "got.safetensors",
        said(program="append a 4 5 6"),
        "GOT was recorded for another program than REF; record both for the same one",
    ),
    "no program": (
        "got.safetensors",
        said(program="prefill 4 5 6"),
        "got.safetensors: the program in its metadata cannot be read: no op 'prefill' in 'prefill 4 5 6'; the ops are append, "
        "fork, crop, reset, select, join, restore, drop",
    ),
    "another version": (
        "got.safetensors",
        said(trace="7"),
        "got.safetensors is a trace of version 7, and this kvconform reads version 1",
    ),
    "positions that are none": (
        "got.safetensors",
        said(positions="[0, 1, -2]"),
        "got.safetensors: positions in its metadata must be a JSON list such as [15, 16, 17]",
    ),
    "positions twice": (
        "got.safetensors",
        said(positions="[0, 1, 1]"),
        "got.safetensors: positions in its metadata name a position twice",
    ),
    "positions beyond": (
        "got.safetensors",
        said(positions="[0, 1, 3]"),
        "GOT says that it holds position 3, and the program has 3 of them",
    ),
    "dtype": (
        "got.safetensors",
        said(dtype="int4"),
        "got.safetensors: dtype in its metadata is 'int4', and logits are float16, bfloat16, float32 or float64",
    ),
    "another vocabulary": (
        "got.safetensors",
        said(vocab="5"),
        "got.safetensors: its header says a vocabulary of 5, and its logits have 4",
    ),
    "a number that is none": (
        "got.safetensors",
        said(floor="-1"),
        "got.safetensors: floor in its metadata is '-1', no number from 0 on",
    ),
}


def write_ref(path: Path, lines: int = 3, vocab: int = 4) -> None:
    header = Header("append a 1 2; append a 3", logits_of=REFERENCE, dtype="float32", floor=1e-6)
    with TraceWriter(path, "float32", vocab, header) as writer:
        writer.write(table(lines, vocab))
        writer.finish(header)


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_cannot_be_judged(ran: Callable[..., Outcome], tmp_path: Path, name: str) -> None:
    file, make, line = BAD[name]
    make(tmp_path / file)
    write_ref(tmp_path / "ref.safetensors")
    code, out, error = ran("compare", "ref.safetensors", file)
    assert (code, out) == (2, "")
    assert error.startswith(f"kvconform: {line}") if line.endswith(": ") else error == f"kvconform: {line}\n"
    assert error.count("\n") == 1


CALLS: dict[str, tuple[list[str], str]] = {
    "positions": (["--positions", "first"], "--positions 'first' is not last, decode, or numbers and ranges such as 0,4,16-32"),
    "positions beyond": (["--positions", "0-3"], "--positions 0-3: the trace has positions 0 to 2"),
    "positions backwards": (["--positions", "2-1"], "--positions 2-1: the trace has positions 0 to 2"),
    "positions twice": (["--positions", "1,0-1"], "--positions 1,0-1 names a position twice"),
    "positions of another number": (
        ["--positions", "decode"],
        "GOT is [3, 4], that is 3 position(s), and 1 are named",
    ),
    "tolerance": (["--tolerance", "inf"], "--tolerance inf is no size; write a number such as 1e-3"),
    "tolerance below": (["--tolerance=-1"], "--tolerance -1.0 is no size; write a number such as 1e-3"),
    "tolerance that is none": (["--tolerance", "nan"], "--tolerance nan is no size; write a number such as 1e-3"),
    "reference": (
        ["--reference", "builtin:gpt/concat"],
        "the reference has a vocabulary of 1200, and REF of 4",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_compare_that_is_wrong(ran: Callable[..., Outcome], tmp_path: Path, name: str) -> None:
    words, line = CALLS[name]
    write_ref(tmp_path / "ref.safetensors")
    assert ran("compare", "ref.safetensors", "ref.safetensors", *words) == (2, "", f"kvconform: {line}\n")


def test_a_ref_that_is_not_finite_is_no_ref(ran: Callable[..., Outcome], tmp_path: Path) -> None:
    logits = table()
    logits[1, 2] = torch.nan
    save_file({"logits": logits}, tmp_path / "ref.safetensors")
    expected = (2, "", "kvconform: ref.safetensors itself holds NaN or infinity at position 1\n")
    assert ran("compare", "ref.safetensors", "ref.safetensors") == expected


RECORDS: dict[str, tuple[list[str], str]] = {
    "nothing": ([], 'give a program ("append a 5 9 3; append a 7") or --tokens "5 9 3 7", one of the two'),
    "both": (
        ["append a 1", "--tokens", "1"],
        'give a program ("append a 5 9 3; append a 7") or --tokens "5 9 3 7", one of the two',
    ),
    "prefill": (["append a 1", "--prefill", "1"], "--prefill goes with --tokens; a program says itself what each call holds"),
    "tokens": (["--tokens", "1 two"], "--tokens: 'two' is no whole number from 0 on"),
    "too short": (["--tokens", "1 2", "--prefill", "3"], "--prefill 3 of 2 tokens cannot be; give at least as many tokens"),
    "no file": (["@nothing.txt"], "cannot read nothing.txt: No such file or directory"),
    "illegal": (["crop a 1"], "'crop a 1' is not legal here: there is no live cache a; append to it first"),
    "two precisions": (
        ["append a 1", "--dtype", "float32,float64"],
        "a trace is of one precision; choose one of --dtype float32,float64",
    ),
    "name": (
        ["append a 1", "--out", "ref.npy"],
        "--out ref.npy: a trace is a safetensors file; let its name end in .safetensors",
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_call_of_record_that_is_wrong(ran: Callable[..., Outcome], tmp_path: Path, name: str) -> None:
    words, line = RECORDS[name]
    assert ran("record", "builtin:gpt/concat", *words) == (2, "", f"kvconform: {line}\n")
    assert list(tmp_path.iterdir()) == []


# Memory


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Files of 160 MB are judged with little more anonymous memory than files of 10 MB."""
    vocab, peaks = 10_000, dict[int, int]()
    for lines in (256, 4096):
        header = Header(str(simple_program((1,) * lines, lines)), logits_of=REFERENCE, dtype="float32", floor=1e-6)
        for name in ("ref", "got"):
            with TraceWriter(tmp_path / f"{name}.safetensors", "float32", vocab, header) as writer:
                for first in range(0, lines, 64):
                    writer.write(torch.arange(first, first + 64)[:, None] + torch.linspace(0, 1, vocab))
                writer.finish(header)
        peaks[lines] = peak_of_compare(tmp_path)
        (tmp_path / "ref.safetensors").unlink()
        (tmp_path / "got.safetensors").unlink()
    assert peaks[256] > 2**25
    assert peaks[4096] - peaks[256] < 64 * 2**20, {lines: peak / 2**20 for lines, peak in peaks.items()}


def peak_of_compare(folder: Path) -> int:
    """Most anonymous memory, in bytes, that the command held."""
    command = [COMMAND, "compare", "ref.safetensors", "got.safetensors"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        most, over = [0], threading.Event()

        def watch() -> None:
            while not over.wait(0.01):
                found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
                most.append(int(found[1]) * 1024 if found else 0)

        watcher = threading.Thread(target=watch)
        watcher.start()
        output, _ = process.communicate(timeout=300)
        over.set()
        watcher.join()
    assert process.returncode == 0
    assert "passed" in output
    return max(most)

"""How much memory judging two large traces takes: anonymous memory, by the kernel's own count.

    OMP_NUM_THREADS=1 python benchmarks/trace_memory.py [--positions 4096] [--vocab 150000] [--folder /tmp]

Writes two float32 traces that differ by rounding, judges one by the other and by a spoilt copy of itself in processes of
their own, watches RssAnon of each, removes the files, and prints the page that is kept in docs/evidence/trace_memory.md.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from kvconform.harness.traces.layout import REFERENCE, Header, simple_program
from kvconform.harness.traces.write import TraceWriter

BLOCK = 64
WORDS = {0: "passed", 1: "failed", 2: "inconclusive"}


def anonymous(pid: int | str) -> int:
    """Bytes of anonymous memory that a process holds now; 0 where it is gone."""
    try:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def peak_of(command: list[str]) -> tuple[int, int, float, str]:
    """Exit code, most anonymous memory, seconds and last line of a command."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    most, over = 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, anonymous(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    over.set()
    watcher.join()
    return process.returncode, most, time.monotonic() - began, output.strip().splitlines()[-1]


def write(path: Path, positions: int, vocab: int, error: float, bad: int | None = None) -> int:
    """A trace of drawn logits with rounding of this size, and one wrong position; the most anonymous memory while writing."""
    program = simple_program(tuple(index % 1000 for index in range(positions)), positions)
    header = Header(str(program), "", REFERENCE, "drawn", "float32", vocab, floor=1e-5, scale=40.0)
    draw, noise, most = torch.Generator().manual_seed(0), torch.Generator().manual_seed(1), 0
    with TraceWriter(path, "float32", vocab, header) as writer:
        for first in range(0, positions, BLOCK):
            block = torch.randn((min(BLOCK, positions - first), vocab), generator=draw) * 8
            if error:
                block += error * (torch.rand(block.shape, generator=noise) - 0.5)
            if bad is not None and first <= bad < first + BLOCK:
                block[bad - first] = block[bad - first].roll(1)
            writer.write(block)
            most = max(most, anonymous("self"))
        writer.finish(header)
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positions", type=int, default=4096)
    parser.add_argument("--vocab", type=int, default=150_000)
    parser.add_argument("--folder", default=None)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="trace_memory", dir=asked.folder))
    command = [str(Path(sys.executable).with_name("kvconform")), "compare"]
    try:
        ref, got = folder / "ref.safetensors", folder / "got.safetensors"
        most = write(ref, asked.positions, asked.vocab, 0.0)
        rows = [("write ref", most, "", "")]
        for error, bad, name in ((1e-5, None, "right"), (1e-5, asked.positions // 2, "wrong")):
            write(got, asked.positions, asked.vocab, error, bad)
            code, peak, seconds, last = peak_of([*command, str(ref), str(got)])
            rows.append((f"compare, {name}", peak, f"{seconds:.0f}", f"{WORDS[code]}: {last.partition('ed: ')[2]}"))
        size = ref.stat().st_size
    finally:
        shutil.rmtree(folder)
    print("# Memory while judging large traces\n")
    print("`OMP_NUM_THREADS=1 python benchmarks/trace_memory.py`: two float32 files of")
    print(f"{asked.positions:,} positions × {asked.vocab:,} logits,")
    print(f"{size / 1e9:.2f} GB each. Anonymous memory (RssAnon, watched every 20 ms), torch itself included.\n")
    print("| what | most anonymous memory, MB | seconds | outcome |\n|---|---|---|---|")
    for what, peak, seconds, outcome in rows:
        told = outcome.replace("|", "\\|")
        print(f"| {what} | {peak / 1e6:.0f} | {seconds} | {told} |")


if __name__ == "__main__":
    main()

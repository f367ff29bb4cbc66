"""The command line as its users meet it: a process of its own, its output, its exit code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

COMMAND = Path(sys.executable).with_name("kvconform")
COMMANDS = ("check", "table", "mutate", "replay", "sweep", "list", "explain", "report", "diff", "record", "compare")

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


def counts(line: str) -> tuple[str, dict[str, int], dict[str, str]]:
    """The last line of a check: its verdict, how many cases have each, and the rest."""
    found = re.fullmatch(
        r"(?P<target>\S+): (?P<verdict>[a-z ]+) \((?P<cases>\d+) cases?: (?P<counts>[^;]*); (?P<programs>[\d,]+) programs?; "
        r"seed (?P<seed>\d+), profile (?P<profile>\w+), (?P<seconds>[\d.]+) s\)",
        line,
    )
    assert found, line
    each = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", found["counts"])}
    assert sum(each.values()) == int(found["cases"])
    return found["verdict"], each, found.groupdict()


CONCAT = "builtin:gpt/concat"

"""`kvconform.check(implementation)`: the contract, from Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..harness import registry
from ..harness.conformance import Guarding, chosen, conform
from ..harness.errors import KvconformError
from ..harness.implementation import Implementation
from ..harness.judging import PROFILES, Profile
from ..harness.passes import PASSES
from ..harness.run import Run, header
from ..harness.sources import Given, judged_by, name_of
from ..harness.target import Resolved
from ..harness.watchdog import STALL_LIMIT, TIME_LIMIT


def profile_named(name: str, **changes: Any) -> Profile:
    """A profile by name with some fields replaced. Raises `KvconformError` for a name that is none."""
    from dataclasses import replace

    if name not in PROFILES:
        raise KvconformError(f"no profile {name!r}; there are {', '.join(PROFILES)}")
    return replace(PROFILES[name], **{field: value for field, value in changes.items() if value is not None})


def sentences() -> dict[str, str]:
    """The contract's sentences by clause id."""
    return {clause.id: clause.sentence for clause in registry.clauses()}


def run_check(
    target: str,
    resolved: Resolved,
    pattern: str,
    profile: Profile,
    dtypes: Sequence[str],
    began: Callable[[str], None] | None = None,
    guarding: Guarding | None = None,
    locate: bool = False,
) -> Run:
    """Judge one target."""
    started = time.monotonic()
    asked = chosen(registry.clauses(), pattern)
    PASSES.begin(profile.passes)
    try:
        cases = tuple(conform(target, resolved, asked, profile, dtypes, began, guarding, doubts={}, locating=locate))
    finally:
        PASSES.begin(None)
    about = header(f"check {target}", [target], profile.name, profile.seed, resolved.judged_by)
    return Run(about, cases, seconds=time.monotonic() - started)


def guarding_of(
    target: str | Implementation, time_limit: float | None, isolate: bool, stall_limit: float | None = STALL_LIMIT
) -> Guarding:
    """How a target is run. A limit of 0 or None is none. Raises `KvconformError` for an object that no worker can have."""
    limit, stall = time_limit or None, stall_limit or None
    if not isolate:
        return Guarding(limit, stall=stall)
    from ..harness.apart.worker import FromPickle, FromTarget

    return Guarding(limit, FromTarget(target) if isinstance(target, str) else FromPickle.of(target), stall)


def check(
    target: str | Implementation,
    reference: Given = None,
    *,
    clause: str = "*",
    profile: str = "default",
    dtypes: Sequence[str] = (),
    seed: int = 0,
    quiet: bool = False,
    time_limit: float | None = TIME_LIMIT,
    stall_limit: float | None = STALL_LIMIT,
    isolate: bool = False,
    locate: bool = False,
) -> Run:
    """Judge a target string or an implementation of your own; print the verdict unless `quiet`, and give the run.

    `reference` is the plain forward pass to judge by: a target, another implementation, a function of tokens, or an object
    with name, vocab_size, logits(tokens) and to(dtype). Without one a target string brings its own; else it is the
    implementation's own `full`, or its own single calls on a fresh cache, which is weaker. A program that takes longer than
    `time_limit` seconds (None: any) is errored, and the run goes on, and so is one in which an engine behind the line
    protocol is silent for `stall_limit` seconds in the middle of a reply. With `isolate` the implementation, or a pickled copy
    of it, runs in a process of its own, so that it goes on after a crash too.
    With `locate` a finding says in which layer and tensor it begins.
    """
    from ..reports.terminal import check_report

    name, resolved = _resolved(target, reference)
    guarding = guarding_of(target, time_limit, isolate, stall_limit)
    run = run_check(name, resolved, clause, profile_named(profile, seed=seed), dtypes, None, guarding, locate)
    if not quiet:
        print(check_report(run, sentences()))
    return run


def replay(
    target: str | Implementation,
    reference: Given,
    program: str,
    *,
    clause: str = "",
    dtypes: Sequence[str] = (),
) -> int:
    """Run one program step by step, as a finding's last line says; print the steps, and give the exit code of the
    command of that name. Raises `ProgramError` where the program is not legal."""
    from ..harness.replay import replayed

    name, resolved = _resolved(target, reference)
    code = 0
    for text, worst in replayed(name, resolved, program, clause, dtypes):
        print(text)
        code = 1 if 1 in (code, worst) else max(code, worst)
    return code


def _resolved(target: str | Implementation, reference: Given) -> tuple[str, Resolved]:
    """A target's name and what it stands for. Raises `KvconformError` where there is nothing to judge by."""
    if isinstance(target, str):
        return target, judged_by(registry.resolve(target), reference)
    resolved = judged_by(Resolved(target, None), reference)
    return name_of(target), resolved

"""From programs to verdicts: what comes first, what adds up, and what nobody may be blamed for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness import registry
from kvconform.harness.clause import Clause
from kvconform.harness.errors import AdapterError, Unsupported
from kvconform.harness.generate import Mix
from kvconform.harness.implementation import Implementation
from kvconform.harness.judging import AFTER_FAILURE, Profile, judge_clause, judge_clauses
from kvconform.harness.oracle import Oracle, Reference
from kvconform.harness.program import Append, Program
from kvconform.harness.results import Case, exit_code, tally
from kvconform.harness.runner import Divergence
from kvconform.harness.scope import Scope
from kvconform.harness.trial import Check, Judged, Subject, Trial, Verdict, attempt
from kvconform.implementations.builtin import BuiltIn, model
from kvconform.implementations.policy import Concat
from kvconform.reference.shipped import reference
from torch import Tensor

GPT = reference("gpt")
ORACLE = Oracle(GPT, torch.float32)
FEW = Profile("few", examples=4)
FIXED = Profile("fixed", examples=0, shrink=False)
PASSED, FAILED, ERRORED, UNSUPPORTED, INCONCLUSIVE, KNOWN = Verdict


def concat(kind: type[BuiltIn] = BuiltIn) -> Subject:
    return Subject(kind(model("gpt"), Concat), ORACLE)


def fault(name: str) -> Subject:
    return Subject(registry.resolve(f"builtin:gpt/{name}").implementation, ORACLE)


def clause(id: str) -> Clause:
    return next(clause for clause in registry.clauses() if clause.id == id)


def scripted(verdicts: Sequence[Verdict]) -> Clause:
    """A clause of as many programs as there are verdicts, whose check gives them in turn."""
    listed = [Program((Append("a", ((1 + at,),)),)) for at in range(len(verdicts))]
    given_by = dict(zip(listed, verdicts, strict=True))

    def check(program: Program, subject: Subject, judged: Judged) -> Trial:
        verdict, number = given_by[program], listed.index(program)
        if verdict is ERRORED:
            raise AdapterError(f"number {number}")
        if verdict is UNSUPPORTED:
            raise Unsupported(f"number {number}")
        divergence = Divergence.LOGITS if verdict is FAILED else None
        detail = "" if verdict is PASSED else f"number {number}"
        return Trial(program, verdict, detail, divergence, step=0, token=0, op="append", positions=3)

    return Clause(id="script.ed", sentence="", why="", fixed=lambda scope: listed, check=check)


def judge(verdicts: Sequence[Verdict], profile: Profile = FIXED) -> Case:
    return judge_clause(scripted(verdicts), concat(), "py:scripted", profile)


def due(verdicts: Sequence[Verdict]) -> Verdict:
    """The rule: failed before errored; inconclusive where more programs could not tell than passed."""
    counts = Counter(verdicts)
    if counts[FAILED]:
        return FAILED
    if counts[ERRORED]:
        return ERRORED
    if counts[INCONCLUSIVE] > counts[PASSED]:
        return INCONCLUSIVE
    if counts[PASSED]:
        return PASSED
    return UNSUPPORTED


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.lists(st.sampled_from([PASSED, FAILED, ERRORED, UNSUPPORTED, INCONCLUSIVE]), min_size=1, max_size=7))
def test_one_verdict_for_many_programs(verdicts: list[Verdict]) -> None:
    case = judge(verdicts)
    assert case.verdict is due(verdicts)
    assert (case.reason == "") == (case.verdict is PASSED)
    assert case.programs == len(verdicts)
    assert case.conclusive == verdicts.count(PASSED) + verdicts.count(FAILED)
    assert case.positions == 3 * (case.conclusive + verdicts.count(INCONCLUSIVE))
    assert sum(finding.occurrences for finding in case.findings) == verdicts.count(FAILED)
    assert case.examples_to_failure == (verdicts.index(FAILED) + 1 if FAILED in verdicts else None)


@pytest.mark.parametrize(
    ("verdicts", "verdict", "reason"),
    [
        ([PASSED, ERRORED, FAILED, FAILED], FAILED, "number 2"),
        ([PASSED, INCONCLUSIVE, ERRORED], ERRORED, "1 of 3 programs: the adapter: number 2"),
        ([PASSED, INCONCLUSIVE], PASSED, ""),
        ([INCONCLUSIVE, PASSED, INCONCLUSIVE], INCONCLUSIVE, "2 of 3 programs cannot tell: number 0"),
        ([UNSUPPORTED, PASSED], PASSED, ""),
        ([UNSUPPORTED, UNSUPPORTED], UNSUPPORTED, "number 0"),
        ([UNSUPPORTED, INCONCLUSIVE], INCONCLUSIVE, "1 of 2 programs cannot tell: number 1"),
    ],
)
def test_the_reason_of_a_verdict(verdicts: list[Verdict], verdict: Verdict, reason: str) -> None:
    case = judge(verdicts)
    assert (case.verdict, case.reason) == (verdict, reason)


def test_what_the_implementation_lacks_is_unsupported_and_nothing_runs() -> None:
    asked = replace(scripted([FAILED]), needs=("telepathy",))
    case = judge_clause(asked, concat(), "py:scripted", FIXED)
    assert (case.verdict, case.reason, case.programs) == (UNSUPPORTED, "it has no telepathy", 0)


CASES = {verdict: Case("py:mine", "any.clause", "float32", verdict) for verdict in Verdict}


@pytest.mark.parametrize(
    "verdicts",
    [some for count in range(6) for some in combinations(Verdict, count)],
    ids=lambda verdicts: "+".join(verdicts) or "none",
)
def test_the_exit_code_of_what_ran(verdicts: tuple[Verdict, ...]) -> None:
    if FAILED in verdicts:
        code = 1
    elif ERRORED in verdicts or INCONCLUSIVE in verdicts or not {PASSED, KNOWN} & set(verdicts):
        code = 2
    else:
        code = 0
    assert exit_code(CASES[verdict] for verdict in verdicts) == code
    assert exit_code(CASES[verdict] for verdict in 3 * verdicts) == code


@settings(deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(Verdict)))
def test_counts_name_every_verdict_and_add_up(verdicts: list[Verdict]) -> None:
    counts = tally(CASES[verdict] for verdict in verdicts)
    assert list(counts) == list(Verdict)
    assert sum(counts.values()) == len(verdicts)


def test_the_id_of_a_case_depends_on_what_was_asked_and_not_on_what_came_out() -> None:
    case = CASES[PASSED]
    assert len({case.id, *(CASES[verdict].id for verdict in Verdict), replace(case, seconds=3.0).id}) == 1
    others = [replace(case, target="py:other"), replace(case, clause="any.other"), replace(case, dtype="float64")]
    assert len({case.id, *(other.id for other in others)}) == 4


def always(verdict: Verdict) -> Check:
    divergence = Divergence.LOGITS if verdict is FAILED else None
    return lambda program, subject, judged: Trial(program, verdict, "always", divergence, 0, 0, "append")


DRAWN = Clause(id="drawn.only", sentence="", why="", mix=Mix(ops=(("append", 1),), steps=(2, 9)))


def test_so_many_programs_are_drawn_as_the_profile_says() -> None:
    asked = replace(DRAWN, check=always(PASSED))
    assert judge_clause(asked, concat(), "py:mine", Profile("some", examples=25)).programs == 25
    assert judge_clause(asked, concat(), "py:mine", Profile("two", examples=2)).programs == 2


def test_where_no_program_ran_nothing_is_passed() -> None:
    for case in (judge([]), judge_clause(replace(DRAWN, check=always(PASSED)), concat(), "py:mine", FIXED)):
        assert case.verdict in (UNSUPPORTED, INCONCLUSIVE)
        assert case.reason
        assert exit_code([case]) == 2


def test_after_a_failure_a_few_more_are_drawn_to_see_whether_there_is_a_second() -> None:
    case = judge_clause(replace(DRAWN, check=always(FAILED)), concat(), "py:mine", Profile("many", examples=500, shrink=False))
    assert AFTER_FAILURE < case.programs <= AFTER_FAILURE + 2


def test_where_only_the_first_failure_counts_it_ends_the_clause() -> None:
    profile = replace(FIXED, stop_at_failure=True)
    assert judge([PASSED, PASSED, FAILED, PASSED], profile).programs == 3
    drawn = judge_clause(replace(DRAWN, check=always(FAILED)), concat(), "py:mine", replace(profile, examples=500))
    assert drawn.programs <= 2


def test_at_the_deadline_no_further_program_is_begun() -> None:
    late = replace(FEW, deadline=time.monotonic() - 1)
    assert judge([PASSED, PASSED, PASSED], late).programs == 1
    assert judge_clause(replace(DRAWN, check=always(PASSED)), concat(), "py:mine", late).programs <= 2


def without_times(cases: Iterable[Case]) -> list[Case]:
    return [replace(case, seconds=0.0) for case in cases]


def test_the_same_seed_gives_the_same_cases_and_findings() -> None:
    asked, resolved = [clause("branch.fork"), clause("decode.incremental")], registry.resolve("builtin:gpt/kv_mismatch")
    first, again, other = (
        # What an oracle remembers of longer passes differs by rounding, so each run gets a new one.
        without_times(
            judge_clauses(
                asked,
                Subject(resolved.implementation, Oracle(resolved.reference, torch.float32)),
                "builtin:gpt/kv_mismatch",
                replace(FEW, seed=seed),
            )
        )
        for seed in (1, 1, 2)
    )
    assert first == again
    assert all(case.findings for case in first)
    assert first != other


def divergence_by_token(program: Program, subject: Subject, judged: Judged) -> Trial:
    """Another kind of failure for odd tokens than for even ones."""
    append = program.ops[0]
    assert isinstance(append, Append)
    kind = Divergence.SHAPE if append.rows[0][0] % 2 else Divergence.RAISED
    return Trial(program, FAILED, str(program), kind, 0, 0, "append")


def test_failures_of_one_kind_are_one_finding() -> None:
    case = judge_clause(replace(scripted([FAILED] * 7), check=divergence_by_token), concat(), "py:mine", FIXED)
    found = [(finding.divergence, finding.occurrences, finding.found_in) for finding in case.findings]
    assert found == [("shape", 4, "append a 1"), ("raised", 3, "append a 2")]
    assert len({finding.id for finding in case.findings}) == 2


def test_the_id_of_a_finding_does_not_depend_on_the_program_that_found_it() -> None:
    asked, wrong = clause("decode.incremental"), fault("pos_zero")
    found = [
        judge_clause(asked, wrong, "builtin:gpt/pos_zero", replace(FEW, seed=seed, examples=2)).findings for seed in (1, 2)
    ]
    assert [finding.id for finding in found[0]] == [finding.id for finding in found[1]]


@pytest.mark.parametrize(
    ("name", "id"), [("pos_zero", "decode.incremental"), ("no_mask", "prefill.identity"), ("limit_wraps", "limit.refuses")]
)
def test_a_finding_is_reproduced_by_its_program(name: str, id: str) -> None:
    asked, wrong = clause(id), fault(name)
    case = judge_clause(asked, wrong, f"builtin:gpt/{name}", FEW)
    assert case.findings
    for finding in case.findings:
        trial = attempt(asked.check, Program.parse(finding.program), wrong, asked.judged)
        assert (str(trial.divergence), trial.op, trial.step) == (finding.divergence, finding.op, finding.step)
        assert trial.difference == finding.difference
        command = f"kvconform replay builtin:gpt/{name} '{finding.program}' --clause {id} --dtype float32"
        assert finding.reproduce == command


def test_without_shrinking_a_finding_shows_the_program_that_found_it() -> None:
    case = judge_clause(clause("decode.incremental"), fault("pos_zero"), "builtin:gpt/pos_zero", replace(FEW, shrink=False))
    assert [finding.program == finding.found_in for finding in case.findings] == [True]


class Constant:
    """Logits that look at nothing."""

    name, vocab_size = "constant", GPT.vocab_size

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.plain: Reference = GPT.to(dtype)
        self.dtype = dtype

    def logits(self, tokens: Tensor) -> Tensor:
        return torch.linspace(-5, 5, self.vocab_size, dtype=self.dtype).expand(*tokens.shape, -1)

    def to(self, dtype: torch.dtype) -> Constant:
        return type(self)(dtype)


class Forgetful(Constant):
    """Logits that look at the last token alone."""

    def logits(self, tokens: Tensor) -> Tensor:
        return self.plain.logits(tokens.reshape(-1, 1)).reshape(*tokens.shape, -1)


class Random(Constant):
    """Other logits each time."""

    def logits(self, tokens: Tensor) -> Tensor:
        return self.plain.logits(tokens) + 0.01 * torch.randn(self.vocab_size)


class Acausal(Constant):
    """Logits that know what follows."""

    def logits(self, tokens: Tensor) -> Tensor:
        return self.plain.logits(tokens) + 0.01 * tokens.sum(dim=1)[:, None, None]


class Broken(Constant):
    """Logits that are no numbers."""

    def logits(self, tokens: Tensor) -> Tensor:
        return self.plain.logits(tokens) * float("nan")


class WithoutFull(BuiltIn):
    """It has no pass of its own that could be held against the reference."""

    @property
    def capabilities(self) -> frozenset[str]:
        return super().capabilities - {"full"}


UNSOUND = [
    (Constant, "reference.sensitive", INCONCLUSIVE),
    (Forgetful, "reference.sensitive", INCONCLUSIVE),
    (Random, "reference.deterministic", FAILED),
    (Acausal, "reference.causal", FAILED),
    (Broken, "reference.deterministic", FAILED),
]


@pytest.mark.parametrize(("kind", "id", "verdict"), UNSOUND)
def test_by_a_reference_that_does_not_hold_nobody_is_blamed(kind: type[Constant], id: str, verdict: Verdict) -> None:
    subject = Subject(concat(WithoutFull).implementation, Oracle(kind(), torch.float32))
    cases = list(judge_clauses(registry.clauses(), subject, "py:mine", FEW))
    by_clause = {case.clause: case for case in cases}
    assert by_clause[id].verdict is verdict
    others = [case for case in cases if not case.clause.startswith(("reference.", "adapter."))]
    assert len(others) > 5
    assert {case.verdict for case in others} == {INCONCLUSIVE}
    assert all(case.reason.startswith("the reference cannot be relied on: reference.") for case in others)
    assert exit_code(cases) != 0


def test_a_reference_that_holds_leaves_nothing_in_doubt() -> None:
    asked = [clause for clause in registry.clauses() if clause.family in ("reference", "prefill", "limit")]
    cases = list(judge_clauses(asked, concat(), "py:mine", FEW))
    assert {case.verdict for case in cases} <= {PASSED, UNSUPPORTED}
    assert [case.clause for case in cases] == [clause.id for clause in asked]
    assert exit_code(cases) == 0


class WrongModel(BuiltIn):
    """Its pass without a cache gives other logits: other weights, not a wrong cache."""

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().append(cache, tokens, lengths) * 1.01

    def full(self, tokens: Tensor) -> Tensor:
        return super().full(tokens) * 1.01


def test_another_model_than_the_references_is_not_blamed_on_the_cache() -> None:
    cases = list(judge_clauses(registry.clauses(), concat(WrongModel), "py:mine", FEW))
    assert [case.clause for case in cases if case.verdict is FAILED] == ["forward.plain"]


class Drifting(BuiltIn):
    """Another error in every call."""

    calls = 0

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        self.calls += 1
        return super().append(cache, tokens, lengths) + 0.01 * self.calls


def test_what_differs_from_run_to_run_is_reported_as_that() -> None:
    case = judge_clause(clause("lifecycle.deterministic"), concat(Drifting), "py:mine", FEW)
    assert (case.verdict, {finding.divergence for finding in case.findings}) == (FAILED, {"unstable"})
    assert [finding.program for finding in case.findings] == ["append a 1"]


class WrongOnce(BuiltIn):
    """One call in the life of a process goes wrong."""

    calls = 0

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        self.calls += 1
        return super().append(cache, tokens, lengths) + (self.calls == 5)


def test_what_does_not_fail_again_is_shown_as_it_was_and_said_so() -> None:
    case = judge_clause(clause("decode.incremental"), concat(WrongOnce), "py:mine", FEW)
    (finding,) = case.findings
    assert case.verdict is FAILED
    assert finding.program == finding.found_in
    assert (finding.divergence, finding.occurrences) == ("logits", 1)
    assert finding.difference == pytest.approx(1.0, abs=1e-4)
    assert "it is not deterministic" in finding.detail


class TwoBugs(BuiltIn):
    """A prompt of one token raises; everything behind a prompt is wrong."""

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        if not cache.length and tokens.shape[1] == 1:
            raise RuntimeError("too short")
        warm = cache.length > 0
        return super().append(cache, tokens, lengths) + 1.0 * warm


def test_shrinking_does_not_slide_from_one_bug_to_another() -> None:
    text = "append a 5 9 3 7; append b 2; append a 8 4; append a 6"
    asked = replace(DRAWN, fixed=lambda scope: [Program.parse(text.replace(" append b 2;", ""))], mix=None)
    (finding,) = judge_clause(asked, concat(TwoBugs), "py:mine", FEW).findings
    assert (finding.divergence, finding.program) == ("logits", "append a 1 2; append a 3")
    asked = replace(asked, fixed=lambda scope: [Program.parse(text)])
    (finding,) = judge_clause(asked, concat(TwoBugs), "py:mine", FEW).findings
    assert (finding.divergence, finding.program) == ("raised", "append a 1")


class Odd(Implementation):
    vocab_size = 10


def test_an_implementation_without_its_two_methods_fails_and_says_which() -> None:
    asked = replace(DRAWN, fixed=lambda scope: [Program.parse("append a 1")], mix=None)
    case = judge_clause(asked, Subject(Odd(), ORACLE), "py:odd", FIXED)
    assert (case.verdict, case.reason) == (FAILED, "NotImplementedError: Odd does not define new_cache(rows)")


def test_a_clause_is_asked_for_the_scope_of_the_implementation() -> None:
    seen: list[Scope] = []
    asked = replace(DRAWN, fixed=lambda scope: seen.append(scope) or [], mix=None)
    judge_clause(asked, concat(), "py:mine", FIXED)
    assert [(scope.max_length, scope.vocab_size) for scope in seen] == [(64, 1200)]


def test_progress_is_told_before_each_clause() -> None:
    began: list[str] = []
    asked = registry.clauses()[:3]
    for case in judge_clauses(asked, concat(), "py:mine", FEW, lambda clause: began.append(clause.id)):
        assert began[-1] == case.clause
    assert began == [clause.id for clause in asked]

"""Where the reference comes from: the user, the implementation's own full pass, or its own single calls."""

from __future__ import annotations

import kvconform
import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.errors import KvconformError, TargetError, Unsupported
from kvconform.harness.implementation import Implementation
from kvconform.harness.sources import CALL, FULL, Own, judged_by, placed, subject_of
from kvconform.harness.target import Resolved
from kvconform.harness.watchdog import Guard
from kvconform.reference.shipped import reference
from torch import Tensor

LLAMA = reference("llama")
TOKENS = torch.tensor([[5, 9, 3, 7], [8, 1, 2, 4]])


class Tokens(Implementation):
    """Keeps the tokens and computes everything anew: right, and no cache."""

    name, vocab_size, max_length = "tokens", 1200, 128

    def __init__(self) -> None:
        self.calls: list[int] = []

    def new_cache(self, rows: int = 1) -> list[Tensor]:
        return [torch.zeros(rows, 0, dtype=torch.int64)]

    def append(self, cache: list[Tensor], tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        self.calls.append(tokens.shape[1])
        cache[0] = torch.cat([cache[0], tokens], dim=1)
        return LLAMA.logits(cache[0])[:, -tokens.shape[1] :]

    def crop(self, cache: list[Tensor], length: int) -> None:
        cache[0] = cache[0][:, :length]


class WithFull(Tokens):
    def full(self, tokens: Tensor) -> Tensor:
        return LLAMA.logits(tokens)


class LastOnly(Tokens):
    def full(self, tokens: Tensor) -> Tensor:
        self.calls.append(tokens.shape[1])
        return LLAMA.logits(tokens)[:, -1:]


class OneByOne(Tokens):
    max_append = 1


def test_what_the_user_gives_comes_first() -> None:
    found = judged_by(Resolved(WithFull(), None), LLAMA)
    assert (found.reference, found.judged_by, found.given) == (LLAMA, "llama", "")
    found = judged_by(Resolved(WithFull(), None), "builtin:llama/pos_zero")
    assert found.reference is not None
    assert (found.reference.name, found.judged_by, found.given) == ("llama", "builtin:llama/pos_zero", "builtin:llama/pos_zero")
    assert judged_by(registry.resolve("builtin:gpt/concat"), None).judged_by == ""


@pytest.mark.parametrize(("kind", "said"), [(WithFull, FULL), (Tokens, CALL)])
def test_without_one_it_is_the_implementation_itself(kind: type[Tokens], said: str) -> None:
    found = judged_by(Resolved(kind(), None), None)
    assert (found.judged_by, found.given) == (said, None)
    assert Own(found.implementation).logits(TOKENS).equal(LLAMA.logits(TOKENS))


def test_a_full_pass_that_gives_the_last_position_is_called_once_a_prefix() -> None:
    engine = LastOnly()
    own = Own(engine)
    torch.testing.assert_close(own.logits(TOKENS), LLAMA.logits(TOKENS))
    assert sorted(engine.calls) == [1, 2, 3, 4]
    own.logits(torch.cat([TOKENS, TOKENS], dim=1)[:, :6])
    assert sorted(engine.calls) == [1, 2, 3, 4, 5, 6]  # what it gave for a prefix is remembered


def test_rows_are_asked_one_by_one_where_there_are_no_batches() -> None:
    class Single(Tokens):
        max_rows = 1

    torch.testing.assert_close(Own(Single()).logits(TOKENS), LLAMA.logits(TOKENS))


def test_one_without_another_precision_says_so_and_its_floor_is_measured_all_the_same() -> None:
    with pytest.raises(Unsupported, match="computes in float32 only"):
        Own(Tokens()).to(torch.float64)
    subject = subject_of(Tokens(), judged_by(Resolved(Tokens(), None), None), "float32", Guard())
    assert 0 < subject.oracle.floor((5, 9, 3, 7, 8, 1, 2, 4)) < 1e-4


def test_a_function_is_a_reference_in_one_precision() -> None:
    found = kvconform.check(Tokens(), lambda tokens: LLAMA.logits(tokens), clause="prefill", profile="quick", quiet=True)
    assert {(case.dtype, case.verdict) for case in found.cases} == {("float32", "passed")}
    assert found.header.reference == "<lambda>"


NOTHING = {
    "no way to judge": (OneByOne(), lambda: None, "there is nothing to judge tokens by, which takes one token at a time"),
    "no reference": (Tokens(), lambda: 5, "int is no reference: give a target, an implementation, a function of tokens"),
    "no target": (Tokens(), lambda: "nonsense", "'nonsense' is no target"),
}


@pytest.mark.parametrize("what", ["no way to judge", "no reference", "no target"])
def test_nothing_to_judge_by_is_told_in_one_line(what: str) -> None:
    engine, given, said = NOTHING[what]
    with pytest.raises(KvconformError, match=said):
        judged_by(Resolved(engine, None), given())


def test_another_vocabulary_is_told_in_one_line() -> None:
    class Small(Tokens):
        vocab_size = 1000

    with pytest.raises(KvconformError) as told:
        judged_by(Resolved(Small(), None), "builtin:llama/concat")
    assert str(told.value) == (
        "tokens has a vocabulary of 1000 tokens, the reference builtin:llama/concat one of 1200: they are not the same model"
    )


def test_noise_is_not_measured_by_the_implementation_itself() -> None:
    class Noisy(WithFull):
        noisy = True

    class Half(WithFull):
        dtype = torch.bfloat16

    with pytest.raises(KvconformError, match="its noise cannot be measured by itself: give a reference"):
        kvconform.check(Noisy(), quiet=True)
    with pytest.raises(KvconformError, match="cannot judge it in bfloat16: it computes in bfloat16 only"):
        kvconform.check(Half(), quiet=True)


def test_the_run_and_its_findings_say_what_was_judged_by() -> None:
    class Wrong(Tokens):
        def crop(self, cache: list[Tensor], length: int) -> None:
            cache[0] = cache[0][:, : max(length - 1, 0)]

    run = kvconform.check(Wrong(), clause="branch.crop", profile="quick", quiet=True)
    assert run.header.reference == CALL
    assert ".replay(mine, None, " in run.cases[0].findings[0].reproduce
    run = kvconform.check(Wrong(), "builtin:llama/concat", clause="branch.crop", profile="quick", quiet=True)
    assert run.header.reference == "builtin:llama/concat"
    assert ".replay(mine, 'builtin:llama/concat', " in run.cases[0].findings[0].reproduce
    run = kvconform.check(Wrong(), LLAMA, clause="branch.crop", profile="quick", quiet=True)
    assert ".replay(mine, reference, " in run.cases[0].findings[0].reproduce


def test_a_bug_in_the_cache_shows_by_each_source() -> None:
    class Wrong(WithFull):
        def crop(self, cache: list[Tensor], length: int) -> None:
            return

    for given in (None, LLAMA, WithFull()):
        (case,) = kvconform.check(Wrong(), given, clause="branch.crop", profile="quick", quiet=True).cases
        assert case.verdict == "failed"


def test_a_device_goes_to_targets_that_take_one() -> None:
    assert placed("py:engine.py:Mine?window=4", "cuda") == "py:engine.py:Mine?window=4&device=cuda"
    assert placed("hf:models/mine?cache=static", "cuda") == "hf:models/mine?cache=static&device=cuda"
    assert placed("arch:llama", "cuda") == "arch:llama?device=cuda"
    assert placed("builtin:gpt/concat", "") == "builtin:gpt/concat"
    assert placed("builtin:gpt/concat", "cuda", strict=False) == "builtin:gpt/concat"
    with pytest.raises(TargetError, match=r"builtin:… takes no device: leave --device out"):
        placed("builtin:gpt/concat", "cuda")

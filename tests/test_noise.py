"""Noisy arithmetic: what errors are set against, what a pool of them tells, the quieter mode, and what reports say of it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import kvconform
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kvconform.harness import registry
from kvconform.harness.conformance import precisions
from kvconform.harness.errors import KvconformError
from kvconform.harness.judging import pooled
from kvconform.harness.noise import Noise
from kvconform.harness.oracle import Oracle
from kvconform.harness.pool import Pool
from kvconform.harness.target import Resolved
from kvconform.harness.tolerance import ENOUGH, Ratio
from kvconform.harness.trial import Subject, Verdict
from kvconform.implementations.builtin import BuiltIn, model
from kvconform.implementations.policy import Concat
from kvconform.reports.as_text import as_text
from kvconform.reports.html import render_html
from kvconform.reports.markdown import render_markdown
from kvconform.reports.noise import noises
from report_runs import PASSED, run
from torch import Tensor

REFERENCE = "builtin:llama/concat"
ROW = (5, 9, 3, 700, 41, 8)
sizes = st.floats(1e-2, 1e2)


@given(st.lists(st.tuples(sizes, sizes), min_size=1, max_size=20))
def test_a_pool_is_a_sum_whose_ratios_lie_between_those_of_its_positions(pairs: list[tuple[float, float]]) -> None:
    pools = [Pool.at(error, noise, error, noise, noise, 4) for error, noise in pairs]
    total = sum(pools, Pool())
    assert (total.positions, total.logits) == (len(pairs), 4 * len(pairs))
    ratios = [math.sqrt(error / noise) for error, noise in pairs]
    for found in (total.ratio, total.usual):
        assert min(ratios) * 0.999 <= found <= max(ratios) * 1.001
    assert total.noise_size == pytest.approx(total.deviation)


def test_a_loud_position_sways_the_mean_square_and_not_the_usual_ratio() -> None:
    pool = sum((Pool.at(1.0, 1.0, 1.0, 1.0) for _ in range(9)), Pool.at(1e6, 1e6, 1e6, 1e6))
    odd = sum((Pool.at(4.0, 1.0, 4.0, 1.0) for _ in range(9)), Pool.at(1e6, 1e6, 1e6, 1e6))
    assert (pool.ratio, pool.usual) == pytest.approx((1.0, 1.0))
    assert odd.ratio == pytest.approx(1.0, rel=1e-4)
    assert odd.usual > 1.8


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number_is_no_pass(wrong: float) -> None:
    assert Pool.at(wrong, 1.0, 1.0, 1.0).ratio == math.inf
    assert Pool.at(1.0, 0.0, 1.0, 0.0).ratio == math.inf
    assert Pool.at(0.0, 0.0, 0.0, 0.0).ratio == 1.0


class Eights(BuiltIn):
    """A llama with eight-bit activations that can do without them."""

    def __init__(self) -> None:
        super().__init__(model("noisy"), Concat, "eights")
        self.calls: Counter[int] = Counter()

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        self.calls[tokens.shape[1]] += 1
        return super().append(cache, tokens, lengths)

    @property
    def capabilities(self) -> frozenset[str]:
        return super().capabilities | {"quieter"}

    def quieter(self) -> BuiltIn:
        return BuiltIn(model("llama"), self.policy, "eights, dequantised")


class Last(Eights):
    last_only = True


@pytest.mark.parametrize("kind", [Eights, Last])
def test_only_calls_that_are_judged_are_made_for_the_noise(kind: type[Eights]) -> None:
    reference = registry.resolve(REFERENCE).reference
    assert reference
    engine = kind()
    noise = Noise(Subject(engine, Oracle(reference, torch.float32)))
    last = noise.of(ROW, 1)
    assert engine.calls == {6: 1}
    several = noise.of(ROW, 3)
    assert engine.calls == ({6: 1, 5: 1, 4: 1} if kind is Last else {6: 1})
    for one, some in zip(last, several, strict=True):
        assert (len(one), len(some)) == (1, 3)
        assert some[-1] == one[0]
        assert (some > 0).all()


def test_the_quieter_mode_is_judged_first() -> None:
    ran = kvconform.check(Eights(), REFERENCE, clause="decode.incremental", profile="quick", quiet=True)
    quiet, noisy = ran.cases
    assert [(case.dtype, case.verdict) for case in ran.cases] == [("quieter", Verdict.PASSED), ("float32", Verdict.PASSED)]
    assert (quiet.noise, quiet.largest < 1e-4) == (None, True)
    assert noisy.noise is not None
    assert 0 < noisy.noise < 1
    assert "× the noise over" in noisy.reason
    for text in (as_text(ran, {}), render_markdown(ran, {}), render_html(ran)):
        assert "That is precision, no bug" in text
        assert "it is gone: nothing is off by more than" in text


def test_a_precision_may_be_the_quieter_mode_where_there_is_one() -> None:
    reference = registry.resolve(REFERENCE).reference
    assert precisions(Resolved(Eights(), reference)) == ["quieter", "float32"]
    assert precisions(registry.resolve("builtin:noisy/concat")) == ["float32"]
    (case,) = kvconform.check(Eights(), REFERENCE, clause="forward.plain", dtypes=["quieter"], quiet=True).cases
    assert (case.dtype, case.verdict) == ("quieter", Verdict.PASSED)
    with pytest.raises(KvconformError, match="knows no quieter mode: leave --dtype out, or define quieter"):
        kvconform.check("builtin:noisy/concat", clause="forward.plain", dtypes=["quieter"], quiet=True)


NOISY = replace(PASSED, noise=0.39, deviation=3.0)


def test_a_report_says_how_large_the_noise_is_and_that_it_is_precision() -> None:
    quiet = replace(PASSED, dtype="quieter", largest=8.2e-5)
    size = (
        "noise in float32: without a cache, logits are off by 0.39 RMS, 0.13 of their deviation. That is precision, no bug: "
        "errors are judged by their ratio to it; "
    )
    assert noises([PASSED]) == []
    assert noises([NOISY]) == [f"{size}it was judged in no mode without it, where smaller bugs would show"]
    gone = "in the quieter mode of the same weights it is gone"
    assert noises([quiet, NOISY]) == [f"{size}{gone}: nothing is off by more than 8.2e-05"]
    failed = replace(quiet, verdict=Verdict.FAILED, largest=2.4)
    assert noises([failed, NOISY]) == [f"{size}{gone}, and errors of up to 2.4 are left, which are no noise"]
    assert len(noises([NOISY, replace(NOISY, target="builtin:gpt/other")])) == 2
    assert noises([NOISY])[0] in as_text(run(NOISY), {})


def test_under_a_ratio_of_its_own_noise_the_usual_position_is_held_to_narrower_bounds() -> None:
    def verdict(ratio: float, own: bool = True, positions: int = ENOUGH) -> Verdict:
        loud = Pool.at(1e6, 1e6, 1e6, 1e6)
        pool = sum((Pool.at(ratio**2, 1.0, ratio**2, 1.0) for _ in range(positions - 1)), loud)
        assert pool.ratio < 1.01
        return pooled(pool, Ratio(own=own))[0]

    assert verdict(1.2) is Verdict.PASSED
    assert verdict(1.4) is Verdict.INCONCLUSIVE
    assert verdict(1.6) is Verdict.FAILED
    assert verdict(1.6, own=False) is Verdict.PASSED
    assert verdict(1.6, positions=ENOUGH - 1) is Verdict.PASSED
    one = Pool.at(2.0, 1.0, 2.0, 1.0)
    assert pooled(sum([one] * (ENOUGH - 1), one), Ratio(own=True)) == (
        Verdict.INCONCLUSIVE,
        "error 1.41 × the noise over 100 positions, 1.41 × at the usual one: passes below 1.5 × and 1.25 ×, "
        "fails above 2 × and 1.5 ×",
    )


def test_the_fewer_positions_a_program_has_the_more_it_takes_to_fail_alone() -> None:
    assert [Ratio().alone(count) for count in (1, 3, 30)] == pytest.approx([12, 6, 3.3])
    assert pooled(Pool.at(11.0, 1.0, 11.0, 1.0), Ratio())[0] is Verdict.INCONCLUSIVE
    assert pooled(Pool.at(150.0, 1.0, 1.0, 1.0), Ratio())[0] is Verdict.FAILED

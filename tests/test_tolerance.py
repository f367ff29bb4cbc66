"""What a comparison may show, at and around each bound."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness.oracle import Oracle
from kvconform.harness.tolerance import (
    BUG_FACTOR,
    FLOOR_FACTOR,
    SCALE_ULPS,
    TOO_NOISY,
    Absolute,
    Band,
    Exact,
    Rounding,
    Tolerance,
    allowance,
)
from kvconform.harness.trial import measured
from kvconform.reference.shipped import reference

FLOAT32 = 2.0**-23
"""Unit in the last place at 1."""
EVERY: list[Tolerance] = [Exact(), Absolute(), Rounding()]


def above(bound: float) -> float:
    """The next number."""
    return math.nextafter(bound, math.inf)


def test_exact_allows_nothing() -> None:
    exact = allowance(Exact(), scale=10.0, floor=1.0, epsilon=FLOAT32)
    assert exact.band(0.0) is Band.ROUNDING
    assert exact.band(above(0.0)) is Band.BUG


def test_an_absolute_bound_is_allowed_and_what_lies_above_is_a_bug() -> None:
    absolute = allowance(Absolute(0.5), scale=10.0, floor=1.0, epsilon=FLOAT32)
    assert [absolute.band(size) for size in (0.0, 0.5, above(0.5))] == [Band.ROUNDING, Band.ROUNDING, Band.BUG]


def test_the_bound_for_float32_is_the_published_one() -> None:
    assert Absolute().bound == 1e-4


def test_rounding_allows_a_multiple_of_the_floor() -> None:
    assert allowance(Rounding(), scale=1.0, floor=0.25, epsilon=FLOAT32).allowed == FLOOR_FACTOR * 0.25


def test_rounding_never_allows_less_than_so_many_ulp_of_the_scale() -> None:
    assert allowance(Rounding(), scale=4.0, floor=0.0, epsilon=FLOAT32).allowed == SCALE_ULPS * FLOAT32 * 4.0


def test_above_rounding_a_difference_is_suspicious_before_it_is_a_bug() -> None:
    measured = allowance(Rounding(), scale=1000.0, floor=0.25, epsilon=FLOAT32)
    allowed, bug = FLOOR_FACTOR * 0.25, BUG_FACTOR * FLOOR_FACTOR * 0.25
    bands = {allowed: Band.ROUNDING, above(allowed): Band.SUSPICIOUS, bug: Band.SUSPICIOUS, above(bug): Band.BUG}
    assert {size: measured.band(size) for size in bands} == bands


@pytest.mark.parametrize("tolerance", EVERY, ids=str)
@pytest.mark.parametrize("difference", [math.nan, math.inf])
def test_what_is_not_finite_is_a_bug_under_every_tolerance(tolerance: Tolerance, difference: float) -> None:
    assert allowance(tolerance, scale=10.0, floor=1e-6, epsilon=FLOAT32).band(difference) is Band.BUG


def test_where_too_much_of_the_scale_would_be_allowed_nothing_can_be_told() -> None:
    floor = TOO_NOISY * 100.0 / FLOOR_FACTOR
    assert not allowance(Rounding(), scale=100.0, floor=floor, epsilon=FLOAT32).too_noisy
    noisy = allowance(Rounding(), scale=100.0, floor=floor * 2, epsilon=FLOAT32)
    assert noisy.too_noisy
    told = TOO_NOISY * 100.0
    assert (noisy.band(told), noisy.band(above(told))) == (Band.ROUNDING, Band.SUSPICIOUS)


@pytest.mark.parametrize("tolerance", [Exact(), Absolute(5.0)], ids=str)
def test_a_bound_that_was_given_is_never_too_noisy(tolerance: Tolerance) -> None:
    assert not allowance(tolerance, scale=1.0, floor=10.0, epsilon=FLOAT32).too_noisy


def test_rounding_needs_a_floor_and_the_others_do_not() -> None:
    with pytest.raises(ValueError, match="floor"):
        allowance(Rounding(), scale=1.0, floor=None, epsilon=FLOAT32)
    assert allowance(Exact(), scale=1.0, floor=None, epsilon=FLOAT32).allowed == 0.0
    assert allowance(Absolute(), scale=1.0, floor=None, epsilon=FLOAT32).allowed == 1e-4


def test_logits_of_no_scale_and_no_noise_leave_nothing_to_allow() -> None:
    assert allowance(Rounding(), scale=0.0, floor=0.0, epsilon=FLOAT32).band(above(0.0)) is Band.BUG


@pytest.mark.parametrize(
    ("dtype", "ulp"),
    [(torch.float64, 2.0**-52), (torch.float32, 2.0**-23), (torch.bfloat16, 2.0**-7), (torch.float16, 2.0**-10)],
    ids=str,
)
def test_an_ulp_is_that_of_the_dtype_in_which_is_judged(dtype: torch.dtype, ulp: float) -> None:
    epsilon = Oracle(reference("gpt"), dtype).epsilon
    assert allowance(Rounding(), scale=10.0, floor=0.0, epsilon=epsilon).allowed == SCALE_ULPS * ulp * 10.0


class Sensitive:
    """A reference that says how far its logits move."""

    name = "sensitive"

    def __init__(self, moves: float) -> None:
        self.plain, self.moves, self.asked = reference("gpt"), moves, 0
        self.vocab_size = self.plain.vocab_size

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.plain.to(torch.float64).logits(tokens)

    def nudged(self, tokens: torch.Tensor) -> torch.Tensor:
        self.asked += 1
        return self.logits(tokens) + self.moves

    def to(self, dtype: torch.dtype) -> Sensitive:
        return self


def test_a_model_that_amplifies_rounding_is_allowed_more_and_no_bug_is() -> None:
    rows = [(1, 2, 3, 4), (5, 6)]
    found: dict[tuple[float, float], tuple[Band, int]] = {}
    for moves in (0.0, 1e-9):
        for difference in (1e-15, 1e-9, 1e-3):
            told = Sensitive(moves)
            allowed = measured(rows, 10.0, difference, Oracle(told, torch.float64))
            found[moves, difference] = allowed.band(difference), told.asked
    assert found == {
        (0.0, 1e-15): (Band.ROUNDING, 0),  # the floor explains it: nothing more is asked
        (0.0, 1e-9): (Band.BUG, 2),
        (0.0, 1e-3): (Band.BUG, 2),
        (1e-9, 1e-15): (Band.ROUNDING, 0),
        (1e-9, 1e-9): (Band.ROUNDING, 2),
        (1e-9, 1e-3): (Band.BUG, 2),
    }
    assert Oracle(reference("gpt"), torch.float64).conditioning((1, 2)) == 0.0


sizes = st.floats(0, 1e3, allow_nan=False)


@settings(deadline=None, derandomize=True)
@given(st.sampled_from(EVERY), sizes, sizes, sizes, sizes)
def test_a_larger_difference_never_looks_better(
    tolerance: Tolerance, scale: float, floor: float, one: float, other: float
) -> None:
    worse = {Band.ROUNDING: 0, Band.SUSPICIOUS: 1, Band.BUG: 2}
    worked_out = allowance(tolerance, scale, floor, FLOAT32)
    smaller, larger = sorted((one, other))
    assert worse[worked_out.band(smaller)] <= worse[worked_out.band(larger)]
    assert worked_out.band(0.0) is Band.ROUNDING


def test_a_tolerance_says_what_it_is() -> None:
    assert [str(tolerance) for tolerance in EVERY] == ["exact", "absolute 0.0001", f"rounding {FLOOR_FACTOR:g} × floor"]

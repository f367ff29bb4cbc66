"""Two sets of logits, position by position: the figures are those that a reader would work out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness.comparison import compare
from torch import Tensor

EXPECTED = torch.tensor(
    [
        [[1.0, 4.0, 2.0], [0.0, -8.0, 3.0]],
        [[5.0, 1.0, 1.0], [2.0, 2.5, 0.0]],
    ]
)
"""Two rows of two positions over three tokens."""


def changed(*changes: tuple[int, int, int, float]) -> Tensor:
    """`EXPECTED` with something added at (row, position, token)."""
    logits = EXPECTED.clone()
    for row, position, token, by in changes:
        logits[row, position, token] += by
    return logits


def test_equal_logits_differ_nowhere() -> None:
    found = compare(EXPECTED.clone(), EXPECTED)
    assert found.differences == (0.0, 0.0)
    assert (found.largest, found.flips, found.positions, found.scale) == (0.0, 0, 4, 8.0)


def test_a_position_shows_its_largest_difference_over_tokens_and_rows() -> None:
    found = compare(changed((0, 0, 0, 0.25), (0, 0, 2, -0.5), (1, 0, 1, 0.125), (1, 1, 2, 0.0625)), EXPECTED)
    assert found.differences == (0.5, 0.0625)
    assert found.largest == 0.5


@pytest.mark.parametrize("row", [0, 1])
def test_the_row_is_that_of_the_largest_difference(row: int) -> None:
    found = compare(changed((row, 1, 0, 1.0), (1 - row, 0, 0, 0.5), (1 - row, 1, 0, 0.5)), EXPECTED)
    assert found.row == row


def test_flips_count_positions_of_all_rows_whose_most_likely_token_changes() -> None:
    assert compare(changed((0, 0, 2, 3.0), (1, 1, 0, 1.0), (1, 0, 0, -3.9)), EXPECTED).flips == 2


def test_the_scale_is_that_of_the_expected_logits_whatever_their_sign() -> None:
    assert compare(EXPECTED * 100, EXPECTED).scale == 8.0


def test_another_precision_is_compared_in_the_wider_one() -> None:
    narrow = torch.full((1, 1, 2), 0.1, dtype=torch.float32)
    wide = torch.full((1, 1, 2), 0.1, dtype=torch.float64)
    assert compare(narrow, wide).largest == pytest.approx(1.490116e-09, rel=1e-4)
    assert compare(narrow.bfloat16(), narrow).largest == pytest.approx(9.765625e-05, rel=1e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_never_a_small_difference(bad: float) -> None:
    found = compare(changed((1, 1, 0, bad)), EXPECTED)
    assert found.differences[0] == 0.0
    assert not found.differences[1] <= 1e30
    assert found.row == 1


@pytest.mark.parametrize(
    ("got", "expected"),
    [((1, 2, 3), (1, 3, 3)), ((2, 1, 3), (1, 1, 3)), ((1, 1, 4), (1, 1, 3)), ((1, 3), (1, 1, 3)), ((1, 0, 3), (1, 0, 3))],
)
def test_other_shapes_and_no_positions_are_refused(got: tuple[int, ...], expected: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cannot be compared") as caught:
        compare(torch.zeros(got), torch.zeros(expected))
    assert str(list(got)) in str(caught.value)


def test_nothing_that_is_given_is_changed() -> None:
    got, expected = changed((0, 1, 1, 2.0)), EXPECTED.clone()
    compare(got, expected)
    assert got.equal(changed((0, 1, 1, 2.0)))
    assert expected.equal(EXPECTED)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[list[list[list[float]]], list[list[list[float]]]]:
    rows, positions, vocab = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    numbers = st.integers(-64, 64).map(lambda eighths: eighths / 8)
    row = st.lists(st.lists(numbers, min_size=vocab, max_size=vocab), min_size=positions, max_size=positions)
    both = st.lists(row, min_size=rows, max_size=rows)
    return draw(both), draw(both)


@settings(deadline=None, derandomize=True)
@given(pairs())
def test_the_figures_are_those_of_the_definition(pair: tuple[list[list[list[float]]], list[list[list[float]]]]) -> None:
    got, expected = pair
    count = len(got[0])
    gaps = [
        [max(abs(g - e) for g, e in zip(got[row][at], expected[row][at], strict=True)) for at in range(count)]
        for row in range(len(got))
    ]
    likely = [[logits.index(max(logits)) for row in side for logits in row] for side in (got, expected)]
    found = compare(torch.tensor(got), torch.tensor(expected))
    assert found.differences == tuple(max(row[at] for row in gaps) for at in range(count))
    assert found.largest == max(map(max, gaps))
    assert max(gaps[found.row]) == found.largest
    assert found.scale == max(abs(e) for row in expected for logits in row for e in logits)
    assert found.flips == sum(g != e for g, e in zip(*likely, strict=True))
    assert found.positions == len(got) * count

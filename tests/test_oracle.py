"""Which logits are due: remembered passes of the reference agree with fresh ones, and none is made twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kvconform.harness import oracle as oracle_module
from kvconform.harness.generate import some_tokens
from kvconform.harness.oracle import Oracle, Reference
from kvconform.harness.program import Row
from kvconform.harness.scope import Scope
from kvconform.reference.shipped import reference
from torch import Tensor

MODELS = ("gpt", "llama")
DTYPES = (torch.float32, torch.float64)
ULPS = 32
"""So many units in the last place of the scale may two passes over the same tokens differ."""


def tokens(count: int, seed: int = 0) -> Row:
    return some_tokens(Scope(vocab_size=1200), count, seed)


@cache
def in_precision(model: str, dtype: torch.dtype) -> Reference:
    return reference(model).to(dtype)


def fresh(model: str, dtype: torch.dtype, *rows: Row) -> Tensor:
    """The reference on these rows, `[rows, n, vocab]`, with no oracle between."""
    with torch.inference_mode():
        return in_precision(model, dtype).logits(torch.tensor(rows))


def assert_same(got: Tensor, due: Tensor) -> None:
    assert got.shape == due.shape
    assert got.dtype == due.dtype
    assert (got - due).abs().max() <= ULPS * torch.finfo(due.dtype).eps * due.abs().max()


both = pytest.mark.parametrize("model", MODELS)
precisions = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@both
@precisions
def test_prefixes_of_a_remembered_row_agree_with_fresh_passes(model: str, dtype: torch.dtype) -> None:
    oracle, whole = Oracle(reference(model), dtype), tokens(40)
    oracle.row(whole, 1)
    for length in (1, 2, 7, 39, 40):
        for count in {1, length // 2 + 1, length}:
            assert_same(oracle.row(whole[:length], count), fresh(model, dtype, whole[:length])[0, -count:])


@both
def test_rows_of_one_length_are_given_together(model: str) -> None:
    oracle, rows = Oracle(reference(model), torch.float32), (tokens(9), tokens(9, seed=1), tokens(9))
    assert_same(oracle.expected(rows, 4), fresh(model, torch.float32, *rows)[:, -4:])


@both
@precisions
def test_a_call_is_bit_for_bit_the_references(model: str, dtype: torch.dtype) -> None:
    oracle = Oracle(reference(model), dtype)
    oracle.prepare([tokens(33), tokens(33, seed=1)])
    for rows in ((tokens(33),), (tokens(33)[:5],), (tokens(33)[:5], tokens(33, seed=1)[:5])):
        assert oracle.call(rows).equal(fresh(model, dtype, *rows))
        assert oracle.call(rows).equal(fresh(model, dtype, *rows))


short = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple)


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.lists(short, min_size=1, max_size=8), st.booleans())
def test_whatever_was_asked_before_an_answer_is_that_of_a_fresh_pass(rows: list[Row], prepared: bool) -> None:
    oracle = Oracle(reference("gpt"), torch.float32)
    if prepared:
        oracle.prepare(rows)
    for row in rows:
        assert_same(oracle.row(row, len(row)), fresh("gpt", torch.float32, row)[0])


def test_one_pass_serves_a_row_and_all_that_it_begins_with() -> None:
    oracle, whole = Oracle(reference("gpt"), torch.float32), tokens(12)
    assert oracle.passes == 0
    oracle.prepare([whole[:3], whole, whole[:11]])
    assert oracle.passes == 1
    for length in range(1, 13):
        oracle.row(whole[:length], length)
        oracle.expected((whole[:length], whole[:length]), 1)
    assert oracle.passes == 1


def test_a_row_that_goes_another_way_is_a_pass_of_its_own() -> None:
    oracle = Oracle(reference("gpt"), torch.float32)
    oracle.prepare([(1, 2, 3), (1, 2, 4)])
    assert oracle.passes == 2
    oracle.row((1, 2, 3, 5), 1)
    assert oracle.passes == 3


def test_calls_and_floors_are_not_made_twice() -> None:
    oracle, whole = Oracle(reference("gpt"), torch.float32), tokens(12)
    oracle.call((whole,))
    oracle.call((whole,))
    assert oracle.passes == 1
    oracle.call((whole, whole))
    assert oracle.passes == 2
    oracle.floor(whole)
    before = oracle.passes
    oracle.floor(whole)
    assert oracle.passes == before


def test_what_was_forgotten_is_computed_again_and_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_module, "MEMORY", 0)
    oracle, rows = Oracle(reference("gpt"), torch.float32), [(index, 7, 7) for index in range(70)]
    oracle.prepare(rows)
    assert oracle.passes == len(rows)
    for row in rows:
        assert_same(oracle.row(row, 3), fresh("gpt", torch.float32, row)[0])
        assert_same(oracle.row(row[:2], 1), fresh("gpt", torch.float32, row[:2])[0, -1:])
    assert len(rows) < oracle.passes <= 3 * len(rows)


@both
@pytest.mark.parametrize("count", [2, 5, 13, 40])
def test_the_floor_holds_what_float32_is_off(model: str, count: int) -> None:
    oracle, row = Oracle(reference(model), torch.float32), tokens(count, seed=count)
    narrow, wide = fresh(model, torch.float32, row), fresh(model, torch.float64, row)
    assert 0 < (narrow - wide).abs().max() <= oracle.floor(row) < 1e-4 * wide.abs().max()


@both
def test_the_floor_in_float64_is_many_orders_smaller(model: str) -> None:
    row = tokens(40)
    narrow, wide = Oracle(reference(model), torch.float32).floor(row), Oracle(reference(model), torch.float64).floor(row)
    assert wide < 1e-6 * narrow


Noise = Callable[[Tensor, torch.dtype], float]


@dataclass
class Counting:
    """Logits that every precision can hold, so that there is no noise but the one that a test adds."""

    noise: Noise = lambda tokens, dtype: 0.0
    dtype: torch.dtype = torch.float32
    name: str = "counting"
    vocab_size: int = 8
    asked: list[tuple[torch.dtype, list[list[int]]]] = field(default_factory=list)

    def logits(self, tokens: Tensor) -> Tensor:
        self.asked.append((self.dtype, tokens.tolist()))
        clean = (tokens[..., None] == torch.arange(self.vocab_size)).cumsum(dim=1)
        return clean.to(self.dtype) + self.noise(tokens, self.dtype)

    def to(self, dtype: torch.dtype) -> Counting:
        return Counting(self.noise, dtype, asked=self.asked)


NOISES: dict[str, Noise] = {
    "against float64": lambda tokens, dtype: 0.25 * (dtype == torch.float32),
    "in another batch": lambda tokens, dtype: 0.25 * (tokens.shape[0] > 1),
    "in a pass that ends earlier": lambda tokens, dtype: 0.25 * (tokens.shape[1] < 9),
}


@pytest.mark.parametrize("kind", NOISES)
def test_the_floor_is_the_spread_of_the_reference(kind: str) -> None:
    assert Oracle(Counting(NOISES[kind]), torch.float32).floor((1, 2, 3, 4, 5, 6, 7, 1, 2)) == 0.25


def test_a_reference_without_noise_has_no_floor() -> None:
    assert Oracle(Counting(), torch.float32).floor((1, 2, 3, 4, 5)) == 0.0


def test_nothing_but_the_reference_on_the_same_tokens_is_asked_for_the_floor() -> None:
    counting = Counting()
    Oracle(counting, torch.float32).floor((1, 2, 3, 4, 5))
    rows = [row for _, asked in counting.asked for row in asked]
    assert {dtype for dtype, _ in counting.asked} == {torch.float32, torch.float64}
    assert all(row in ([1, 2, 3, 4, 5][: len(row)], [5, 4, 3, 2, 1]) for row in rows)


@both
def test_the_models_limit_is_reached_and_not_passed(model: str) -> None:
    limit = reference(model).config.context
    oracle, whole = Oracle(reference(model), torch.float32), tokens(limit)
    assert_same(oracle.row(whole, limit), fresh(model, torch.float32, whole)[0])
    assert oracle.call((whole, whole)).equal(fresh(model, torch.float32, whole, whole))
    assert 0 < oracle.floor(whole) < 1e-2


@precisions
def test_logits_come_in_the_precision_that_was_asked_for(dtype: torch.dtype) -> None:
    oracle, row = Oracle(reference("gpt"), dtype), tokens(3)
    assert oracle.row(row, 1).dtype == oracle.call((row,)).dtype == oracle.dtype == dtype

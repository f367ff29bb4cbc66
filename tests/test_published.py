"""The published figures as relations that hold on the shipped weights. The published digits belong to other weights."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.fault import Kind
from kvconform.harness.implementation import Implementation
from kvconform.harness.judging import PROFILES
from kvconform.harness.shapes import read_broadcast
from kvconform.harness.table_run import listed, run_table
from kvconform.harness.target import Resolved
from torch import Tensor

MODELS = ("gpt", "llama")
EXACT = ("concat", "preallocated", "paged", "forked")
"""Attention gets the reference's operands, so that a prefill may not differ by one bit."""
LOSSLESS = (*EXACT, "static", "chunked", "cat_order")
CANDLE = ("candle_llama", "candle_quantized_llama")
BOUND = 1e-4
"""max |Δlogit| of an incremental path in float32, as published."""
WRONG = 1.0
"""Every published fault moved some logit by more than this."""


@cache
def loaded(target: str) -> Resolved:
    return registry.resolve(f"builtin:{target}")


def implementation(target: str) -> Implementation:
    return loaded(target).implementation


@cache
def sample(model: str) -> tuple[int, ...]:
    """33 tokens of a poem: a prompt of 13 and 20 behind it."""
    text = loaded(f"{model}/concat").sample
    assert text is not None
    return text.prompt + text.continuation


@cache
def earlier(model: str) -> tuple[int, ...]:
    """32 tokens of another poem: the conversation before."""
    text = loaded(f"{model}/concat").sample
    assert text is not None
    return text.earlier


PROMPT, STEPS = 13, (1,) * 20


@cache
def reference(model: str, tokens: tuple[int, ...]) -> Tensor:
    """Logits `[1, n, vocab]` of the plain forward pass."""
    with torch.inference_mode():
        return loaded(f"{model}/concat").reference.logits(torch.tensor([tokens]))


def feed(engine: Implementation, state: Any, tokens: tuple[int, ...], *sizes: int) -> list[Tensor]:
    """The logits of each call; without sizes, of one call."""
    sizes = sizes or (len(tokens),)
    assert sum(sizes) == len(tokens)
    return [engine.append(state, part) for part in torch.tensor([tokens]).split(sizes, dim=1)]


def fresh(target: str, tokens: tuple[int, ...], *sizes: int) -> Tensor:
    """Logits of all calls on a new cache, one behind the other."""
    engine = implementation(target)
    return torch.cat(feed(engine, engine.new_cache(1), tokens, *sizes), dim=1)


def gaps(got: Tensor, wanted: Tensor) -> list[float]:
    """max |Δlogit| at each position; nothing but finite logits of one shape can be compared."""
    assert got.shape == wanted.shape
    assert got.isfinite().all()
    return (got - wanted).abs().amax(dim=-1)[0].tolist()


def content(value: Any, inside: tuple[int, ...] = ()) -> Any:
    """Everything a cache holds, bit by bit, in a form that can be compared; NaN equals itself."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype, value.contiguous().numpy().tobytes()
    if id(value) in inside:
        return "itself"
    inside = (*inside, id(value))
    if isinstance(value, dict):
        return {name: content(part, inside) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [content(part, inside) for part in value]
    if type(value).__module__.startswith("kvconform."):
        return type(value), content(vars(value), inside)
    return value


def turn(target: str) -> list[float]:
    """One turn: a prompt in one call, then a token a call. The deviation of each position from the reference."""
    model = target.partition("/")[0]
    tokens = sample(model)
    return gaps(fresh(target, tokens, PROMPT, *STEPS), reference(model, tokens))


# The correct paths


@pytest.mark.parametrize("length", [1, 2, 5, 13, 33])
@pytest.mark.parametrize("way", EXACT)
@pytest.mark.parametrize("model", MODELS)
def test_a_prefill_deviates_by_exactly_nothing(model: str, way: str, length: int) -> None:
    tokens = sample(model)[:length]
    assert torch.equal(fresh(f"{model}/{way}", tokens), reference(model, tokens))


@pytest.mark.parametrize("way", EXACT)
@pytest.mark.parametrize("model", MODELS)
def test_a_prefill_of_three_rows_deviates_by_exactly_nothing(model: str, way: str) -> None:
    rows = torch.tensor([sample(model)[:7], sample(model)[9:16], earlier(model)[:7]])
    engine = implementation(f"{model}/{way}")
    with torch.inference_mode():
        wanted = loaded(f"{model}/{way}").reference.logits(rows)
    assert torch.equal(engine.append(engine.new_cache(3), rows), wanted)


@pytest.mark.parametrize("way", CANDLE)
def test_a_prefill_by_candles_rules_deviates_by_exactly_nothing(way: str) -> None:
    tokens = sample("llama")[:PROMPT]
    assert torch.equal(fresh(f"llama/{way}", tokens), reference("llama", tokens)[:, -1:])


@pytest.mark.parametrize("way", LOSSLESS)
@pytest.mark.parametrize("model", MODELS)
def test_incremental_logits_stay_within_the_published_bound(model: str, way: str) -> None:
    assert max(turn(f"{model}/{way}")) < BOUND


@pytest.mark.parametrize("model", MODELS)
def test_new_blocks_before_old_ones_stay_within_rounding(model: str) -> None:
    wide = implementation(f"{model}/cat_order").to(torch.float64)
    tokens = sample(model)
    wanted = loaded(f"{model}/concat").reference.to(torch.float64).logits(torch.tensor([tokens]))
    for sizes in ((PROMPT, *STEPS), (4,) * 8 + (1,)):
        got = torch.cat(feed(wide, wide.new_cache(1), tokens, *sizes), dim=1)
        assert max(gaps(got, wanted)) < 1e-13 * wanted.abs().max().item()


@pytest.mark.parametrize("way", LOSSLESS)
@pytest.mark.parametrize("model", MODELS)
def test_three_tokens_and_two_equal_five(model: str, way: str) -> None:
    tokens = sample(model)[:5]
    parts, whole = fresh(f"{model}/{way}", tokens, 3, 2), fresh(f"{model}/{way}", tokens)
    assert max(gaps(parts, whole)) < BOUND
    assert max(gaps(parts, reference(model, tokens))) < BOUND


# Faults that show in decode


@pytest.mark.parametrize("way", ["pos_zero", "no_cat", "kv_mismatch"])
@pytest.mark.parametrize("model", MODELS)
def test_the_prompt_is_right_and_everything_behind_it_wrong(model: str, way: str) -> None:
    tokens = sample(model)
    engine = implementation(f"{model}/{way}")
    prompt, first, *others = feed(engine, engine.new_cache(1), tokens, PROMPT, *STEPS)
    assert torch.equal(prompt, reference(model, tokens[:PROMPT]))
    behind = gaps(torch.cat([first, *others], dim=1), reference(model, tokens)[:, PROMPT:])
    assert behind[0] > 100 * BOUND
    assert max(behind) > WRONG


@pytest.mark.parametrize("target", ["gpt/pos_per_call", "llama/pos_per_call"])
def test_a_counter_of_calls_makes_the_first_turn_silently_wrong(target: str) -> None:
    found = turn(target)
    assert max(found[:PROMPT]) < BOUND
    assert found[PROMPT] > 100 * BOUND
    assert max(found) > WRONG


@pytest.mark.parametrize("way", ["candle_llama_by_call", "candle_quantized_by_call"])
def test_a_caller_that_counts_calls_makes_the_first_turn_silently_wrong(way: str) -> None:
    tokens = sample("llama")
    got = fresh(f"llama/{way}", tokens, PROMPT, *STEPS)
    found = gaps(got, reference("llama", tokens)[:, PROMPT - 1 :])
    assert found[0] < BOUND
    assert found[1] > 100 * BOUND
    assert max(found) > WRONG


@pytest.mark.parametrize("way", ["pos_plus_100", "pos_minus_3", "pos_zero"])
def test_shifted_decode_is_silent_under_rope(way: str) -> None:
    found = turn(f"llama/{way}")
    assert max(found[:PROMPT]) < BOUND
    assert min(found[PROMPT:]) > BOUND
    assert max(found) > WRONG


def test_a_shift_by_100_leaves_the_table_of_learned_positions() -> None:
    engine = implementation("gpt/pos_plus_100")
    state = engine.new_cache(1)
    tokens = sample("gpt")
    assert torch.equal(*feed(engine, state, tokens[:PROMPT]), reference("gpt", tokens[:PROMPT]))
    with pytest.raises(IndexError, match="out of range"):
        feed(engine, state, tokens[PROMPT : PROMPT + 1])


def test_a_shift_by_minus_3_is_silent_with_learned_positions() -> None:
    assert max(turn("gpt/pos_minus_3")) > WRONG


# The missing mask


@pytest.mark.parametrize("model", MODELS)
def test_a_missing_mask_shows_at_step_0(model: str) -> None:
    found = turn(f"{model}/no_mask")
    assert found[0] > 100 * BOUND
    assert max(found[:PROMPT]) > WRONG


@pytest.mark.parametrize("model", MODELS)
def test_a_missing_mask_changes_no_bit_where_each_call_holds_one_token(model: str) -> None:
    tokens = sample(model)
    assert torch.equal(
        fresh(f"{model}/no_mask", tokens, *(1,) * 33),
        fresh(f"{model}/concat", tokens, *(1,) * 33),
    )


@pytest.mark.parametrize("model", MODELS)
def test_a_missing_mask_shows_in_chunks_of_4(model: str) -> None:
    tokens = sample(model)[:32]
    assert max(gaps(fresh(f"{model}/concat", tokens, *(4,) * 8), reference(model, tokens))) < BOUND
    assert max(gaps(fresh(f"{model}/no_mask", tokens, *(4,) * 8), reference(model, tokens))) > WRONG


# Branches


def branches(target: str) -> tuple[list[Tensor], list[Tensor]]:
    """A cache and its clone go on in turn with different tokens: the logits of both, call by call."""
    model = target.partition("/")[0]
    engine = implementation(target)
    one = engine.new_cache(1)
    feed(engine, one, sample(model)[:PROMPT])
    other = engine.fork(one)
    here, there = zip(
        *(
            (*feed(engine, one, (old,)), *feed(engine, other, (new,)))
            for old, new in zip(earlier(model)[:8], sample(model)[PROMPT : PROMPT + 8], strict=True)
        ),
        strict=True,
    )
    return list(here), list(there)


@pytest.mark.parametrize("way", LOSSLESS)
@pytest.mark.parametrize("model", MODELS)
def test_a_branch_from_a_clone_equals_a_fresh_run(model: str, way: str) -> None:
    here, there = branches(f"{model}/{way}")
    prompt = sample(model)[:PROMPT]
    for got, tokens in ((here, earlier(model)[:8]), (there, sample(model)[PROMPT : PROMPT + 8])):
        alone = fresh(f"{model}/{way}", prompt + tokens, PROMPT, *(1,) * 8)
        assert torch.equal(torch.cat(got, dim=1), alone[:, PROMPT:])


@pytest.mark.parametrize("way", CANDLE)
def test_a_branch_from_a_clone_of_candles_cache_equals_a_fresh_run(way: str) -> None:
    _, there = branches(f"llama/{way}")
    alone = fresh(f"llama/{way}", sample("llama")[: PROMPT + 8], PROMPT, *(1,) * 8)
    assert torch.equal(torch.cat(there, dim=1), alone[:, 1:])


@pytest.mark.parametrize("model", MODELS)
def test_a_branch_that_shares_its_buffer_does_not_equal_a_fresh_run(model: str) -> None:
    here, _ = branches(f"{model}/fork_shares_buffer")
    alone = fresh(f"{model}/fork_shares_buffer", sample(model)[:PROMPT] + earlier(model)[:8], PROMPT, *(1,) * 8)
    assert max(gaps(torch.cat(here, dim=1), alone[:, PROMPT:])) > WRONG


@pytest.mark.parametrize("model", MODELS)
def test_calls_that_go_to_a_clone_each_change_no_bit(model: str) -> None:
    tokens = sample(model)
    assert torch.equal(fresh(f"{model}/forked", tokens, PROMPT, *STEPS), fresh(f"{model}/concat", tokens, PROMPT, *STEPS))


# The caller's index_pos, by candle's two sets of rules


@pytest.mark.parametrize("way", CANDLE)
def test_a_second_part_at_its_own_length_names_both_shapes(way: str) -> None:
    engine = implementation(f"llama/{way}")
    state = engine.new_cache(1)
    feed(engine, state, sample("llama")[:8])
    state.length = 5  # index_pos of the caller, who passes the second part's length
    with pytest.raises(engine.refusals) as caught:
        feed(engine, state, sample("llama")[8:13])
    assert "cannot broadcast [5, 10] to [1, 6, 5, 13]" in str(caught.value)
    assert str(read_broadcast(str(caught.value))) == "position passed 5, cached 8"


@pytest.mark.parametrize("way", CANDLE)
def test_a_second_part_at_the_length_before_it_is_right(way: str) -> None:
    engine = implementation(f"llama/{way}")
    state = engine.new_cache(1)
    feed(engine, state, sample("llama")[:8])
    state.length = 8
    (got,) = feed(engine, state, sample("llama")[8:13])
    assert max(gaps(got, reference("llama", sample("llama")[:13])[:, -1:])) < BOUND


CLEARED = (
    "gpt/pos_kept_after_reset",
    "llama/pos_kept_after_reset",
    "llama/candle_llama_cleared",
    "llama/candle_quantized_cleared",
)


def cleared(target: str) -> tuple[Implementation, Any]:
    """An engine whose caller has fed 32 tokens, emptied the cache and gone on counting."""
    engine = implementation(target)
    state = engine.new_cache(1)
    feed(engine, state, earlier(target.partition("/")[0]))
    engine.reset(state)
    assert state.length == 32
    return engine, state


@pytest.mark.parametrize("target", CLEARED)
def test_cleared_without_reset_names_the_published_shapes(target: str) -> None:
    model = target.partition("/")[0]
    engine, state = cleared(target)
    heads = {"gpt": 4, "llama": 6}[model]
    with pytest.raises(engine.refusals) as caught:
        feed(engine, state, sample(model)[:13])
    assert f"[13, 45] to [1, {heads}, 13, 13]" in str(caught.value)
    assert str(read_broadcast(str(caught.value))) == "position passed 32, cached 0"


def test_the_table_reads_the_shapes_of_a_cleared_cache() -> None:
    targets = listed(["builtin:llama/*_cleared", "builtin:llama/pos_kept_after_reset"])
    run = run_table(targets, replace(PROFILES["quick"], examples=0))
    assert len(run.rows) == 3
    for row in run.rows:
        assert "[13, 45]" in row.error
        assert "position passed 32, cached 0" in row.diagnosis


@pytest.mark.parametrize("target", CLEARED[1:])
def test_one_token_after_cleared_without_reset_is_invisible_under_rope(target: str) -> None:
    engine, state = cleared(target)
    (got,) = feed(engine, state, sample("llama")[:1])
    assert max(gaps(got, reference("llama", sample("llama")[:1]))) < BOUND


def test_one_token_after_cleared_without_reset_shows_with_learned_positions() -> None:
    engine, state = cleared("gpt/pos_kept_after_reset")
    (got,) = feed(engine, state, sample("gpt")[:1])
    assert max(gaps(got, reference("gpt", sample("gpt")[:1]))) > WRONG


@pytest.mark.parametrize("count", [1, 5])
def test_quantized_rules_drop_the_old_cache_at_position_0(count: int) -> None:
    engine = implementation("llama/candle_quantized_llama")
    used, new = engine.new_cache(1), engine.new_cache(1)
    feed(engine, used, earlier("llama")[:24])
    used.length = 0  # no clear_kv_cache, and no new cache
    tokens, sizes = sample("llama")[: count + 3], (count, 1, 1, 1)
    assert torch.equal(
        torch.cat(feed(engine, used, tokens, *sizes), dim=1), torch.cat(feed(engine, new, tokens, *sizes), dim=1)
    )


def test_llama_rules_fail_for_several_tokens_at_position_0_on_an_old_cache() -> None:
    engine = implementation("llama/candle_llama")
    state = engine.new_cache(1)
    feed(engine, state, earlier("llama")[:24])
    state.length = 0
    with pytest.raises(engine.refusals) as caught:
        feed(engine, state, sample("llama")[:5])
    assert "[5, 5] to [1, 6, 5, 29]" in str(caught.value)
    assert str(read_broadcast(str(caught.value))) == "position passed 0, cached 24"


def test_llama_rules_silently_see_the_old_conversation_with_one_token() -> None:
    engine = implementation("llama/candle_llama")
    state = engine.new_cache(1)
    feed(engine, state, earlier("llama")[:24])
    state.length = 0
    (got,) = feed(engine, state, sample("llama")[:1])
    assert max(gaps(got, reference("llama", sample("llama")[:1]))) > WRONG


# Past the limit


CORRECT = [one.target.removeprefix("builtin:") for one in listed(["builtin:*"]) if one.kind is not Kind.FAULT]


@pytest.mark.parametrize("target", [name for name in CORRECT if "quantized" not in name])
def test_past_the_limit_nothing_is_touched(target: str) -> None:
    engine = implementation(target)
    limit = engine.max_length
    assert limit is not None
    text = (sample(target.partition("/")[0]) * limit)[: limit + 1]
    before = text[: limit - 2]

    state, undisturbed = engine.new_cache(1), engine.new_cache(1)
    feed(engine, undisturbed, before)
    feed(engine, state, before)
    for tail in (text[limit - 2 :], text[: limit + 1]):
        refused(engine, state, tail, limit)
    (got,), (wanted,) = feed(engine, state, text[limit - 2 : limit]), feed(engine, undisturbed, text[limit - 2 : limit])
    assert max(gaps(got, wanted)) < BOUND
    if engine.lossy is None and not engine.noisy:
        with torch.inference_mode():
            plain = loaded(target).reference.logits(torch.tensor([text[:limit]]))
        assert max(gaps(got, plain[:, limit - got.shape[1] :])) < BOUND
    refused(engine, state, text[-1:], limit)


def refused(engine: Implementation, state: Any, tokens: tuple[int, ...], limit: int) -> None:
    """A call past the limit raises one clear line that names the limit, and leaves every tensor as it was."""
    before = content(state)
    with pytest.raises(engine.refusals) as caught:
        feed(engine, state, tokens)
    assert str(limit) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert content(state) == before


@pytest.mark.parametrize("target", [name for name in CORRECT if "quantized" not in name])
def test_a_prompt_past_the_limit_is_refused_by_an_empty_cache(target: str) -> None:
    engine = implementation(target)
    assert engine.max_length is not None
    text = (sample(target.partition("/")[0]) * engine.max_length)[: engine.max_length + 1]
    refused(engine, engine.new_cache(1), text, engine.max_length)


@pytest.mark.parametrize("way", ["candle_quantized_llama", "candle_quantized_no_clear"])
def test_the_quantized_table_ends_at_4096(way: str) -> None:
    engine = implementation(f"llama/{way}")
    assert engine.max_length == 4096
    state = engine.new_cache(1)
    feed(engine, state, sample("llama")[:3])
    state.length = 4094
    before = content(state)
    with pytest.raises(engine.refusals) as caught:
        feed(engine, state, sample("llama")[:3])
    text = "narrow invalid args start + len > dim_len: [4096, 16], dim: 0, start: {}, len:{}"
    assert str(caught.value) == text.format(4094, 3)
    assert content(state) == before
    for token in sample("llama")[:2]:
        (got,) = feed(engine, state, (token,))
        assert got.isfinite().all()
    before = content(state)
    with pytest.raises(engine.refusals) as caught:
        feed(engine, state, sample("llama")[:1])
    assert str(caught.value) == text.format(4096, 1)
    assert content(state) == before


def test_the_llama_table_ends_at_what_the_model_was_trained_for() -> None:
    engine = implementation("llama/candle_llama")
    state = engine.new_cache(1)
    feed(engine, state, (sample("llama") * 4)[:128])
    with pytest.raises(engine.refusals) as caught:
        feed(engine, state, sample("llama")[:1])
    assert str(caught.value) == "narrow invalid args start + len > dim_len: [128, 16], dim: 0, start: 128, len:1"

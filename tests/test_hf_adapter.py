"""Parts of the transformers adapter on their own: positions, padding, rollbacks, precisions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kvconform.harness import registry
from kvconform.harness.conformance import chosen, conform
from kvconform.harness.errors import Unsupported
from kvconform.harness.judging import PROFILES
from kvconform.harness.trial import Verdict
from kvconform.implementations.hf.adapter import Held, Transformers, _cut
from kvconform.implementations.hf.model import Model
from kvconform.implementations.hf.traits import Traits


@pytest.fixture(scope="module")
def llama() -> Transformers:
    found = registry.resolve("arch:llama?cache=dynamic&positions=explicit").implementation
    assert isinstance(found, Transformers)
    return found


def spied(implementation: Transformers, calls: list[dict[str, torch.Tensor]], monkeypatch: pytest.MonkeyPatch) -> None:
    forward = implementation.model.call

    def call(**given: torch.Tensor) -> object:
        calls.append(given)
        return forward(**given)

    monkeypatch.setattr(implementation.model, "call", call)


def test_padding_is_handed_over_as_generate_does(llama: Transformers, monkeypatch: pytest.MonkeyPatch):
    calls: list[dict[str, torch.Tensor]] = []
    spied(llama, calls, monkeypatch)
    cache = llama.new_cache(2)
    llama.append(cache, torch.tensor([[0, 0, 3], [4, 5, 6]]), torch.tensor([1, 3]))
    llama.append(cache, torch.tensor([[7], [8]]))
    assert calls[0]["attention_mask"].tolist() == [[0, 0, 1], [1, 1, 1]]
    assert calls[0]["position_ids"].tolist() == [[0, 0, 0], [0, 1, 2]]
    assert calls[1]["attention_mask"].tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    assert calls[1]["position_ids"].tolist() == [[1], [3]]
    assert list(llama.length(cache)) == [2, 4]  # type: ignore[arg-type]
    llama.reset(cache)
    llama.append(cache, torch.tensor([[3], [4]]))
    assert "attention_mask" not in calls[2]
    assert calls[2]["position_ids"].tolist() == [[0], [0]]


def test_a_call_is_what_a_user_writes(monkeypatch: pytest.MonkeyPatch):
    found = registry.resolve("arch:llama?cache=default").implementation
    assert isinstance(found, Transformers)
    calls: list[dict[str, torch.Tensor]] = []
    spied(found, calls, monkeypatch)
    cache = found.new_cache()
    found.append(cache, torch.tensor([[3, 4]]))
    found.append(cache, torch.tensor([[5]]))
    assert [sorted(call) for call in calls] == [["input_ids", "use_cache"], ["cache", "input_ids", "use_cache"]]


def test_no_token_is_refused_and_the_cache_is_as_it_was(llama: Transformers):
    cache = llama.new_cache()
    llama.append(cache, torch.tensor([[3, 4]]))
    with pytest.raises((ValueError, RuntimeError)):
        llama.append(cache, torch.empty(1, 0, dtype=torch.int64))
    assert llama.length(cache) == 2


def test_a_rollback_between_paddings_is_told_where_it_cannot_be():
    mask = torch.tensor([[0, 1, 1, 1, 0, 1], [1, 1, 1, 0, 0, 1]]).bool()
    assert _cut(mask, 4) == 6
    assert _cut(mask, 3) == 5
    with pytest.raises(Unsupported, match="padding lies between"):
        _cut(mask, 2)


def floor(forgets: Sequence[int], lengths: Sequence[int], records: bool = True) -> int:
    return Traits(frozenset(), None, (), True, tuple(forgets), records).crop_floor(lengths)


def test_how_far_back_a_rollback_may_go():
    assert floor([], [5, 9, 3]) == 0
    assert floor([4], [3, 9]) == 0  # everything since it was empty is recorded
    assert floor([4], [9, 6]) == 6  # a rollback lets go of what is behind the window
    assert floor([4], [9, 6, 12]) == 6
    assert floor([4], [9, 3, 12]) == 0
    assert floor([4], [3], records=False) == 0
    assert floor([4], [3, 5, 7], records=False) == 7  # it refuses once the window was full


@given(st.lists(st.integers(0, 40), max_size=8), st.lists(st.integers(2, 12), min_size=1, max_size=3), st.booleans())
def test_a_rollback_to_where_a_cache_stands_is_always_allowed(lengths: list[int], forgets: list[int], records: bool):
    assert 0 <= floor(forgets, lengths, records) <= max(lengths, default=0)
    if not records and lengths:
        assert floor(forgets, lengths, records) <= lengths[-1]


def test_precisions_share_weights_and_leave_computed_tables_wide(llama: Transformers):
    half = llama.to(torch.bfloat16)
    assert half.model is llama.to(torch.bfloat16).model
    assert half.to(torch.bfloat16).model is half.model
    tables = {name: buffer.dtype for name, buffer in half.model.module.named_buffers() if "inv_freq" in name}
    assert set(tables.values()) == {torch.float32}
    assert {weight.dtype for weight in half.model.module.parameters()} == {torch.bfloat16}
    wide = llama.to(torch.float64).model.module
    assert {tensor.dtype for tensor in [*wide.parameters(), *wide.buffers()] if tensor.is_floating_point()} == {torch.float64}


def test_a_cache_survives_bytes(llama: Transformers):
    cache = llama.new_cache(1)
    llama.append(cache, torch.tensor([[3, 4, 5]]))
    loaded = llama.load(llama.dump(cache))
    assert isinstance(loaded, Held)
    one, other = (llama.append(held, torch.tensor([[6]])) for held in (cache, loaded))
    assert one.equal(other)


def model_of(name: str) -> Model:
    return registry.resolve(f"arch:{name}?cache=default").implementation.model


def test_positions_are_handed_over_wherever_they_are_taken() -> None:
    assert model_of("llama").places  # by name
    assert model_of("moss_transcribe_diarize").places  # among further arguments
    assert not model_of("bart").places  # further arguments that say nothing


def test_a_learned_table_ends_where_positions_are_set_aside_for_padding() -> None:
    implementation = registry.resolve("arch:camembert?cache=dynamic").implementation
    told, padding = implementation.model.config.max_position_embeddings, implementation.model.config.pad_token_id
    assert implementation.max_length == told - padding - 1


def test_what_an_embedding_keeps_for_itself_is_no_token() -> None:
    model = model_of("musicgen")
    assert (model.vocab_size, model.embedded) == (97, 98)


@pytest.mark.parametrize("name", ["musicgen", "xlnet"])
def test_a_loop_that_is_not_the_librarys_or_appends_tokens_is_not_asked(name: str) -> None:
    assert registry.resolve(f"arch:{name}?cache=default").implementation.ways == ()


def test_a_cache_whose_constructor_raises_is_a_finding() -> None:
    clauses = chosen(registry.clauses(), "adapter.answers")
    (case,) = conform("blt", registry.resolve("arch:blt?cache=dynamic"), clauses, PROFILES["quick"], ["float64"])
    assert case.verdict is Verdict.FAILED
    assert "num_hidden_layers" in case.reason

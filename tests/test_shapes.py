"""Two shapes of a mask that does not fit tell the position that was passed and what was really cached."""

from __future__ import annotations

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.generate import feed, some_tokens
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Op, Program, Reset
from kvconform.harness.runner import Divergence
from kvconform.harness.scope import Scope
from kvconform.harness.shapes import Broadcast, read_broadcast
from kvconform.harness.trial import Subject, attempt

PUBLISHED = {
    # 13 tokens at position 32 on an empty cache: cleared without reset.
    "cannot broadcast [13, 45] to [1, 9, 13, 13]": Broadcast(position=32, cached=0, tokens=13),
    # 8 tokens, then 5 at position 5: a chunk at its own length.
    "cannot broadcast [5, 10] to [1, 9, 5, 13]": Broadcast(position=5, cached=8, tokens=5),
    # A second prompt of 5 at position 0 on a cache of 24.
    "cannot broadcast [5, 5] to [1, 9, 5, 29]": Broadcast(position=0, cached=24, tokens=5),
}


@pytest.mark.parametrize("text", PUBLISHED)
def test_the_published_errors(text: str) -> None:
    assert read_broadcast(text) == PUBLISHED[text]


def test_what_it_says() -> None:
    assert str(read_broadcast("cannot broadcast [13, 45] to [1, 9, 13, 13]")) == "position passed 32, cached 0"


def test_the_shapes_are_found_within_an_error() -> None:
    text = "Error: shape mismatch\n  0: cannot broadcast [5, 10] to [1, 9, 5, 13]\n   1: candle_core::layout"
    assert read_broadcast(text) == Broadcast(position=5, cached=8, tokens=5)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "killed",
        "cannot broadcast [13] to [1, 9, 13, 13]",
        "cannot broadcast [13, 45] to [13, 13]",
        "cannot broadcast [1, 9, 13, 45] to [1, 9, 13, 13]",
        "cannot broadcast [a, b] to [1, 9, 13, 13]",
        "narrow invalid args start + len > dim_len: [128, 16], dim: 0, start: 128, len:1",
        "The size of tensor a (45) must match the size of tensor b (13) at non-singleton dimension 3",
    ],
)
def test_other_texts_say_nothing(text: str) -> None:
    assert read_broadcast(text) is None


def cleared(scope: Scope) -> tuple[Op, ...]:
    return (*feed("a", some_tokens(scope, 32), scope=scope), Reset("a"), *feed("a", some_tokens(scope, 13, 1), scope=scope))


def in_two_parts(scope: Scope) -> tuple[Op, ...]:
    return feed("a", some_tokens(scope, 13), 8, 5, scope=scope)


def reused(scope: Scope) -> tuple[Op, ...]:
    return (*feed("a", some_tokens(scope, 24), scope=scope), Reset("a"), *feed("a", some_tokens(scope, 5, 1), scope=scope))


@pytest.mark.parametrize(
    ("way", "program", "read"),
    [
        ("candle_llama_cleared", cleared, Broadcast(position=32, cached=0, tokens=13)),
        ("candle_quantized_cleared", cleared, Broadcast(position=32, cached=0, tokens=13)),
        ("candle_llama_chunk_at_own_length", in_two_parts, Broadcast(position=5, cached=8, tokens=5)),
        ("candle_llama_reused", reused, Broadcast(position=0, cached=24, tokens=5)),
    ],
)
def test_the_published_misuses_raise_errors_that_can_be_read(way: str, program: object, read: Broadcast) -> None:
    resolved = registry.resolve(f"builtin:llama/{way}")
    subject = Subject(resolved.implementation, Oracle(resolved.reference, torch.float32))
    assert callable(program)
    trial = attempt(logits_match, Program(program(subject.scope)), subject)
    assert trial.divergence is Divergence.RAISED
    assert read_broadcast(trial.detail) == read

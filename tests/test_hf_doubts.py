"""What looks like a fault of a cache and is none: ties at selections, frequencies that depend on the length."""

from __future__ import annotations

import pytest
import torch
from kvconform.harness.match import logits_match
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Program
from kvconform.harness.runner import Divergence
from kvconform.harness.trial import Judged, Subject, Verdict
from kvconform.implementations.hf.adapter import Transformers
from kvconform.implementations.hf.caches import kind_named
from kvconform.implementations.hf.model import Model
from kvconform.implementations.hf.options import Options
from kvconform.implementations.hf.plain import Plain
from kvconform.implementations.hf.ties import Selections
from transformers import LlamaConfig, LlamaForCausalLM


def tied(scores: torch.Tensor, k: int, length: int, epsilon: float = 1e-16) -> list[int]:
    with Selections(length, epsilon) as selections:
        scores.topk(k, dim=-1)
        torch.topk(torch.arange(8), 2)  # whole numbers tie for a reason
    return sorted(selections.tied)


def test_a_tie_is_found_at_its_token():
    scores = torch.rand(5, 8, dtype=torch.float64)
    assert tied(scores, 2, 5) == []
    best = scores[3].topk(3).indices
    scores[3, best[2]] = scores[3, best[1]]
    assert tied(scores, 2, 5) == [3]
    assert tied(scores, 1, 5) == []  # the two are both left out
    assert tied(scores.expand(2, 5, 8), 2, 5) == [3]  # heads before tokens
    assert tied(scores[:, None].expand(5, 2, 8), 2, 5) == [3]
    assert tied(scores.reshape(1, 1, 5, 8), 2, 5) == [3]
    assert tied(scores[3], 2, 5) == [0, 1, 2, 3, 4]  # no axis says whose it is


def test_masked_scores_do_not_tie_and_a_margin_within_the_noise_does():
    scores = torch.tensor([[1.0, -torch.inf, -torch.inf], [1.0, 1 + 1e-6, 0.5]], dtype=torch.float64)
    assert tied(scores, 2, 2) == []
    assert tied(scores, 1, 2) == []
    assert tied(scores, 1, 2, epsilon=1e-7) == [1]


class Biased(torch.nn.Module):
    """A feed-forward part that selects by a score that is the same for all choices, and so by chance."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = torch.zeros(*x.shape[:-1], 4, dtype=x.dtype).topk(1, dim=-1).indices
        by_chance = chosen + x.shape[1] % 2  # what a kernel might do with another shape
        return self.inner(x) * (1 + by_chance)


def llama(**fields: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, num_key_value_heads=1, head_dim=16, initializer_range=0.3, **fields)  # type: ignore[arg-type]
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def subject(module: torch.nn.Module) -> Subject:
    model = Model(module, "llama").to(torch.float64)
    implementation = Transformers(model, kind_named(Options(), model.config), "llama")
    return Subject(implementation, Oracle(Plain(model), torch.float64))


def test_a_difference_behind_a_tie_is_named_and_not_blamed():
    module = llama()
    module.model.layers[1].mlp = Biased(module.model.layers[1].mlp)
    trial = logits_match(Program.parse("append a 1 2 3; append a 4; append a 5 6"), subject(module), Judged.ALL)
    assert trial.verdict is Verdict.INCONCLUSIVE
    assert "a tie at a selection (top 1 of 4): the margin is within the noise" in trial.detail


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
def test_frequencies_that_depend_on_the_length_are_named_and_short_rows_are_judged(scaling: str):
    parameters: dict[str, object] = {"rope_type": scaling, "rope_theta": 5000.0, "factor": 4.0}
    if scaling == "longrope":
        parameters |= {"short_factor": [1.0] * 8, "long_factor": [3.0] * 8, "original_max_position_embeddings": 12}
    judged = subject(llama(max_position_embeddings=12, rope_parameters=parameters))
    long = logits_match(Program.parse("append a 1 2 3 4 5 6 7 8 9; append a 10 11 12 13 14; append a 15"), judged, Judged.ALL)
    assert (long.verdict, "its rotary frequencies depend on the length of a call" in long.detail) == (
        Verdict.INCONCLUSIVE,
        True,
    )
    short = logits_match(Program.parse("append a 1 2 3 4 5 6 7 8 9; append a 10; append a 11"), judged, Judged.ALL)
    assert short.verdict is Verdict.PASSED


def test_without_a_doubt_a_difference_is_a_failure():
    judged = subject(llama())
    judged.implementation.explicit = True  # type: ignore[attr-defined]
    append = judged.implementation.append

    def late(cache, tokens, lengths=None):  # type: ignore[no-untyped-def]
        cache.length += bool(cache.length)
        return append(cache, tokens, lengths)

    judged.implementation.append = late  # type: ignore[method-assign]
    trial = logits_match(Program.parse("append a 1 2 3; append a 4"), judged, Judged.ALL)
    assert (trial.verdict, trial.divergence) == (Verdict.FAILED, Divergence.LOGITS)

"""Faults that only a check of the check needs: each clause must be able to fail."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...harness.oracle import Reference
from ..builtin import BuiltIn
from ..catalogue import fault, spoiled_reference
from ..policy import Concat

QUIET_MODELS = ("gpt", "llama", "window", "hybrid")
"""Where a bit of noise is more than the arithmetic's own, and the full pass is judged by rounding."""


@fault(
    clause="lifecycle.no_aliasing",
    shows="in the call after the one whose logits were kept",
    diagnosis="returned logits are a view of a buffer that the next call overwrites",
)
class OutputAliased(BuiltIn):
    """Returned logits are a view of a buffer that the next call overwrites."""

    @torch.inference_mode()
    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits = super().append(cache, tokens, lengths)
        if self.__dict__.setdefault("buffer", logits).numel() < logits.numel():
            self.buffer = logits
        return self.buffer.flatten()[: logits.numel()].copy_(logits.flatten()).view(logits.shape)


@fault(
    clause="lifecycle.inputs_untouched",
    shows="in every call",
    diagnosis="append changes the tokens that it was given",
)
class InputsMutated(BuiltIn):
    """Append changes the tokens that it was given."""

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits = super().append(cache, tokens, lengths)
        tokens.zero_()
        return logits


@fault(
    clause="lifecycle.deterministic",
    shows="when a program runs twice",
    diagnosis="logits carry a bit of noise that differs from run to run",
    models=QUIET_MODELS,
)
class CoinToss(BuiltIn):
    """Logits carry a bit of noise that differs from run to run."""

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits = super().append(cache, tokens, lengths)
        return logits * (1 + 4 * torch.finfo(logits.dtype).eps * torch.rand(()).item())


@fault(
    clause="decode.no_drift",
    shows="after some dozens of steps",
    diagnosis="the error grows by a factor at every step",
    models=QUIET_MODELS,
)
class SlowDrift(BuiltIn):
    """The error grows by a factor at every step, from far below the floor."""

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits = super().append(cache, tokens, lengths)
        return logits * (1 + 0.01 * torch.finfo(logits.dtype).eps * 1.25**cache.length)


@fault(
    clause="decode.no_drift",
    shows="far into a run",
    diagnosis="one logit is NaN from some length on",
)
class NanLate(BuiltIn):
    """One logit is NaN, far into a run."""

    @torch.inference_mode()
    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits = super().append(cache, tokens, lengths)
        logits[0, -1, 7] += torch.nan if cache.length > 40 else 0
        return logits


@fault(clause="prefill.identity", shows="in every call", diagnosis="logits have the wrong shape")
class WrongShape(BuiltIn):
    """Logits have the wrong shape."""

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().append(cache, tokens, lengths)[..., :-1]


@fault(clause="prefill.identity", shows="in every call", diagnosis="logits have the wrong dtype")
class WrongDtype(BuiltIn):
    """Logits have another dtype than the implementation says."""

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().append(cache, tokens, lengths).bfloat16()


@fault(clause="decode.incremental", shows="from the second call on", diagnosis="a legal call raises")
class Raises(BuiltIn):
    """A legal call raises."""

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        if cache.length:
            raise RuntimeError("the cache is warm")
        return super().append(cache, tokens, lengths)


@fault(
    clause="forward.plain",
    shows="in the implementation's own full pass",
    diagnosis="the implementation's full pass is of another model",
    models=QUIET_MODELS,
)
class FullOfAnotherModel(BuiltIn):
    """The implementation's own pass without a cache sees the future."""

    def full(self, tokens: Tensor) -> Tensor:
        return super().full(tokens.flip(1)).flip(1)


@fault(
    clause="forward.positions",
    shows="in a call of several tokens",
    diagnosis="logits stand at the positions of other tokens",
    models=QUIET_MODELS,
)
class LogitsReversed(BuiltIn):
    """The logits of a call stand in reverse."""

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().append(cache, tokens, lengths).flip(1)


@fault(clause="adapter.answers", shows="in every call", diagnosis="append returns a tuple")
class ReturnsTuple(BuiltIn):
    """Append returns a tuple of logits and cache, as many models do."""

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        return (super().append(cache, tokens, lengths), cache)  # type: ignore[return-value]


@fault(
    clause="lifecycle.length", shows="after a rollback, a reset, a fork or a selection", diagnosis="length counts what was fed"
)
class LengthLies(BuiltIn):
    """Length counts the tokens that were fed since the cache was made, whatever has been taken back."""

    def append(self, cache: Concat, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits = super().append(cache, tokens, lengths)
        cache.__dict__["fed"] = cache.__dict__.get("fed", 0) + tokens.shape[1]
        return logits

    def length(self, cache: Concat) -> list[int]:
        return [cache.__dict__.get("fed", 0)] * len(super().length(cache))


@fault(clause="adapter.length", shows="in every call", diagnosis="length is one too long")
class LengthOneMore(BuiltIn):
    """Length counts one token too many."""

    def length(self, cache: Concat) -> list[int]:
        return [one + 1 for one in super().length(cache)]


@dataclass(frozen=True, eq=False)
class Spoiled:
    """A reference with a fault of its own: the oracle can be the wrong side."""

    plain: Reference

    @property
    def name(self) -> str:
        return self.plain.name

    @property
    def vocab_size(self) -> int:
        return self.plain.vocab_size

    def logits(self, tokens: Tensor) -> Tensor:
        raise NotImplementedError

    def to(self, dtype: torch.dtype) -> Spoiled:
        return replace(self, plain=self.plain.to(dtype))


@spoiled_reference(clause="reference.causal", diagnosis="the reference looks ahead")
class AcausalReference(Spoiled):
    """The reference's logits depend on the last token of the sequence."""

    def logits(self, tokens: Tensor) -> Tensor:
        found = self.plain.logits(tokens)
        return found + 0.01 * found[:, -1:]


@spoiled_reference(clause="reference.sensitive", diagnosis="the reference does not look back")
class ConstantReference(Spoiled):
    """The reference gives the logits of the token at hand, whatever came before."""

    def logits(self, tokens: Tensor) -> Tensor:
        return self.plain.logits(tokens.flatten()[:, None]).view(*tokens.shape, -1)


@spoiled_reference(clause="reference.deterministic", diagnosis="the reference is not deterministic")
class RandomReference(Spoiled):
    """The reference carries noise that differs from run to run."""

    def logits(self, tokens: Tensor) -> Tensor:
        found = self.plain.logits(tokens)
        return found + 1e-3 * torch.rand_like(found)


@spoiled_reference(clause="reference.noise", diagnosis="the reference is too noisy to judge by", models=QUIET_MODELS)
class LooseReference(Spoiled):
    """The reference gives something else for the same row in a batch."""

    def logits(self, tokens: Tensor) -> Tensor:
        return self.plain.logits(tokens) * (1 + 0.01 * (tokens.shape[0] - 1))

"""What a user gets wrong in an adapter of one's own is told in the user's terms, and is not blamed on the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import kvconform
import numpy as np
import pytest
import torch
from kvconform.harness.errors import KvconformError
from kvconform.harness.implementation import Implementation
from kvconform.reference.shipped import PlainReference, reference
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

LLAMA = reference("llama")
KEPT = Callable[[Tensor], Any]


class Mine(Implementation):
    """Right, and without a cache: it keeps the tokens."""

    name, vocab_size, max_length = "mine", 1200, 128

    def new_cache(self, rows: int = 1) -> list[Tensor]:
        return [torch.zeros(rows, 0, dtype=torch.int64)]

    def append(self, cache: list[Tensor], tokens: Tensor, lengths: Tensor | None = None) -> Any:
        cache[0] = torch.cat([cache[0], tokens], dim=1)
        return self.shown(LLAMA.logits(cache[0])[:, -tokens.shape[1] :])

    def shown(self, logits: Tensor) -> Any:
        """What a mistake makes of right logits."""
        return logits


def giving(change: Callable[[Tensor], Any], **about: Any) -> Implementation:
    return type("Mine", (Mine,), {"shown": lambda self, logits: change(logits), **about})()


def having(**about: Any) -> Implementation:
    return type("Mine", (Mine,), about)()


def raising(*given: Any) -> None:
    raise KeyError("layer.0")


class Padded(Mine):
    """Its model has a padded vocabulary."""

    def shown(self, logits: Tensor) -> Tensor:
        return torch.cat([logits, logits[..., :80]], dim=-1)


class WholeCache(Mine):
    def append(self, cache: list[Tensor], tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        super().append(cache, tokens)
        return LLAMA.logits(cache[0])


class Recording(Mine):
    def shown(self, logits: Tensor) -> Tensor:
        return logits.clone().requires_grad_()


class OneLongCount(Mine):
    def length(self, cache: list[Tensor]) -> int:
        return cache[0].shape[1] + 1


class CountsCalls(Mine):
    def new_cache(self, rows: int = 1) -> list[Any]:
        return [*super().new_cache(rows), 0]

    def append(self, cache: list[Any], tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        cache[1] += 1
        return super().append(cache, tokens)

    def length(self, cache: list[Any]) -> int:
        return cache[1]


MISTAKES: dict[str, Callable[[], Implementation]] = {
    "nothing returned": lambda: giving(lambda logits: None),
    "a tuple": lambda: giving(lambda logits: (logits, "cache")),
    "a list of tensors": lambda: giving(list),
    "lists of unequal length": lambda: giving(lambda logits: [[[0.5], [0.5, 1.5]]]),
    "a model's output": lambda: giving(lambda logits: SimpleNamespace(logits=logits)),
    "text": lambda: giving(lambda logits: "logits"),
    "no rows": lambda: giving(lambda logits: logits[0]),
    "no positions": lambda: giving(lambda logits: logits[:, -1]),
    "a padded vocabulary": Padded,
    "the whole cache": WholeCache,
    "another dtype": lambda: giving(Tensor.half),
    "another device": lambda: giving(lambda logits: logits.to("meta")),
    "numpy in float64": lambda: giving(lambda logits: logits.numpy().astype(np.float64)),
    "gradients": Recording,
    "new_cache raises": lambda: having(new_cache=raising),
    "append raises": lambda: giving(raising),
    "length raises": lambda: having(length=raising),
    "length one too long": OneLongCount,
    "length counts calls": CountsCalls,
    "shifted forward": lambda: giving(lambda logits: torch.cat([logits[:, 1:], logits[:, :1]], dim=1)),
    "shifted back": lambda: giving(lambda logits: torch.cat([logits[:, -1:], logits[:, :-1]], dim=1)),
    "reversed": lambda: giving(lambda logits: logits.flip(1)),
    "last everywhere": lambda: giving(lambda logits: logits[:, -1:].expand(logits.shape).contiguous()),
    "log-probabilities": lambda: giving(lambda logits: logits.log_softmax(-1)),
    "probabilities": lambda: giving(lambda logits: logits.softmax(-1)),
    "other weights": lambda: giving(lambda logits: logits * 1.01),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_the_users_terms(mistake: str, snapshot: SnapshotAssertion) -> None:
    run = kvconform.check(MISTAKES[mistake](), LLAMA, clause="decode.incremental", quiet=True)
    assert [case.verdict for case in run.cases] == ["inconclusive"]
    assert run.cases[0].reason == snapshot


def test_a_length_that_lies_gets_no_name_that_other_programs_refute() -> None:
    run = kvconform.check(OneLongCount(), LLAMA, clause="adapter.length", profile="quick", quiet=True)
    ((finding,),) = [case.findings for case in run.cases]
    assert finding.detail == "length says 2, and the cache should hold 1 tokens"
    assert finding.diagnosis is None or finding.diagnosis.sentence == "length is one too long"


class CountNotCropped(Mine):
    """A rollback that takes the tokens back and leaves the count."""

    def crop(self, cache: list[Any], length: int) -> None:
        cache[1:] = [cache[0].shape[1] - length]
        cache[0] = cache[0][:, :length]

    def length(self, cache: list[Any]) -> int:
        return cache[0].shape[1] + sum(cache[1:])


def test_a_count_that_a_rollback_leaves_is_a_fault_of_the_cache_and_hides_nothing_else() -> None:
    run = kvconform.check(CountNotCropped(), LLAMA, clause="branch.crop", profile="quick", quiet=True)
    assert [case.verdict for case in run.cases] == ["passed"]
    run = kvconform.check(CountNotCropped(), LLAMA, clause="lifecycle.length", profile="quick", quiet=True)
    assert [(case.verdict, [finding.op for finding in case.findings]) for case in run.cases] == [("failed", ["crop"])]


class Plain:
    """Has the methods and is no implementation."""

    vocab_size = 1200

    def new_cache(self, rows: int = 1) -> None: ...

    def append(self, cache: Any, tokens: Tensor, lengths: Any = None) -> None: ...


class NoPrecision:
    name, vocab_size = "mine", 1200
    logits = LLAMA.logits


@pytest.mark.parametrize(
    ("given", "reference", "told"),
    [
        (Plain(), LLAMA, "Plain is no kvconform.Implementation: derive its class from that one"),
        (Mine, LLAMA, "Mine is a class: give an object of it, as Mine()"),
        (Mine(), PlainReference, "the reference PlainReference is a class: give an object of it, as PlainReference()"),
        (
            Mine(),
            NoPrecision(),
            "the reference NoPrecision has no to(dtype): give an object with name",
        ),
    ],
)
def test_what_is_no_implementation_or_no_reference_is_told(given: Any, reference: Any, told: str) -> None:
    with pytest.raises(KvconformError) as error:
        kvconform.check(given, reference, clause="adapter.answers", quiet=True)
    assert str(error.value).startswith(told)


class OtherWeights:
    """A reference whose `to` draws its weights anew."""

    name, vocab_size = "drawn", 1200

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    def logits(self, tokens: Tensor) -> Tensor:
        return LLAMA.logits(tokens) * (1 + self.offset)

    def to(self, dtype: torch.dtype) -> OtherWeights:
        return OtherWeights(0.1 if dtype == torch.float64 else 0.0)


def test_a_reference_that_has_other_weights_in_float64_is_told_so() -> None:
    run = kvconform.check(Mine(), OtherWeights(), clause="reference.noise", profile="quick", quiet=True)
    assert run.counts["failed"] == 1
    assert run.cases[0].reason.endswith("its logits in float64 are others: does to(dtype) keep its weights?")


class BadRotation(Mine):
    """A conversion that has lost the base of the rotation."""

    def append(self, cache: list[Tensor], tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        from dataclasses import replace

        cache[0] = torch.cat([cache[0], tokens], dim=1)
        other = PlainReference("x", 1200, replace(LLAMA.config, rope_theta=500.0), LLAMA.parameters)  # type: ignore[call-arg]
        return other.logits(cache[0])[:, -tokens.shape[1] :]


def test_a_lost_rotation_base_shows_from_the_second_token_on(snapshot: SnapshotAssertion) -> None:
    run = kvconform.check(BadRotation(), LLAMA, clause="forward", quiet=True)
    (finding,) = [finding for case in run.cases for finding in case.findings]
    assert (finding.clause, finding.token) == ("forward.plain", 1)
    assert "tokens before 1 are right: look at what depends on the position" in finding.detail


def test_a_missing_mask_is_left_to_the_contract() -> None:
    """A prefill that looks ahead is no conversion: it is told by the clause about prefills."""

    class LooksAhead(Mine):
        def shown(self, logits: Tensor) -> Tensor:
            return logits + 0.1 * logits.mean(dim=1, keepdim=True)

    run = kvconform.check(LooksAhead(), LLAMA, clause="[fp][or][re]*", profile="quick", quiet=True)
    verdicts = {case.clause: str(case.verdict) for case in run.cases}
    assert (verdicts["prefill.identity"], verdicts["prefill.chunked"]) == ("failed", "failed")


def test_everything_behind_a_mistake_is_inconclusive_and_the_last_line_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    run = kvconform.check(MISTAKES["a tuple"](), LLAMA)
    assert run.counts["failed"] == 1
    assert run.counts["passed"] == run.counts["errored"] == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("s); the adapter is at fault, not the cache; judged by llama")


ATTRIBUTES: dict[str, Callable[[], Implementation]] = {
    "no append": lambda: type("Mine", (Implementation,), {"new_cache": Mine.new_cache, "vocab_size": 1200})(),
    "no new_cache": lambda: type("Mine", (Implementation,), {"append": Mine.append, "vocab_size": 1200})(),
    "dump without load": lambda: having(dump=lambda self, cache: b""),
    "append without tokens": lambda: having(append=lambda self, cache: None),
    "new_cache without rows": lambda: having(new_cache=lambda self: []),
    "no vocabulary": lambda: having(vocab_size=0),
    "no length": lambda: having(max_length=0),
    "dtype by name": lambda: having(dtype="float32"),
    "device by name": lambda: having(device="cuda"),
    "another array": lambda: having(array="jax"),
    "another side": lambda: having(ragged="both"),
    "landmarks": lambda: having(landmarks=(0, 4)),
    "refusals": lambda: having(refusals=("ValueError",)),
    "capabilities": lambda: having(capabilities=frozenset({"crop", "rewind"})),
}


@pytest.mark.parametrize("mistake", ATTRIBUTES)
def test_what_it_says_of_itself_is_checked_first(mistake: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(KvconformError) as told:
        kvconform.check(ATTRIBUTES[mistake](), LLAMA, quiet=True)
    assert str(told.value) == snapshot


def test_what_cannot_be_taken_to_a_worker_is_told(snapshot: SnapshotAssertion) -> None:
    engine = Mine()
    engine.hook = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(KvconformError) as told:
        kvconform.check(engine, LLAMA, isolate=True, quiet=True)
    assert str(told.value).startswith("Mine cannot be sent to a worker (")
    assert str(told.value).endswith("): leave isolation out, or name it by a target")


class Numpy(Mine):
    """Tokens come as numpy, and logits go as numpy."""

    array = "numpy"

    def new_cache(self, rows: int = 1) -> list[Any]:
        return [np.zeros((rows, 0), dtype=np.int64)]

    def append(self, cache: list[Any], tokens: Any, lengths: Any = None) -> Any:
        assert isinstance(tokens, np.ndarray)
        cache[0] = np.concatenate([cache[0], tokens], axis=1)
        return LLAMA.logits(torch.from_numpy(cache[0]))[:, -tokens.shape[1] :].numpy()

    def full(self, tokens: Any) -> Any:
        assert isinstance(tokens, np.ndarray)
        return LLAMA.logits(torch.from_numpy(tokens)).numpy()


class Capsule:
    """An array that speaks nothing but DLPack."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **about: Any) -> Any:
        return self.tensor.__dlpack__(**about)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize(
    "make", [Numpy, lambda: giving(Capsule), lambda: giving(Tensor.tolist)], ids=["numpy", "DLPack", "lists"]
)
@pytest.mark.parametrize("clauses", ["[afp]*.[apil]*", "lifecycle.[in]*"])
def test_arrays_of_other_kinds_are_judged(make: Callable[[], Implementation], clauses: str) -> None:
    run = kvconform.check(make(), LLAMA, clause=clauses, profile="quick", quiet=True)
    assert {str(case.verdict) for case in run.cases} <= {"passed", "unsupported"}
    assert run.counts["passed"] >= 2


def test_memory_is_shared_so_that_what_is_overwritten_shows() -> None:
    class Aliased(Numpy):
        def new_cache(self, rows: int = 1) -> list[Any]:
            return [*super().new_cache(rows), np.zeros((rows, 200, 1200), dtype=np.float32)]

        def append(self, cache: Sequence[Any], tokens: Any, lengths: Any = None) -> Any:
            held = [cache[0]]
            logits = super().append(held, tokens)
            cache[0] = held[0]  # type: ignore[index]
            tokens[:] = 0
            cache[1][:, : logits.shape[1]] = logits
            return cache[1][:, : logits.shape[1]]

    run = kvconform.check(Aliased(), LLAMA, clause="lifecycle.[in]*", profile="quick", quiet=True)
    assert {case.clause: str(case.verdict) for case in run.cases} == {
        "lifecycle.inputs_untouched": "failed",
        "lifecycle.no_aliasing": "failed",
    }

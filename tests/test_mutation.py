"""The check of the check: every fault is caught, every control passes, and whatever is not so is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from kvconform.harness import registry
from kvconform.harness.clause import Clause
from kvconform.harness.errors import AdapterError, KvconformError, Unsupported
from kvconform.harness.fault import Fault, Kind
from kvconform.harness.implementation import Implementation
from kvconform.harness.judging import PROFILES, Profile
from kvconform.harness.mutation import Base, Mutant, Outcome, exit_code, judgement, mutants
from kvconform.harness.mutation_run import chosen_faults
from kvconform.harness.oracle import Oracle
from kvconform.harness.run import Run, header
from kvconform.harness.tolerance import SCALE_ULPS
from kvconform.harness.trial import Verdict
from kvconform.implementations.builtin import BuiltIn, model
from kvconform.implementations.policy import Concat
from kvconform.reference.shipped import reference
from kvconform.reports.as_text import as_text
from kvconform.reports.headline import headline
from torch import Tensor

FEW = Profile("few", examples=2)
HEADER = header("mutate", ["mine"], "few", 0)
CLAUSES = [
    clause
    for clause in registry.clauses()
    if clause.id in ("forward.plain", "prefill.identity", "decode.incremental", "limit.tokens")
]


def base(name: str) -> Base:
    plain = reference(name).to(torch.float64)
    return Base(f"builtin:{name}", name, BuiltIn(model(name).to(torch.float64), Concat), Oracle(plain, torch.float64))


GPT, LLAMA = base("gpt"), base("llama")
CATALOGUE = registry.faults()


def run(
    faults: Fault | Sequence[Fault], bases: Sequence[Base] = (GPT,), clauses: Sequence[Clause] = CLAUSES
) -> tuple[list[Mutant], list[str], int]:
    """What became of each fault on each model, what is wrong with that, and the exit code."""
    listed = [faults] if isinstance(faults, Fault) else faults
    found = list(mutants(bases, listed, clauses, FEW))
    return found, judgement(found), exit_code(found)


def outcomes(found: Sequence[Mutant]) -> list[Outcome]:
    return [mutant.outcome for mutant in found]


POS_ZERO = CATALOGUE["pos_zero"]
NOTHING = Fault("nothing", Kind.FAULT, "It does nothing.", inject=lambda target: target, clause="decode.incremental")


def on(name: str, there: Fault) -> Callable[[Implementation], Implementation]:
    """Inject into one model, and leave the others as they are."""

    def inject(target: Implementation) -> Implementation:
        assert isinstance(target, BuiltIn)
        return there.inject(target) if target.model.name == name else target

    return inject


class Whisper(BuiltIn):
    """Off by less than a bug and more than rounding."""

    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits = super().append(cache, tokens, lengths)
        return logits + 3 * SCALE_ULPS * torch.finfo(logits.dtype).eps * logits.abs().max()


class Dies(BuiltIn):
    def append(self, cache: Any, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        raise AdapterError("the process has ended")


def built(kind: type[BuiltIn]) -> Callable[[Implementation], Implementation]:
    def inject(target: Implementation) -> Implementation:
        assert isinstance(target, BuiltIn)
        return kind(target.model, target.policy)

    return inject


def nowhere(target: Implementation) -> Implementation:
    raise Unsupported("for models with wings only")


def test_a_fault_is_caught_by_its_clause() -> None:
    found, wrong, code = run(POS_ZERO, [GPT, LLAMA])
    assert [(mutant.target, mutant.outcome, mutant.clause) for mutant in found] == [
        ("builtin:gpt", Outcome.CAUGHT, "decode.incremental"),
        ("builtin:llama", Outcome.CAUGHT, "decode.incremental"),
    ]
    assert all(mutant.examples == 1 for mutant in found)
    assert (wrong, code) == ([], 0)


def test_a_control_passes_every_clause() -> None:
    found, wrong, code = run([CATALOGUE["cat_order"], CATALOGUE["concat"]])
    assert outcomes(found) == [Outcome.PASSED, Outcome.PASSED]
    assert all((mutant.examples or 0) >= len(CLAUSES) for mutant in found)
    assert (wrong, code) == ([], 0)


# The three ways in which the check, or the catalogue, is wrong.


def test_a_fault_that_only_another_family_catches_survives() -> None:
    found, wrong, code = run(replace(POS_ZERO, clause="prefill.identity"))
    assert outcomes(found) == [Outcome.SURVIVED]
    assert wrong == [
        "pos_zero survives on builtin:gpt: caught by decode.incremental only, which is not of the family that must catch it"
    ]
    assert code == 1


def test_a_fault_that_moves_logits_and_that_no_clause_catches_survives() -> None:
    whisper = Fault("whisper", Kind.FAULT, "Very little.", inject=built(Whisper), clause="decode.incremental")
    found, wrong, code = run(whisper, clauses=[clause for clause in CLAUSES if clause.family != "prefill"])
    assert outcomes(found) == [Outcome.SURVIVED]
    assert wrong == ["whisper survives on builtin:gpt: it moves logits, and no clause says so"]
    assert code == 1


@pytest.mark.parametrize("kind", [Kind.CONTROL, Kind.CORRECT])
def test_what_is_right_and_is_flagged(kind: Kind) -> None:
    found, wrong, code = run(replace(POS_ZERO, kind=kind))
    assert outcomes(found) == [Outcome.FLAGGED]
    assert found[0].detail
    assert wrong == [f"{kind} pos_zero is flagged on builtin:gpt by decode.incremental"]
    assert code == 1


def test_a_fault_that_is_equivalent_on_every_model_is_no_fault() -> None:
    found, wrong, code = run(NOTHING, [GPT, LLAMA])
    assert outcomes(found) == [Outcome.EQUIVALENT, Outcome.EQUIVALENT]
    assert wrong == ["nothing is equivalent on every model: it changes nothing, so it is no fault"]
    assert code == 1


def test_so_is_one_that_is_declared_so_on_every_model() -> None:
    found, wrong, code = run(replace(NOTHING, equivalent={"gpt": "it is empty", "llama": "so it is here"}), [GPT, LLAMA])
    assert outcomes(found) == [Outcome.PROVED, Outcome.PROVED]
    assert wrong == ["nothing is equivalent on every model: it changes nothing, so it is no fault"]
    assert code == 1


# A fault that cannot show on one of the models.

HALF = replace(NOTHING, name="half", inject=on("llama", POS_ZERO))


def test_a_cell_that_is_declared_equivalent_is_proved_and_left_out() -> None:
    found, wrong, code = run(replace(HALF, equivalent={"gpt": "gpt has no use for it"}), [GPT, LLAMA])
    assert outcomes(found) == [Outcome.PROVED, Outcome.CAUGHT]
    assert found[0].detail == "gpt has no use for it"
    assert (wrong, code) == ([], 0)


def test_a_cell_that_is_equivalent_and_not_declared_is_named() -> None:
    found, wrong, code = run(HALF, [GPT, LLAMA])
    assert outcomes(found) == [Outcome.EQUIVALENT, Outcome.CAUGHT]
    assert wrong == ["half changes nothing on builtin:gpt, and the catalogue does not say why"]
    assert code == 1


def test_a_declaration_that_is_wrong_is_named() -> None:
    found, wrong, code = run(replace(POS_ZERO, equivalent={"gpt": "it cannot show"}))
    assert outcomes(found) == [Outcome.SURVIVED]
    assert len(wrong) == 1
    assert wrong[0].startswith("pos_zero survives on builtin:gpt: declared equivalent (it cannot show), and it shows: ")
    assert code == 1


def test_where_a_fault_does_not_apply_nothing_is_said_of_it() -> None:
    rope = CATALOGUE["limit_off_by_one"]
    found, wrong, code = run([rope, POS_ZERO], clauses=registry.clauses())
    assert outcomes(found) == [Outcome.NOT_APPLICABLE, Outcome.CAUGHT]
    assert found[0].detail
    assert (wrong, code) == ([], 0)


def test_where_nothing_applies_nothing_ran() -> None:
    found, wrong, code = run(replace(NOTHING, inject=nowhere), [GPT, LLAMA])
    assert outcomes(found) == [Outcome.NOT_APPLICABLE, Outcome.NOT_APPLICABLE]
    assert [mutant.detail for mutant in found] == 2 * ["for models with wings only"]
    assert (wrong, code) == ([], 2)
    assert exit_code([]) == 2
    told = "No fault could be tried, so nothing is proved: for models with wings only"
    text = as_text(Run(HEADER, mutants=tuple(found)), {})
    assert told in text
    assert "0 of 1 fault could be tried; 2 cells: 2 not applicable (" in text.splitlines()[-1]
    assert headline(Run(HEADER, mutants=tuple(found))) == (Verdict.INCONCLUSIVE, told)


def test_where_some_faults_do_not_apply_it_is_said_how_many_do() -> None:
    found, wrong, code = run([POS_ZERO, replace(NOTHING, inject=nowhere), replace(NOTHING, kind=Kind.CONTROL)])
    assert (wrong, code) == ([], 0)
    assert "1 of 2 faults could be tried; 3 cells: 1 caught, 1 passed, 1 not applicable" in as_text(
        Run(HEADER, mutants=tuple(found)), {}
    )
    assert headline(Run(HEADER, mutants=tuple(found)))[1].startswith("Every fault that could be tried is caught")


def test_controls_alone_are_no_want_of_faults() -> None:
    assert run(replace(NOTHING, kind=Kind.CONTROL))[1:] == ([], 0)


@pytest.mark.parametrize("kind", [Kind.FAULT, Kind.CONTROL])
def test_what_broke_in_the_adapter_was_neither_caught_nor_flagged(kind: Kind) -> None:
    found, wrong, code = run([replace(NOTHING, kind=kind, inject=built(Dies)), POS_ZERO])
    assert outcomes(found) == [Outcome.ERRORED, Outcome.CAUGHT]
    assert found[0].detail == "the adapter: the process has ended"
    assert (wrong, code) == ([], 2)


def test_a_survivor_weighs_more_than_an_error() -> None:
    *_, code = run([replace(NOTHING, name="dies", inject=built(Dies)), replace(POS_ZERO, clause="prefill.identity")])
    assert code == 1


def test_everything_that_is_wrong_has_a_line() -> None:
    flagged, survivor = (
        replace(POS_ZERO, name="careful", kind=Kind.CONTROL),
        replace(POS_ZERO, name="hidden", clause="prefill.identity"),
    )
    _, wrong, _ = run([NOTHING, flagged, survivor, POS_ZERO])
    assert len(wrong) == 3
    for name in ("nothing", "careful", "hidden"):
        assert sum(name in line for line in wrong) == 1
    assert all(len(line.splitlines()) == 1 for line in wrong)


def test_every_fault_meets_every_model_and_is_told_before() -> None:
    began: list[str] = []
    found = list(mutants([GPT, LLAMA], [POS_ZERO, NOTHING], CLAUSES[-1:], FEW, began.append))
    assert began == [f"{name} on builtin:{model}" for name in ("pos_zero", "nothing") for model in ("gpt", "llama")]
    assert len({mutant.id for mutant in found}) == 4


def test_faults_are_chosen_by_a_pattern() -> None:
    assert [fault.name for fault in chosen_faults("pos_zero")] == ["pos_zero"]
    assert {"pos_zero", "pos_minus_3"} <= {fault.name for fault in chosen_faults("pos_*")}
    with pytest.raises(KvconformError, match="no fault matches 'wings'"):
        chosen_faults("wings")


REDUCED = replace(PROFILES["quick"], examples=3)
RIGHT = [listed for listed in CATALOGUE.values() if listed.kind is not Kind.FAULT]
WRONG = [listed for listed in CATALOGUE.values() if listed.kind is Kind.FAULT]


def test_the_real_catalogue_has_nothing_wrong_on_the_shipped_models() -> None:
    """Every fault under the whole contract; what is right under a part of it, for the time that the rest takes."""
    found = list(mutants([GPT, LLAMA], WRONG, registry.clauses(), REDUCED))
    found += mutants([GPT], RIGHT, CLAUSES, REDUCED)
    assert judgement(found) == []
    assert exit_code(found) == 0
    assert {mutant.fault for mutant in found} == CATALOGUE.keys()
    for mutant in found:
        listed = CATALOGUE[mutant.fault]
        if mutant.outcome is Outcome.CAUGHT:
            assert mutant.clause.partition(".")[0] == listed.clause_family
        elif set(listed.models) & {"gpt", "llama"} and mutant.target == "builtin:gpt":
            assert mutant.outcome in (Outcome.PASSED, Outcome.PROVED, Outcome.NOT_APPLICABLE)

"""Implementations by name: correct ones, controls that look wrong and are right, and faults with the clause that must
catch them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .implementation import Implementation
from .oracle import Reference
from .program import Program


class Kind(StrEnum):
    CORRECT = "correct"
    CONTROL = "control"
    FAULT = "fault"


@dataclass(frozen=True)
class Form:
    """One form that a fault can take: another offset, another layer, or another way to make the same mistake.

    `diagnosis` says what is wrong, the parameter included; `parameter` is its value where there is one.
    """

    fault: str
    diagnosis: str
    inject: Callable[[Implementation], Implementation]
    parameter: str = ""
    scenario: str = "decode"
    clause: str = ""


def no_forms(target: Implementation, program: Program) -> Iterable[Form]:
    return ()


@dataclass(frozen=True)
class Fault:
    """A named way to keep a cache. A fault is right but for one short override.

    `family` groups faults; `clause` must catch this one (any clause of its family counts); `shows` is the condition
    under which it shows at all; `diagnosis` what a finding must be named; `reports` the public reports that it models.
    `equivalent` tells, for a model, why the fault cannot show there. `scenario` is the use of a cache by which the
    failure table shows it.
    """

    name: str
    kind: Kind
    sentence: str
    inject: Callable[[Implementation], Implementation]
    """The same model with this in place of its own way. Raises `Unsupported` where the model has no use for it."""
    spoil: Callable[[Reference], Reference] | None = None
    """For a fault of the reference: the reference with it."""
    override: str = ""
    family: str = ""
    clause: str = ""
    shows: str = ""
    diagnosis: str = ""
    reports: tuple[str, ...] = ()
    equivalent: Mapping[str, str] = field(default_factory=dict[str, str])
    scenario: str = "decode"
    models: tuple[str, ...] = ()
    """Built-in models that have a use for it."""
    others: Callable[[Implementation, Program], Iterable[Form]] = no_forms
    """Further forms that it can take in a target, with the values that a program's figures suggest."""

    def forms(self, target: Implementation, program: Program) -> Iterable[Form]:
        """The fault as it stands in the catalogue, then its other forms."""
        yield Form(self.name, self.diagnosis, self.inject, scenario=self.scenario, clause=self.clause)
        yield from self.others(target, program)

    @property
    def clause_family(self) -> str:
        return self.clause.partition(".")[0]

"""Implementations by name: correct ones, controls that look wrong and are right, and faults with the clause that must
catch them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .implementation import Implementation
from .oracle import Reference


class Kind(StrEnum):
    CORRECT = "correct"
    CONTROL = "control"
    FAULT = "fault"


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

    @property
    def clause_family(self) -> str:
        return self.clause.partition(".")[0]

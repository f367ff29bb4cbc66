"""Lists of what there is: clauses, targets, faults."""

from __future__ import annotations

from collections.abc import Callable

from tabulate import tabulate

from ..harness import registry
from ..harness.fault import Kind


def clauses() -> str:
    lines = [(clause.id, clause.sentence, ", ".join(clause.needs) or "—") for clause in registry.clauses()]
    return tabulate(lines, ("clause", "sentence", "needs"), tablefmt="simple")


def targets() -> str:
    lines = [(one.target, one.kind, one.sentence) for scheme in registry.schemes().values() for one in scheme.listing()]
    return tabulate(lines, ("target", "kind", "what it is"), tablefmt="simple")


def faults() -> str:
    lines = [
        (fault.name, fault.family, fault.clause, fault.shows, ", ".join(fault.reports) or "—")
        for fault in registry.faults().values()
        if fault.kind is Kind.FAULT
    ]
    return tabulate(lines, ("fault", "family", "caught by", "shows", "reported in"), tablefmt="simple")


def fault_overrides() -> str:
    """Every fault as the override that it is."""
    return "\n\n".join(
        f"# {fault.name}: {fault.sentence}\n{fault.override}"
        for fault in registry.faults().values()
        if fault.kind is Kind.FAULT
    )


LISTINGS: dict[str, Callable[[], str]] = {"clauses": clauses, "targets": targets, "faults": faults}

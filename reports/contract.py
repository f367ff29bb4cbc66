"""The contract as a page: `python -m kvconform.reports.contract > docs/contract.md`."""

from __future__ import annotations

from itertools import groupby

from ..harness import registry
from ..harness.clause import Clause
from ..harness.fault import Fault, Kind
from ..harness.trial import Judged

HEAD = """# The contract

A decoder language model with a key/value cache must give, after any legal sequence of cache operations, the logits that a
plain forward pass over the same tokens gives, up to rounding. Each clause below is one sentence of that promise. This page
is generated from the clauses themselves: `python -m kvconform.reports.contract > docs/contract.md`.

A clause is asked by programs: the contract's own, and, where it has a mix, ones that Hypothesis draws. Faults named beside
a clause are the ones that the mutation check demands to be caught by its family; `kvconform list faults --override` prints
each as the few lines that it is.
"""


def render_contract() -> str:
    """The page."""
    faults = registry.faults().values()
    parts = [HEAD]
    for family, clauses in groupby(registry.clauses(), key=lambda clause: clause.family):
        parts.append(f"## {family}\n")
        parts += [_clause(clause, [fault for fault in faults if fault.clause == clause.id]) for clause in clauses]
    return "\n".join(parts).rstrip() + "\n"


def _clause(clause: Clause, faults: list[Fault]) -> str:
    killed = ", ".join(f"`{fault.name}`" for fault in faults if fault.kind is Kind.FAULT) or "those of its family"
    return "\n".join(
        (
            f"### {clause.id}\n",
            f"**{clause.sentence}**\n",
            f"{clause.why}\n",
            f"- needs: {', '.join(clause.needs) or 'nothing'}",
            f"- programs: {_programs(clause)}",
            f"- tolerance: {_tolerance(clause)}",
            f"- must catch: {killed}\n",
        )
    )


def _programs(clause: Clause) -> str:
    if clause.mix is None:
        return "the contract's own"
    ops = ", ".join(kind for kind, _ in clause.mix.ops)
    ragged = ", ragged where rows may be" if clause.mix.ragged else ""
    return f"the contract's own, and drawn ones of {ops}; up to {clause.mix.rows} rows and {clause.mix.caches} caches{ragged}"


def _tolerance(clause: Clause) -> str:
    if clause.check.__name__ not in ("logits_match", "does_not_drift"):
        return (clause.check.__doc__ or "").splitlines()[0]
    if clause.judged is Judged.FRESH:
        return "exact where attention gets a plain pass's operands, else measured rounding"
    return "a published bound in float32 where there is one, else measured rounding; ratio for noisy arithmetic"


if __name__ == "__main__":
    print(render_contract(), end="")

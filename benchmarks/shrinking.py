"""How small shrunk programs are: `python benchmarks/shrinking.py > docs/evidence/shrinking.md`.

Every fault on every model where it shows, by the clause that must catch it; the limit family aside, whose programs are as
long as the limit.
"""

from __future__ import annotations

import sys

import torch
from kvconform.harness import registry
from kvconform.harness.fault import Kind
from kvconform.harness.judging import PROFILES, judge_clause
from kvconform.harness.oracle import Oracle
from kvconform.harness.program import Program
from kvconform.harness.trial import Subject

OPS, TOKENS = 4, 12


def main() -> int:
    torch.set_num_threads(1)
    clauses = {clause.id: clause for clause in registry.clauses()}
    oracles: dict[str, Oracle] = {}
    sizes: list[tuple[int, int, str]] = []
    for fault in registry.faults().values():
        if fault.kind is not Kind.FAULT or fault.clause_family in ("limit", "reference"):
            continue
        for model in fault.models:
            if model == "noisy" or model in fault.equivalent:
                continue
            found = registry.resolve(f"builtin:{model}/{fault.name}")
            oracle = oracles.setdefault(model, Oracle(found.reference, torch.float64))
            subject = Subject(found.implementation.to(torch.float64), oracle)
            case = judge_clause(clauses[fault.clause], subject, model, PROFILES["quick"])
            for finding in case.findings[:1]:
                program = Program.parse(finding.program)
                sizes.append((len(program), program.tokens, f"| {fault.name} | {model} | {finding.program[:140]} |"))
    small = sum(ops <= OPS and tokens <= TOKENS for ops, tokens, _ in sizes)
    print(f"# How small shrunk programs are\n\nMade by `python benchmarks/shrinking.py`; torch {torch.__version__}.\n")
    print(f"{small} of {len(sizes)} ({small / len(sizes):.1%}) have at most {OPS} ops and {TOKENS} tokens. The others:\n")
    print("| fault | model | program |\n|---|---|---|")
    for ops, tokens, line in sizes:
        if ops > OPS or tokens > TOKENS:
            print(line)
    return 0 if small >= 0.9 * len(sizes) else 1


if __name__ == "__main__":
    sys.exit(main())

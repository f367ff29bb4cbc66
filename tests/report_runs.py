"""Runs that the tests of reports share: one of each kind, a large one, and one whose every text is hostile."""

from __future__ import annotations

from dataclasses import replace

from kvconform.harness.diagnosis.diagnosis import Confidence, Diagnosis
from kvconform.harness.fault import Kind
from kvconform.harness.mutation import Mutant, Outcome
from kvconform.harness.results import Case, Cell, Finding
from kvconform.harness.run import Header, Run
from kvconform.harness.sweeps.grouping import Group, grouped
from kvconform.harness.table import Danger, TableRow
from kvconform.harness.trial import Verdict

HOSTILE = "<script>alert(1)</script>\"' onclick=x\n\t\x1b[31m\x00\u202eevil\u2066 שלום &amp; {{ 7 * 7 }} --></style>\ud800"


def told(text: str) -> Diagnosis:
    """A diagnosis that says this text wherever it can."""
    return Diagnosis(Confidence.CERTAIN, text, text, text, text, None, (text,), (text,), (text,), text)


FINDING = Finding(
    id="ef75664a44",
    target="builtin:gpt/pos_zero",
    clause="decode.incremental",
    dtype="float32",
    divergence="logits",
    op="append",
    program="append a 1; fork a b; append b 2",
    found_in="append a 379 511 114; append a 17 552",
    step=2,
    token=1,
    detail="max |Δlogit| 1.62, allowed 0.0001 (absolute 0.0001)",
    difference=1.617,
    allowed=1e-4,
    floor=1.3e-6,
    tolerance="absolute 0.0001",
    curve=((0, 0.0), (1, 1.617)),
    occurrences=16,
    diagnosis=Diagnosis(Confidence.CERTAIN, "pos_zero", "positions restart at 0 on every call", basis="its logits match"),
)
FAILED = Case(FINDING.target, FINDING.clause, "float32", Verdict.FAILED, FINDING.detail, 18, 18, findings=(FINDING,))
KNOWN = replace(FAILED, verdict=Verdict.KNOWN, findings=(replace(FINDING, known="it is listed: entry 1"),))
PASSED = Case("builtin:gpt/concat", "decode.incremental", "float32", Verdict.PASSED, "", 18, 18, 300, 0, 1.2e-6, 1e-4)
ROW = TableRow(
    target="builtin:gpt/no_mask",
    kind=Kind.FAULT,
    sentence="A call of several tokens sees what follows.",
    scenario="chunks",
    verdict=Verdict.FAILED,
    first_token=0,
    first_call=0,
    prefill=8.4,
    incremental=0.0,
    flips=7,
    positions=33,
    generated=48,
    changed=2,
    first_changed=1,
    text="a<xd",
    reference_text="abcd",
    error="",
    diagnosis="—",
    danger=Danger.HIGH,
    clause="prefill.identity",
    override="class NoMask(Concat):\n    def visible(self, count: int) -> None:\n        return None",
)
CAUGHT = Mutant("builtin:gpt", "no_mask", Kind.FAULT, "visibility", "prefill.identity", Outcome.CAUGHT, "prefill.identity", 2)


def run(*cases: Case, command: str = "check", **parts: object) -> Run:
    header = Header(command, ("builtin:gpt/concat",), "quick", 7, versions={"kvconform": "0.1.0", "torch": "2.15.0"})
    return replace(Run(header, cases, seconds=1.25), **parts)  # pyright: ignore[reportArgumentType]


def many_findings(targets: int, clauses: int, each: int) -> Run:
    """Every implementation fails the first four clauses, each by `each` programs."""
    curve = tuple((token, 10.0 ** -(token % 7)) for token in range(40))
    cases = [
        Case(
            f"hf:some/model-{target}?cache=static",
            f"family{clause % 8}.clause_{clause}",
            "float32",
            Verdict.FAILED if clause < 4 else Verdict.PASSED,
            positions=900,
            largest=1.2e-6,
            allowed=1e-4,
            findings=tuple(
                replace(
                    FINDING,
                    curve=curve,
                    target=f"hf:some/model-{target}?cache=static",
                    clause=f"family{clause % 8}.clause_{clause}",
                    program=f"append a 1; fork a b; append b {clause + 1} {number + 1}",
                )
                for number in range(each * (clause < 4))
            ),
        )
        for target in range(targets)
        for clause in range(clauses)
    ]
    return run(*cases, command="sweep")


def swept(of: Run) -> Run:
    """The same as a sweep, with its matrix and its causes."""
    cells = tuple(Cell(target, "float32") for target in dict.fromkeys(case.target for case in of.cases))
    return replace(of, cells=cells, groups=tuple(grouped(cells, of.cases)))


def hostile() -> Run:
    """Every text that can come from a target or a plugin, at its worst."""
    finding = replace(
        FINDING,
        **dict.fromkeys(
            ("target", "clause", "dtype", "divergence", "op", "program", "found_in", "detail", "tolerance", "id"),
            HOSTILE,
        ),  # pyright: ignore[reportArgumentType]
        diagnosis=told(HOSTILE),
    )
    failed = Case(HOSTILE, HOSTILE, HOSTILE, Verdict.FAILED, HOSTILE, findings=(finding,))
    texts = ("target", "sentence", "text", "reference_text", "error", "diagnosis", "clause", "override")
    return Run(
        Header(HOSTILE, (HOSTILE,), HOSTILE, 0, versions={HOSTILE: HOSTILE, "kvconform": HOSTILE}),
        cases=(failed, replace(failed, verdict=Verdict.ERRORED, findings=()), replace(PASSED, target=HOSTILE)),
        rows=(replace(ROW, **dict.fromkeys(texts, HOSTILE)),),  # pyright: ignore[reportArgumentType]
        mutants=(Mutant(HOSTILE, HOSTILE, Kind.FAULT, HOSTILE, HOSTILE, Outcome.SURVIVED, HOSTILE, 1, HOSTILE),),
        problems=(HOSTILE,),
    )


def hostile_sweep() -> Run:
    """The same as a sweep of one cell with one cause; its column is hostile too."""
    of, column = hostile(), HOSTILE.replace("&", "")
    name = f"{HOSTILE.replace('?', '')}?x={column}"
    cases = tuple(
        replace(case, target=name, findings=tuple(replace(found, target=name) for found in case.findings)) for case in of.cases
    )
    cells = (Cell(name, HOSTILE, {HOSTILE: HOSTILE}), Cell("another?x=y", HOSTILE))
    groups = (Group(cases[0].findings[0], HOSTILE, (cells[0].key,), (HOSTILE, HOSTILE), (HOSTILE,)),)
    return replace(of, cases=cases, rows=(), mutants=(), cells=cells, groups=groups)


RUNS = {
    "empty": run(),
    "check": run(FAILED, PASSED, replace(PASSED, verdict=Verdict.UNSUPPORTED, clause="branch.crop", reason="no crop")),
    "table": run(FAILED, command="table", rows=(ROW, replace(ROW, target="builtin:gpt/b"))),
    "known": run(KNOWN, PASSED),
    "sweep": swept(many_findings(targets=3, clauses=6, each=1)),
    "mutate": run(command="mutate", mutants=(CAUGHT, replace(CAUGHT, outcome=Outcome.NOT_APPLICABLE))),
    "hostile": hostile(),
    "hostile sweep": hostile_sweep(),
}

"""Failures of a sweep by cause: one bug shows in many cells, and in a cell in many clauses.

In a cell, a failure is explained by one of an earlier clause that needs less for the same: the same kind of call, no
operation more, not later. What is left is grouped by what happened, over all cells, as far as something that the failing
cells have in common sets them apart from those that pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from ..errors import KvconformError
from ..history import histories
from ..program import Append, Program
from ..results import Case, Cell, Finding, content_id
from ..scope import NEEDS
from ..trial import Verdict

SHARE = 0.8
"""Of the cells with a tag that could show a failure, how many have to for the tag to be named as what they have in common."""
SEVERAL = 3
"""Models at least over which a tag has to reach; below, the model is what is named."""

NUMBER = re.compile(r"0x[0-9a-fA-F]+|(?<![A-Za-z_])\d+(?:\.\d+)?(?:e[+-]?\d+)?")
LOGITS = ("logits", "not finite")
ABOUT = {kind: kind for kind in NEEDS.values()} | {"speculative": "crop", "crop_after_wrap": "crop"}
"""Clauses that are about one operation, by the second part of their id."""


@dataclass(frozen=True)
class Group:
    """Failures with one cause. `common` is what its cells have in common, `finding` the example, of the cheapest cell;
    `clauses` are those that fail for it, `also` those whose failures it explains."""

    finding: Finding
    common: str
    cells: tuple[str, ...]
    clauses: tuple[str, ...]
    also: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return content_id("group", self.finding.id, self.common)

    @property
    def title(self) -> str:
        """What happened, in a few words."""
        finding = self.finding
        if finding.divergence in LOGITS:
            what = "logits deviate" if finding.divergence == "logits" else "logits are not finite"
            return f"{what}: {finding.clause}"
        return f"{finding.op} {finding.divergence}: {finding.clause}"


@dataclass(frozen=True)
class Reason:
    """Cells and clauses that were not judged for one reason; numbers in it are those of the first."""

    verdict: Verdict
    reason: str
    cells: tuple[str, ...]
    clauses: tuple[str, ...]
    cases: int


def plain(text: str) -> str:
    """An error's text without what changes from cell to cell: numbers and addresses."""
    return NUMBER.sub("#", text)


def grouped(cells: Iterable[Cell], cases: Iterable[Case]) -> list[Group]:
    """The causes of all failures that are not known, those in most cells first."""
    by_key = {cell.key: cell for cell in cells}
    asked: dict[str, dict[str, Case]] = {}
    for case in cases:
        asked.setdefault(f"{case.target} {case.dtype}", {})[case.clause] = case
    alike: dict[tuple[str, ...], list[_Root]] = {}
    for key, by_clause in asked.items():
        for root in _roots(by_key[key], by_clause.values()):
            alike.setdefault(_symptom(root.finding), []).append(root)
    groups = [
        _group(common, some)
        for roots in alike.values()
        for common, some in _apart(
            roots, [by_key[key] for key, some in asked.items() if _could_show(some, roots[0])], list(by_key.values())
        )
    ]
    return sorted(groups, key=lambda group: -len(group.cells))


def merged(groups: Iterable[Group]) -> list[Group]:
    """Groups whose shrunk programs show that they are one: the same ops in the same cells' company, the same outcome."""
    same: dict[tuple[str, ...], Group] = {}
    for group in groups:
        finding = group.finding
        key = (group.common, finding.divergence, finding.op, _shape(finding.program), _detail(finding))
        if (first := same.get(key)) is None:
            same[key] = group
            continue
        same[key] = replace(
            first,
            cells=tuple(dict.fromkeys((*first.cells, *group.cells))),
            clauses=tuple(dict.fromkeys((*first.clauses, *group.clauses))),
            also=tuple(one for one in dict.fromkeys((*first.also, *group.also)) if one not in first.clauses),
        )
    return sorted(same.values(), key=lambda group: -len(group.cells))


def reasons(cases: Iterable[Case]) -> list[Reason]:
    """Why cases were not judged, each reason once, by verdict and how often."""
    found: dict[tuple[Verdict, str], list[Case]] = {}
    for case in cases:
        if case.verdict in (Verdict.ERRORED, Verdict.INCONCLUSIVE, Verdict.UNSUPPORTED, Verdict.KNOWN):
            found.setdefault((case.verdict, plain(case.reason)), []).append(case)
    order = (Verdict.ERRORED, Verdict.INCONCLUSIVE, Verdict.KNOWN, Verdict.UNSUPPORTED)
    made = [
        Reason(
            verdict,
            some[0].reason,
            tuple(dict.fromkeys(f"{case.target} {case.dtype}" for case in some)),
            tuple(dict.fromkeys(case.clause for case in some)),
            len(some),
        )
        for (verdict, _), some in found.items()
    ]
    return sorted(made, key=lambda one: (order.index(one.verdict), -one.cases))


@dataclass(frozen=True)
class _Root:
    """A failure that nothing else in its cell explains, and the clauses whose failures it explains."""

    cell: Cell
    finding: Finding
    also: tuple[str, ...]


@dataclass(frozen=True)
class _Need:
    """What a failing program needs: the kind of call at which it shows, the operations before, rows, how far it goes."""

    call: str
    before: frozenset[str]
    token: int

    def within(self, other: _Need) -> bool:
        return self.call == other.call and self.before <= other.before and self.token <= other.token


def _roots(cell: Cell, cases: Iterable[Case]) -> list[_Root]:
    found = [finding for case in cases if case.verdict is Verdict.FAILED for finding in case.findings if not finding.known]
    roots: list[tuple[Finding, _Need, list[str]]] = []
    needs = {finding: _need(finding) for finding in found}
    for finding in sorted(found, key=lambda one: _beside_the_point(one.clause, needs[one])):
        need = needs[finding]
        for root, less, also in roots:
            if finding.divergence == root.divergence and (
                _detail(finding) == _detail(root) and finding.op == root.op
                if finding.divergence not in LOGITS
                else less.within(need)
            ):
                also.append(finding.clause)
                break
        else:
            roots.append((finding, need, []))
    return [_Root(cell, finding, tuple(dict.fromkeys(also))) for finding, _, also in roots]


def _beside_the_point(clause: str, need: _Need) -> int:
    """Does a program fail a clause without the operation that it is about? Then another clause says better what is wrong."""
    if clause.startswith("any."):
        return 2
    op = ABOUT.get(clause.partition(".")[2])
    return int(op is not None and op != need.call and op not in need.before)


def _need(finding: Finding) -> _Need:
    """Read from the program; one that cannot be read needs itself."""
    try:
        program = Program.parse(finding.program)
        before = histories(program)
    except KvconformError:
        return _Need(finding.program, frozenset(), finding.token)
    ops = program.ops[: finding.step]
    needed = {op.kind for op in ops if not isinstance(op, Append)} | {"refusal" for op in ops if op.refused}
    if finding.step >= len(program.ops):
        return _Need("", frozenset(needed), finding.token)
    op = program.ops[finding.step]
    if not isinstance(op, Append):
        return _Need(op.kind, frozenset(needed), finding.token)
    held = before[finding.step].caches.get(op.cache, ())
    if len(op.rows) > 1:
        needed.add("rows")
    if len({*map(len, op.rows)}) > 1 or len({*map(len, held)}) > 1:
        needed.add("padding")
    width = max(map(len, op.rows), default=0)
    call = "prefill" if not any(held) else "step" if width == 1 else "chunk"
    return _Need(call, frozenset(needed), finding.token)


def _symptom(finding: Finding) -> tuple[str, ...]:
    """What failures of one cause have alike, whichever cell they are of."""
    return (finding.divergence, finding.op, finding.clause if finding.divergence in LOGITS else "", _detail(finding))


def _detail(finding: Finding) -> str:
    return "" if finding.divergence in LOGITS else plain(finding.detail)


def _shape(program: str) -> str:
    """A program without its tokens: ops, and whether a call has one token or several."""
    try:
        ops = Program.parse(program).ops
    except KvconformError:
        return program
    return "; ".join(
        f"{op.kind} {len(op.rows)} {min(max(map(len, op.rows), default=0), 2)}" if isinstance(op, Append) else op.kind
        for op in ops
    )


def _could_show(by_clause: Mapping[str, Case], root: _Root) -> bool:
    case = by_clause.get(root.finding.clause)
    return case is not None and case.verdict in (Verdict.PASSED, Verdict.FAILED)


def _tags(cell: Cell) -> dict[str, str]:
    """What a cell may have in common with others, the widest first: options, then what the target says of itself."""
    return {**cell.options, **cell.tags}


def _words(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in named.items()) or "everything"


def _shared(failing: Sequence[_Root], every: Iterable[Cell]) -> dict[str, str]:
    """Tags that all failing cells have, and not every cell of the sweep."""
    first, *others = [root.cell for root in failing]
    tags = {tag for tag in _tags(first).items() if all(tag in _tags(cell).items() for cell in others)}
    everywhere = {tag for tag in tags if all(tag in _tags(cell).items() for cell in every)}
    return {name: value for name, value in _tags(first).items() if (name, value) in tags - everywhere}


def _apart(roots: Sequence[_Root], could: Sequence[Cell], every: Sequence[Cell]) -> list[tuple[str, list[_Root]]]:
    """Roots of one symptom by what sets them apart: a tag over several models nearly all of whose cells fail, or a pair
    of them; else the model."""
    left, found = list(roots), list[tuple[str, list[_Root]]]()
    for named in _candidates(roots):
        having = [cell for cell in could if named.items() <= _tags(cell).items()]
        failing = [root for root in left if named.items() <= _tags(root.cell).items()]
        keys = {root.cell.key for root in failing}
        models = {root.cell.model for root in failing}
        if len(models) >= SEVERAL and sum(cell.key in keys for cell in having) >= SHARE * len(having):
            found.append((_words(named or _shared(failing, every)), failing))
            left = [root for root in left if not named.items() <= _tags(root.cell).items()]
    by_model: dict[str, list[_Root]] = {}
    for root in left:
        by_model.setdefault(root.cell.model, []).append(root)
    return [*found, *by_model.items()]


def _candidates(roots: Sequence[_Root]) -> list[dict[str, str]]:
    """Nothing, one tag, or two, that failing cells of several models have."""
    models: dict[tuple[str, str], set[str]] = {}
    for root in roots:
        for tag in _tags(root.cell).items():
            models.setdefault(tag, set()).add(root.cell.model)
    single = [tag for tag, having in models.items() if len(having) >= SEVERAL]
    pairs = [dict((one, other)) for one, other in combinations(single, 2) if one[0] != other[0]]
    return [{}, *(dict((one,)) for one in single), *pairs]


def _group(common: str, roots: Sequence[_Root]) -> Group:
    cheapest = min(roots, key=lambda root: (root.cell.seconds, root.cell.key))
    clauses = tuple(dict.fromkeys(root.finding.clause for root in roots))
    also = dict.fromkeys(clause for root in roots for clause in root.also if clause not in clauses)
    cells = tuple(dict.fromkeys(root.cell.key for root in roots))
    return Group(cheapest.finding, common, cells, clauses, tuple(also))

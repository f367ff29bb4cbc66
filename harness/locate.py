"""Where a failure begins: the first layer and tensor of attention that differ from the reference's, by looking on.

The failing program runs again up to its failing append, the reference on the same tokens as a whole; the k-th attention of the
one is held against the k-th of the other, at the positions of the append. Layers that keep a state compute no attention: what
goes wrong in them shows in the hidden state that the next attention gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from .attention_calls import Attention

from .errors import KvconformError
from .history import Rows, histories
from .program import Append, Program
from .results import Case, Finding
from .runner import Divergence, apply_ops
from .trial import HALF, Subject

ULPS, ULPS_IN_HALF = 1024, 8
"""What a tensor may differ by, in units of its largest value's last place. A half's places are few."""
LOCATED = (Divergence.LOGITS, Divergence.NOT_FINITE, Divergence.RAISED)
NEXT = {
    "hidden state": "look at what comes before it: positions added to the embeddings, or a layer that keeps a state",
    "query": "look at the positions that turn queries",
    "key": "look at how keys are stored, and in which order they are read",
    "value": "look at how values are stored, and in which order they are read",
    "mask": "look at how the mask is made: which keys a query of this call may see",
    "attention output": "look at the attention itself: its scale, dtype or kernel",
}


@dataclass(frozen=True)
class Location:
    """The first difference. `layer` counts attention layers from 0; `position` is the token's in its cache."""

    layer: int
    tensor: str
    position: int
    what: str

    def __str__(self) -> str:
        before = f"; attention layer {self.layer - 1} agrees" if self.layer else ""
        return f"attention layer {self.layer}, {self.tensor}: {self.what}{before}; {NEXT[self.tensor]}"


def located(case: Case, subject: Subject) -> Case:
    """The case with the place in each finding where its failure begins."""
    return replace(case, findings=tuple(_located(one, subject) for one in case.findings)) if case.findings else case


def _located(finding: Finding, subject: Subject) -> Finding:
    if Divergence(finding.divergence) not in LOCATED:
        return finding
    return replace(finding, located=told(subject, Program.parse(finding.program), finding.step))


def told(subject: Subject, program: Program, step: int) -> str:
    """Where the failure of a program at a step begins, in one line, or why that cannot be said. It never ends a run."""
    try:
        return str(locate(subject, program, step))
    except KvconformError as error:
        return f"not found: {error}"
    except Exception as error:  # somebody else's code runs here a second time
        return f"not found: {type(error).__name__}: {error}".splitlines()[0]


def locate(subject: Subject, program: Program, step: int) -> Location:
    """Raises `KvconformError` where nothing can be compared, or nothing differs."""
    op = program.ops[step]
    rows = histories(program)[step + 1].caches.get(op.cache, ())
    if not isinstance(op, Append) or op.refused:
        raise KvconformError("the failing op is no append")
    if len(set(map(len, rows))) != 1 or len(set(map(len, op.rows))) != 1:
        raise KvconformError("rows of unequal length are not compared")

    def run() -> list[Attention]:
        return _calls(subject, program, step)

    mine = subject.guard.run(run, subject.implementation)
    due = _due(subject, rows)
    if not mine or not due:
        raise KvconformError("no attention by torch was completed in this process")
    forms = [(one.query.shape[:2], one.query.shape[3]) for one in mine]
    if forms != [(one.query.shape[:2], one.query.shape[3]) for one in due][: len(mine)]:
        raise KvconformError("its attention has another form than the reference's")
    factor = ULPS_IN_HALF if subject.dtype_name in HALF else ULPS
    for layer, (got, wanted) in enumerate(zip(mine, due, strict=False)):
        for tensor, position, what in _differences(got, wanted, factor):
            return Location(layer, tensor, position, what)
    raise KvconformError("every attention agrees; what differs comes behind the last one, or in a layer that keeps a state")


def _calls(subject: Subject, program: Program, step: int) -> list[Attention]:
    """What the failing append computes, up to where it raises."""
    from .attention_calls import AttentionCalls

    subject.implementation.prepare(frozenset(op.kind for op in program.ops))
    with apply_ops(subject.implementation) as apply:
        for op in program.ops[:step]:
            apply(op)
        with AttentionCalls() as seen:
            try:
                apply(program.ops[step])
            except Exception:
                return seen.calls
    return seen.calls


def _due(subject: Subject, rows: Rows) -> list[Attention]:
    import torch

    from .attention_calls import AttentionCalls

    with torch.inference_mode(), AttentionCalls() as seen:
        subject.oracle.reference.logits(torch.tensor(rows))
    return seen.calls


def _differences(got: Attention, due: Attention, factor: int) -> Iterator[tuple[str, int, str]]:
    """Tensor, position and words for each that differs, causes first."""
    new, slots, length = got.query.shape[2], got.key.shape[2], due.key.shape[2]
    past = length - new
    query = _apart(got.query, due.query[:, :, past:], past, factor)
    visible = due.visible[:, past:]
    seen = visible.any(dim=1).any(dim=0)
    start = max(length - slots, 0)
    if seen[:start].any():
        yield "key", int(seen.nonzero()[0]), f"{slots} slots where {length} tokens are due"
        return
    wanted = due.key[:, :, start:], due.value[:, :, start:]
    if slots == length - start:
        got = _in_order(got, *wanted, factor)
    mine = got.key[:, :, : length - start], got.value[:, :, : length - start]
    hidden = ~seen[start:, None]
    key, value = (
        _apart(one.masked_fill(hidden, 0), other.masked_fill(hidden, 0), start, factor)
        for one, other in zip(mine, wanted, strict=True)
    )
    own_value = _apart(mine[1][:, :, -new:], wanted[1][:, :, -new:], past, factor)
    if query and own_value:
        yield "hidden state", *query
    elif query:
        yield "query", *query
    if key:
        yield "key", *key
    if value:
        yield "value", *value
    wrong = got.visible[..., : length - start] != visible[..., start:]
    if wrong.any():
        row, token, place = wrong.nonzero()[0].tolist()
        sees = "sees" if got.visible[row, token, place] else "does not see"
        yield "mask", past + token, f"token {past + token} {sees} token {start + place}"
    if got.visible[..., length - start :].any():
        yield "mask", past, f"slots behind the {length} tokens are seen"
    output = _apart(got.output, due.output[:, :, past:], past, factor)
    if output:
        yield "attention output", *output


def _in_order(got: Attention, keys: Tensor, values: Tensor, factor: int) -> Attention:
    """The slots of a ring in the order of their tokens, where it holds just these keys with their values in another order."""
    import torch

    slots = keys.shape[2]
    mine, due = (x.transpose(1, 2).flatten(2).double() for x in (got.key, keys))
    order = torch.cdist(due, mine).nan_to_num(nan=float("inf")).argmin(dim=-1)  # for each token its slot, [rows, slots]
    turned = (order[:, :1] + torch.arange(slots, device=order.device)) % slots
    if not torch.equal(order, turned) or not order[:, 0].any():
        return got
    key, value = (torch.take_along_dim(x, order[:, None, :, None], dim=2) for x in (got.key, got.value))
    if _apart(key, keys, 0, factor) or _apart(value, values, 0, factor):
        return got
    return replace(got, key=key, value=value, visible=torch.take_along_dim(got.visible, order[:, None], dim=2))


def _apart(got: Tensor, due: Tensor, first: int, factor: int) -> tuple[int, str] | None:
    """The first position, counted from `first`, at which tensors `[rows, heads, n, dim]` differ, and by how much."""
    import torch

    if got.shape != due.shape:
        return first, f"is {list(got.shape)} where {list(due.shape)} is due"
    allowed = factor * torch.finfo(due.dtype).eps * due.abs().amax().item()
    off = (got - due).abs().nan_to_num(nan=float("inf")).amax(dim=(0, 1, 3))
    if not (off > allowed).any():
        return None
    place = int((off > allowed).nonzero()[0])
    return first + place, f"differs at position {first + place} by {off[place].item():.3g} (allowed {allowed:.3g})"

"""Where a failure begins: the first layer and tensor that differ from the reference's, by looking on.

The failing program runs again up to its failing append, the reference on the same tokens as a whole. What torch computes as
attention and what torch modules give is kept in order; the k-th attention of the one is held against the k-th of the other, a
module's call against the call of that name, at the positions of the append. A module whose input is right and whose output is
not, without an attention that differs in it, has read something else than its input: a state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from .attention_calls import Attention
    from .module_calls import ModuleCall

    Call = Attention | ModuleCall

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
    "position input": "look at how positions are counted from call to call",
    "state": "look at what is kept of the state between calls: carried, copied, reordered, reset",
    "hidden state": "look at what comes before it: positions added to the embeddings, or a layer that keeps a state",
    "query": "look at the positions that turn queries",
    "key": "look at how keys are stored, and in which order they are read",
    "value": "look at how values are stored, and in which order they are read",
    "mask": "look at how the mask is made: which keys a query of this call may see",
    "attention output": "look at the attention itself: its scale, dtype or kernel",
}


@dataclass(frozen=True)
class Location:
    """The first difference. `place` is an attention layer, or a module by its name; `position` is the token's in its cache;
    `before` says what still agrees."""

    place: str
    tensor: str
    position: int
    what: str
    before: str = ""

    def __str__(self) -> str:
        return f"{self.place}, {self.tensor}: {self.what}{self.before}; {NEXT[self.tensor]}"


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

    def run() -> list[Call]:
        return _calls(subject, program, step)

    mine = subject.guard.run(run, subject.implementation)
    due = _due(subject, rows)
    new, length = len(op.rows[0]), len(rows[0])
    factor = ULPS_IN_HALF if subject.dtype_name in HALF else ULPS
    return _first(mine, due, new, length, factor)


def _first(mine: list[Call], due: list[Call], new: int, length: int, factor: int) -> Location:
    """The first call of the one that differs from its like of the other."""
    from .attention_calls import Attention

    wanted = [call for call in due if isinstance(call, Attention)]
    modules = {key: call for call in due if not isinstance(call, Attention) for key in call.keys}
    layer, held, before = 0, 0, ""
    other_form = spoiled = None
    for call in mine:
        if not isinstance(call, Attention):
            like = next((modules[key] for key in call.keys if key in modules), None)
            held += like is not None
            found = _module_differs(call, like, new, length, factor) if like else None
            if found and found.tensor != "hidden state":
                return replace(found, before=before)
            spoiled = spoiled or found
        elif layer >= len(wanted) or _form(call) != _form(wanted[layer]):
            other_form = other_form or call
        else:
            held += 1
            for tensor, position, what in _differences(call, wanted[layer], factor):
                found = Location(f"attention layer {layer}", tensor, position, what)
                return replace(spoiled if spoiled and tensor == "hidden state" else found, before=before)
            before = f"; attention layer {layer} agrees"
            layer += 1
    if spoiled:
        return replace(spoiled, before=before)
    if other_form:
        raise KvconformError("its attention has another form than the reference's")
    if not held:
        raise KvconformError("no attention by torch, and no module that the reference has too, was completed in this process")
    raise KvconformError("every attention and module agrees; what differs comes behind the last one, or in a state beside them")


def _form(call: Attention) -> tuple[int, ...]:
    return *call.query.shape[:2], call.query.shape[3]


def _module_differs(call: ModuleCall, like: ModuleCall, new: int, length: int, factor: int) -> Location | None:
    """What of a module's call differs: its positions, or what it gives. Where all that it takes is right, what it gives is
    wrong for what it keeps; else the difference came from before."""
    place, past = f"{call.name or 'the model'} ({call.kind})", length - new
    for word, got in call.indices.items():
        due = like.indices.get(word)
        if due is None or "mask" in word or (got.shape[-1], due.shape[-1]) != (new, length):
            continue
        wrong = got != due[..., past:]
        if wrong.any():
            at = int(wrong.reshape(-1, new).any(dim=0).nonzero()[0])
            what = f"token {past + at} gets {got[..., at].flatten()[0]} where {due[..., past + at].flatten()[0]} is due"
            return Location(place, "position input", past + at, what)
    taken = [*_apart_each(call.taken, like.taken, new, length, factor)]
    for found in filter(None, _apart_each(call.given, like.given, new, length, factor)):
        return Location(place, "hidden state" if any(taken) or not taken else "state", *found)
    return None


def _apart_each(
    got: Sequence[Tensor], due: Sequence[Tensor], new: int, length: int, factor: int
) -> Iterator[tuple[int, str] | None]:
    """For each pair of tensors `[rows, new, …]` and `[rows, length, …]` what `_apart` says; other shapes are left out."""
    for one, other in zip(got, due, strict=False):
        shape = (one.shape[0], length, *one.shape[2:])
        if one.shape[1] == new and other.shape == shape:
            cut = other[:, length - new :]
            yield _apart(one.flatten(2)[:, None], cut.flatten(2)[:, None], length - new, factor)


def _calls(subject: Subject, program: Program, step: int) -> list[Call]:
    """What the failing append computes, up to where it raises."""
    from .attention_calls import AttentionCalls
    from .module_calls import ModuleCalls

    seen: list[Call] = []
    subject.implementation.prepare(frozenset(op.kind for op in program.ops))
    with apply_ops(subject.implementation) as apply:
        for op in program.ops[:step]:
            apply(op)
        with suppress(Exception), AttentionCalls(seen), ModuleCalls(seen):
            apply(program.ops[step])
    return seen


def _due(subject: Subject, rows: Rows) -> list[Call]:
    import torch

    from .attention_calls import AttentionCalls
    from .module_calls import ModuleCalls

    seen: list[Call] = []
    with torch.inference_mode(), AttentionCalls(seen), ModuleCalls(seen):
        subject.oracle.reference.logits(torch.tensor(rows))
    return seen


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

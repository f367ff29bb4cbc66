"""What is wrong with a trace, as far as its numbers prove it.

A clue is a sentence that a second pass over both files has found true of all positions compared, to rounding, or a count.
Nothing is guessed: where no clue holds, there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from .match import Figures, Lines, Pairs


@dataclass(frozen=True)
class _Seen:
    """A block of GOT beside what is due there, one position earlier and one later (NaN where there is none in the row),
    at the last position, and with the factor between the two files at the first bad position; `[n, vocab]`."""

    given: Tensor
    due: Tensor
    earlier: Tensor
    later: Tensor
    last: Tensor
    factor: float


def _spread(gap: Tensor) -> Tensor:
    """Half the distance between the largest and the least difference of each line: 0 for a constant offset."""
    return (gap.amax(-1, keepdim=True) - gap.amin(-1, keepdim=True)) / 2


def _stored(name: str, bits: int) -> Callable[[_Seen], Tensor]:
    """How far a line is beyond what storing it in a dtype with so many bits behind the first rounds; infinite where it
    holds a number that the dtype has not."""

    def distance(seen: _Seen) -> Tensor:
        import torch

        exact = seen.given == seen.given.to(getattr(torch, name)).double()
        beyond = (seen.given - seen.due).abs() - 2.0 ** -(bits + 1) * 1.001 * seen.due.abs()
        return torch.where(exact, beyond.clamp(min=0), torch.inf)

    return distance


MOST_ROWS = 64
"""Rows that are held against each other."""

WHOLE: dict[str, Callable[[_Seen], Tensor]] = {
    "GOT rounds REF to float16, and no more": _stored("float16", 10),
    "GOT rounds REF to bfloat16, and no more": _stored("bfloat16", 7),
    "GOT is one position ahead: GOT[i] is REF[i+1]": lambda seen: seen.given - seen.later,
    "GOT is one position behind: GOT[i] is REF[i-1]": lambda seen: seen.given - seen.earlier,
    "GOT holds the logits of the last position at every position": lambda seen: seen.given - seen.last,
    "GOT holds log-probabilities, not logits": lambda seen: seen.given - seen.due.log_softmax(-1),
    "GOT holds probabilities, not logits": lambda seen: seen.given - seen.due.softmax(-1),
    "GOT adds a constant to all logits of a position: no probability changes": lambda seen: _spread(seen.given - seen.due),
    "GOT is REF times {factor:.6g}": lambda seen: (seen.given - seen.factor * seen.due) / max(1.0, abs(seen.factor)),
    "GOT's vocabulary is off by one: entry v holds what is due at v-1": lambda seen: seen.given[:, 1:] - seen.due[:, :-1],
    "GOT's vocabulary is off by one: entry v holds what is due at v+1": lambda seen: seen.given[:, :-1] - seen.due[:, 1:],
}
"""What may be so of every position: the distance from its being so, NaN where a position cannot tell. The first that holds
is told; a later one may hold for the reason that an earlier one does."""


def clues(due: Lines, got: Lines, pairs: Pairs, found: Figures, bad: set[int], close: float) -> Iterator[str]:
    """Sentences, the strongest first. `bad` are the pairs that are not as they should be, `close` the largest distance
    that counts as rounding."""
    if bad and min(len(pairs), pairs.vocab) > 1 and all(found.finite) and close > 0:
        told, elsewhere = _whole(due, got, pairs, min(bad), close)
        if told:
            yield told
            return
        if rows := _rows(due, got, pairs, min(bad), close):
            yield rows
        elif elsewhere is not None:
            yield f"position {pairs.positions[min(bad)]} holds what is due at position {pairs.positions[elsewhere]}"


def _whole(due: Lines, got: Lines, pairs: Pairs, first: int, close: float) -> tuple[str, int | None]:
    """What holds at every position, and the pair whose due logits the first bad position has, in one more pass."""
    import torch

    bad, wanted = got.take(pairs.got[first : first + 1]), due.take(pairs.due[first : first + 1])
    factor = ((bad * wanted).sum() / wanted.square().sum()).item()
    last = due.take(pairs.due[-1:])
    alive = dict.fromkeys(WHOLE, 0)
    place: int | None = None
    for part in pairs.blocks:
        start, end = max(part.start - 1, 0), min(part.stop + 1, len(pairs))
        wide = due.take(pairs.due[start:end])
        nothing = torch.full_like(wide[:1], torch.nan)
        wide = torch.cat([nothing] * (start == part.start) + [wide] + [nothing] * (end == part.stop))
        before, middle, after = wide[:-2].clone(), wide[1:-1], wide[2:].clone()
        for at in range(part.start, part.stop):
            if at and not _follows(pairs, at):
                before[at - part.start] = torch.nan
            if at + 1 < len(pairs) and not _follows(pairs, at + 1):
                after[at - part.start] = torch.nan
        seen = _Seen(got.take(pairs.got[part]), middle, before, after, last, factor)
        for sentence in list(alive):
            distance = WHOLE[sentence](seen).abs().amax(-1)
            told = distance[~distance.isnan()]
            if (told > close).any():
                del alive[sentence]
            else:
                alive[sentence] += len(told)
        near = ((middle - bad).abs().amax(-1) <= close).nonzero().flatten().tolist()
        place = part.start + near[0] if near and place is None else place
    for sentence, count in alive.items():
        if count >= 2:
            where = "" if count == len(pairs) else f" ({count} of {len(pairs)} positions can tell)"
            return f"{sentence.format(factor=factor)}{where}", place
    return "", place


def _follows(pairs: Pairs, pair: int) -> bool:
    """Is a pair about the position behind that of the pair before it, in the same row?"""
    before, after = pairs.place(pair - 1), pairs.place(pair)
    if before is None or after is None:
        return pairs.positions[pair] == pairs.positions[pair - 1] + 1
    return (before.cache, before.row, before.index + 1) == (after.cache, after.row, after.index)


def _rows(due: Lines, got: Lines, pairs: Pairs, bad: int, close: float) -> str:
    """The order of rows in the first append that has a bad position, where another order than the due one fits."""
    place = pairs.place(bad)
    if place is None:
        return ""
    whole = [(pair, other) for pair in range(len(pairs)) if (other := pairs.place(pair)) and other.op == place.op]
    same = [pair for pair, other in whole if other.index == place.index]
    if not 2 <= len(same) <= MOST_ROWS:
        return ""
    expected = due.take([pairs.due[pair] for pair in same])
    order = list[int]()
    for pair in same:
        near = ((expected - got.take([pairs.got[pair]])).abs().amax(-1) <= close).nonzero().flatten().tolist()
        if not near:
            return ""
        order.append(int(near[0]))
    return f"op {place.op}: GOT's rows {_listed(range(len(same)))} hold what is due for rows {_listed(order)}"


def _listed(rows: range | list[int]) -> str:
    return " ".join(map(str, rows))


def where(pairs: Pairs, bad: set[int]) -> str:
    """Where deviating pairs lie, by count."""
    count = f"{len(bad)} of {len(pairs)} positions deviate"
    known = [(pair in bad, place) for pair in range(len(pairs)) if (place := pairs.place(pair))]
    rows = {(place.cache, place.row) for wrong, place in known if wrong}
    fresh = {place.fresh for wrong, place in known if wrong}
    if len(bad) == len(pairs):
        return f"{count}, that is all of them"
    if len(rows) == 1 < len({(place.cache, place.row) for _, place in known}):
        ((cache, row),) = rows
        return f"{count}, all in row {row} of cache {cache}"
    if fresh == {False}:
        return f"{count}, all in appends to a cache that already held tokens"
    if fresh == {True}:
        return f"{count}, all in appends to an empty cache"
    return f"{count}, the first is {pairs.positions[min(bad)]}"

"""Hypothesis strategies for programs that are legal by construction, steered to where cache bugs live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st

from .history import History
from .program import Append, Crop, Drop, Fork, Join, Op, Program, Reset, Restore, Row, Select
from .scope import Scope, note_length

NAMES = "abcdefgh"
FOLLOWED = 2
"""Appends behind an op that are enough to show what it broke."""
SMALL = 5
"""Most appends hold no more tokens than this."""


@dataclass(frozen=True)
class Mix:
    """Which ops a family of programs is made of, by weight, and how large it grows.

    A mix names what it is about: one mix of everything misses what a small one finds.
    """

    ops: tuple[tuple[str, int], ...]
    rows: int = 1
    caches: int = 3
    steps: tuple[int, int] = (1, 5)
    reach: int = 48
    """Tokens that a row grows to, landmarks aside."""
    ragged: bool = False
    single: bool = False
    """Every append behind the first holds one token."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of op that it draws from."""
        return frozenset(kind for kind, _ in self.ops)

    def within(self, scope: Scope) -> Mix:
        """The part of the mix that an implementation can be given."""
        able = tuple((kind, weight) for kind, weight in self.ops if kind in ("append", "drop") or kind in scope.capabilities)
        return Mix(
            ops=able,
            rows=min(self.rows, scope.max_rows or self.rows),
            caches=min(self.caches, scope.max_caches or self.caches),
            steps=self.steps,
            reach=min(self.reach, scope.max_length or self.reach),
            ragged=self.ragged and scope.ragged != "no",
            single=self.single,
        )


def programs(scope: Scope, mix: Mix) -> st.SearchStrategy[Program]:
    """Legal programs of this mix for an implementation of this scope."""
    return _programs(scope, mix.within(scope))


@st.composite
def _programs(draw: st.DrawFn, scope: Scope, mix: Mix) -> Program:
    writer = _Writer(draw, scope, mix)
    writer.append("a")
    kinds = [kind for kind, weight in mix.ops for _ in range(weight)]
    for _ in range(draw(st.integers(*mix.steps))):
        writer.write(draw(st.sampled_from(kinds)))
    writer.follow_up()
    return Program(tuple(writer.ops))


class _Writer:
    """Writes a program op by op beside its history. Tokens come from a drawn seed, so a long prompt is one draw."""

    def __init__(self, draw: st.DrawFn, scope: Scope, mix: Mix) -> None:
        self.draw, self.scope, self.mix = draw, scope, mix
        self.history = History()
        self.ops: list[Op] = []
        self.prompts: list[Row] = []
        self.lengths: dict[str, list[int]] = {}
        self.since: dict[str, int] = {}
        """Appends to a cache since its last other op."""

    def write(self, kind: str) -> None:
        """One more op of this kind; an append where it is not possible now."""
        names = sorted(self.history.caches)
        start = self.draw(st.integers(0, len(names) - 1))
        cache = names[start]
        if kind == "append" or not any(self._other(kind, name) for name in names[start:] + names[:start]):
            fresh = self._fresh()
            new = fresh is not None and self.draw(st.integers(0, 5)) == 5
            self.append(fresh if new and fresh else cache)

    def follow_up(self) -> None:
        """Two appends, several tokens and one, on each cache behind its last other op: where a bug shows."""
        for cache, appends in sorted(self.since.items()):
            if cache in self.history.caches:
                for at_most in (SMALL, 1)[appends:]:
                    self.append(cache, at_most)

    def append(self, cache: str, at_most: int | None = None) -> None:
        length = self.history.length(cache)
        room = self._room(length, at_most)
        if room < 1:
            return
        rows = self.history.caches.get(cache)
        if rows is None or (not any(rows) and "reset_rows" in self.scope.capabilities):
            count = self.draw(st.integers(1, self.mix.rows))
        else:
            count = len(rows)
        width = self._width(length, room)
        texts = [self._tokens(width, empty=length == 0) for _ in range(count)]
        if self.mix.ragged and count > 1:
            texts = [text[: self.draw(st.integers(1, len(text)))] for text in texts[:-1]] + texts[-1:]
        if length == 0:
            self.prompts.extend(texts)
        self._add(Append(cache, tuple(texts)))

    def _room(self, length: int, at_most: int | None) -> int:
        decode = 1 if self.mix.single and length else None
        room = [bound for bound in (self.scope.max_append, at_most, decode) if bound is not None]
        if self.scope.max_length is not None:
            room.append(self.scope.max_length - length)
        far = max([self.mix.reach, *(2 * mark for mark in self.scope.landmarks)])
        return min([*room, max(far - length, 1)])

    def _width(self, length: int, room: int) -> int:
        """A few tokens, or as many as reach a landmark, one below, one above, twice it."""
        aims = {near - length for mark in self.scope.landmarks for near in (mark - 1, mark, mark + 1, 2 * mark)}
        reachable = sorted(aim for aim in aims if 1 <= aim <= room)
        way = self.draw(st.integers(0, 9))
        if reachable and way >= 5:
            return self.draw(st.sampled_from(reachable))
        if way == 4:
            return self.draw(st.integers(1, room))
        return self.draw(st.integers(1, min(SMALL, room)))

    def _tokens(self, width: int, empty: bool) -> Row:
        """Fresh tokens; on an empty cache often an earlier prompt, or a prefix of one that then goes another way."""
        fresh = Random(self.draw(st.integers(0, 2**16)))
        text = self.scope.text(fresh, width)
        if not (empty and self.prompts):
            return text
        earlier = self.draw(st.sampled_from(self.prompts))
        kept = self.draw(st.integers(0, min(width, len(earlier))))
        return earlier[:kept] + text[kept:]

    def _fresh(self) -> str | None:
        free = [name for name in NAMES[: self.mix.caches] if name not in self.history.caches]
        return free[0] if free else None

    def _other(self, kind: str, cache: str) -> bool:
        """Write an op that is no append. False where it is not possible."""
        makers: dict[str, Callable[[str], Op | None]] = {
            "fork": self._fork,
            "crop": self._crop,
            "reset": Reset,
            "select": self._select,
            "join": self._join,
            "restore": Restore,
            "drop": lambda name: Drop(name) if len(self.history.caches) > 1 else None,
        }
        op = makers[kind](cache)
        if op is None or self.scope.lacks(op, self.history):
            return False
        self._add(op)
        return True

    def _fork(self, cache: str) -> Op | None:
        target = self._fresh()
        return Fork(cache, target) if target else None

    def _crop(self, cache: str) -> Op | None:
        rows = self.history.caches[cache]
        if len({len(row) for row in rows}) > 1:
            return None
        floor, length = self.scope.crop_floor(self.lengths.get(cache, [])), len(rows[0])
        if floor > length:
            return None
        marks = {near for mark in self.scope.landmarks for near in (mark - 1, mark, mark + 1)}
        within = [sorted(near for near in some if floor <= near <= length) for some in (marks, {0, length - 1, length})]
        for likely in within:
            if likely and self.draw(st.booleans()):
                return Crop(cache, self.draw(st.sampled_from(likely)))
        return Crop(cache, self.draw(st.integers(floor, length)))

    def _select(self, cache: str) -> Op:
        held = len(self.history.caches[cache])
        size = self.draw(st.integers(1, max(self.mix.rows, 1)))
        return Select(cache, tuple(self.draw(st.integers(0, held - 1)) for _ in range(size)))

    def _join(self, cache: str) -> Op | None:
        others = [name for name in sorted(self.history.caches) if name != cache]
        ready = [name for name in others if not self.scope.lacks(Join(cache, name), self.history)]
        if others and not ready:
            ready = [other for other in [self.draw(st.sampled_from(others))] if self._level(cache, other)]
        return Join(cache, self.draw(st.sampled_from(ready))) if ready else None

    def _level(self, cache: str, other: str) -> bool:
        """Bring two caches to one length, so that they can be joined where rows must not differ. False where they cannot."""
        shorter, longer = sorted((cache, other), key=self.history.length)
        missing = self.history.length(longer) - self.history.length(shorter)
        rows = sum(len(self.history.caches[name]) for name in (cache, other))
        if self.scope.ragged != "no" or missing == 0 or rows > (self.scope.max_rows or rows):
            return False
        if self.history.length(shorter) == 0 and "reset" in self.mix.kinds:
            self._add(Reset(longer))
        elif missing <= self._room(self.history.length(shorter), None):
            self._add(Append(shorter, tuple(self._tokens(missing, empty=False) for _ in self.history.caches[shorter])))
        return not self.scope.lacks(Join(cache, other), self.history)

    def _add(self, op: Op) -> None:
        self.ops.append(op)
        self.history = self.history.after(op)
        note_length(op, self.history, self.lengths)
        touched = {op.cache, op.target} if isinstance(op, Fork) else {op.cache}
        if isinstance(op, Append):
            self.since[op.cache] = self.since.get(op.cache, FOLLOWED) + 1
        else:
            self.since |= dict.fromkeys(touched, 0)


def some_tokens(scope: Scope, count: int, seed: int = 0) -> Row:
    """Distinct-looking tokens for fixed programs, the same in every run; token 0 is left to padding."""
    return scope.text(Random(f"kvconform {seed}"), count)


def feed(cache: str, tokens: Sequence[int], *sizes: int, scope: Scope) -> tuple[Append, ...]:
    """Appends that feed `tokens` in calls of the given sizes, the last size repeated; without sizes, in one call.

    Never more in a call than the implementation takes.
    """
    most = scope.max_append or len(tokens)
    ops: list[Append] = []
    start = call = 0
    while start < len(tokens):
        size = max(1, min(sizes[min(call, len(sizes) - 1)] if sizes else len(tokens), most))
        ops.append(Append(cache, (tuple(tokens[start : start + size]),)))
        start, call = start + size, call + 1
    return tuple(ops)

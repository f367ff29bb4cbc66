"""Bugs that histories alone can tell: the ways in which a cache can mistake one history for another. Each is a short
override of an engine that recomputes everything, so this needs nothing but a reference and works for any engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..fault import Form
from ..implementation import Implementation
from ..program import Row
from .recompute import Recompute, Rows

if TYPE_CHECKING:
    from torch import Tensor

    from ..trial import Subject


class PastForgotten(Recompute):
    sentence = "a call sees nothing of the past"

    def past(self, cache: Rows, index: int, new: Row) -> Row:
        return ()


class PastForgottenBySeveral(Recompute):
    sentence = "a call of several tokens sees nothing of the past"

    def past(self, cache: Rows, index: int, new: Row) -> Row:
        return () if len(new) > 1 else cache.held[index]


class FirstCallLost(Recompute):
    sentence = "the first call's tokens are not stored"

    def keep(self, cache: Rows, new: list[Row]) -> None:
        if cache.calls:
            super().keep(cache, new)


class LastOfCallLost(Recompute):
    sentence = "the last token of a call of several is not stored"

    def keep(self, cache: Rows, new: list[Row]) -> None:
        super().keep(cache, [row[:-1] if len(row) > 1 else row for row in new])


class FirstOfCallLost(Recompute):
    sentence = "the first token of a call of several is not stored"

    def keep(self, cache: Rows, new: list[Row]) -> None:
        super().keep(cache, [row[1:] if len(row) > 1 else row for row in new])


class OnlyLastOfCallStored(Recompute):
    sentence = "only the last token of a call is stored"

    def keep(self, cache: Rows, new: list[Row]) -> None:
        super().keep(cache, [row[-1:] for row in new])


class SingleNotStored(Recompute):
    sentence = "tokens that are fed one by one are not stored"

    def keep(self, cache: Rows, new: list[Row]) -> None:
        super().keep(cache, [row if len(row) > 1 else () for row in new])


class DecodeNotStored(Recompute):
    sentence = "tokens that are fed one by one behind a prompt are not stored"

    def keep(self, cache: Rows, new: list[Row]) -> None:
        if not any(cache.held) or any(len(row) > 1 for row in new):
            super().keep(cache, new)


class LastTwice(Recompute):
    sentence = "the last token of the past is in the cache twice"

    def past(self, cache: Rows, index: int, new: Row) -> Row:
        return cache.held[index] + cache.held[index][-1:]


class CallTwice(Recompute):
    sentence = "a call's tokens are stored twice"

    def keep(self, cache: Rows, new: list[Row]) -> None:
        super().keep(cache, [row + row for row in new])


class FirstRowsPast(Recompute):
    sentence = "every row reads the first row's past"
    scenario = "second_row"

    def past(self, cache: Rows, index: int, new: Row) -> Row:
        return cache.held[0]


class LogitsLate(Recompute):
    sentence = "logits come one position late: each token's are those of the token before it"

    def logits(self, cache: Rows, index: int, new: Row) -> Tensor:
        whole = self.past(cache, index, new) + new
        late = self.oracle.row(whole, min(len(new) + 1, len(whole)))
        return late[:-1] if len(late) > len(new) else self.oracle.row(whole, len(new)).roll(1, 0)


class CropIgnored(Recompute):
    sentence = "crop does nothing"
    scenario = "crop"

    def crop(self, cache: Rows, length: int) -> None:
        pass


class CropOneShort(Recompute):
    sentence = "a crop keeps one token too many"
    scenario = "crop"

    def crop(self, cache: Rows, length: int) -> None:
        super().crop(cache, length + 1)


class CropOneFar(Recompute):
    sentence = "a crop keeps one token too few"
    scenario = "crop"

    def crop(self, cache: Rows, length: int) -> None:
        super().crop(cache, max(length - 1, 0))


class CropFromFront(Recompute):
    sentence = "a crop keeps the last tokens instead of the first"
    scenario = "crop"

    def crop(self, cache: Rows, length: int) -> None:
        cache.held = [row[len(row) - length :] for row in cache.held]


class CropEmpties(Recompute):
    sentence = "a crop empties the cache"
    scenario = "crop"

    def crop(self, cache: Rows, length: int) -> None:
        super().crop(cache, 0)


class ResetIgnored(Recompute):
    sentence = "reset does nothing: a new prompt lands behind the old one"
    scenario = "reset"

    def reset(self, cache: Rows) -> None:
        pass


class SelectIgnored(Recompute):
    sentence = "rows are not reordered at all"
    scenario = "reorder"

    def select(self, cache: Rows, rows: Sequence[int]) -> None:
        cache.held = [cache.held[at % len(cache.held)] for at in range(len(rows))]


class SelectInverse(Recompute):
    sentence = "rows are reordered by the inverse of what was asked"
    scenario = "reorder"

    def select(self, cache: Rows, rows: Sequence[int]) -> None:
        cache.held = [cache.held[list(rows).index(at)] if at in rows else cache.held[0] for at in range(len(rows))]


class JoinInFront(Recompute):
    sentence = "rows that join come before those that were there"
    scenario = "join"

    def join(self, cache: Rows, other: Rows) -> None:
        cache.held = other.held + cache.held


class RestoreEmpty(Recompute):
    sentence = "a cache that was restored is empty"
    scenario = "restore"

    def load(self, data: bytes) -> Rows:
        found = super().load(data)
        return Rows([()] * len(found.held))


class RestoreLosesLast(Recompute):
    sentence = "the last token is lost on the way through bytes"
    scenario = "restore"

    def load(self, data: bytes) -> Rows:
        found = super().load(data)
        return Rows([row[:-1] for row in found.held], found.calls)


class ForkEmpty(Recompute):
    sentence = "a fork starts empty"
    scenario = "branch"

    def fork(self, cache: Rows) -> Rows:
        return self.new_cache(len(cache.held))


class ForkIsTheSame(Recompute):
    sentence = "a fork is the original under another name: what one is fed, the other holds too"
    scenario = "branch"

    def fork(self, cache: Rows) -> Rows:
        return cache


class CachesAreOne(Recompute):
    sentence = "two caches share their state: it hangs on the model"
    scenario = "turns"

    one: Rows | None = None

    def new_cache(self, rows: int = 1) -> Rows:
        if self.one is None:
            self.one = super().new_cache(rows)
        self.one.held, self.one.calls = [()] * rows, 0
        return self.one


class CachesGoOn(Recompute):
    sentence = "a new cache goes on where the last one ended"
    scenario = "turns"

    one: Rows | None = None

    def new_cache(self, rows: int = 1) -> Rows:
        if self.one is None or len(self.one.held) != rows:
            self.one = super().new_cache(rows)
        return self.one


class RefusedIsStored(Recompute):
    sentence = "the tokens of a call that was refused stay in the cache"
    scenario = "refused"

    def append(self, cache: Rows, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        try:
            return super().append(cache, tokens, lengths)
        except ValueError:
            usable = [tuple(token for token in row if token < self.vocab_size) for row in tokens.tolist()]
            self.keep(cache, usable)
            raise


class LimitIgnored(Recompute):
    sentence = "the limit is not checked"
    scenario = "limit"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.max_length = None


def truncated(kept: int) -> type[Recompute]:
    """Only the last `kept` tokens of the past are seen."""

    class Truncated(Recompute):
        sentence = f"only the last {kept} tokens of the past are seen"

        def past(self, cache: Rows, index: int, new: Row) -> Row:
            return cache.held[index][-kept:]

    return Truncated


KINDS: tuple[type[Recompute], ...] = tuple(Recompute.__subclasses__())


def history_forms(subject: Subject, longest: int) -> list[Form]:
    """Every mistaken history as a form that can be simulated. `longest`: tokens of the program's longest row."""
    kinds = [*KINDS, *map(truncated, range(1, min(longest, 16)))]
    return [Form(f"history:{_name(kind)}", kind.sentence, _maker(kind, subject), scenario=kind.scenario) for kind in kinds]


def _maker(kind: type[Recompute], subject: Subject) -> Callable[[Implementation], Implementation]:
    return lambda _: kind(subject)


def _name(kind: type[Recompute]) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).lstrip("_")

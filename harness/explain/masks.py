"""A mask that does not fit its keys: the two shapes tell the position that was passed and what was really cached."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .explanation import Told, ints, reader


def mask_and_scores(mask: Sequence[int], scores: Sequence[int]) -> Told | None:
    """A mask `[..., queries, keys]` against scores `[rows, heads, tokens, present]`; None where shapes are of another
    kind."""
    if len(mask) < 2 or len(scores) < 3 or mask[-2] < 1 or scores[-2] < 1:
        return None
    passed, cached, tokens = mask[-1] - mask[-2], scores[-1] - scores[-2], scores[-2]
    if passed < 0 or cached < 0:
        return None
    numbers = (("position passed", passed), ("really cached", cached), ("tokens in the call", tokens))
    return Told(*_case(passed, cached, tokens), numbers)


def _case(passed: int, cached: int, tokens: int) -> tuple[str, str]:
    """What went wrong, and the mend, from the position that was passed and what was cached."""
    if passed == cached:
        return (
            "position and cache agree, and the mask is of another number of tokens or rows than the call",
            "make the mask for the tokens and rows of this very call",
        )
    if not cached:
        return (
            f"the cache is empty, and the call was given position {passed}: it was cleared, or is a new one, "
            "and the position counter was kept",
            "set the position to 0 wherever the cache is cleared or made anew",
        )
    if not passed:
        return (
            f"the call starts at position 0 on a cache that still holds {cached} tokens",
            f"clear the cache, or make a new one, before a new prompt; pass position {cached} to go on",
        )
    if passed == tokens:
        return (
            f"the call was given its own length, {passed}, as its position; {cached} tokens are cached",
            f"pass the number of tokens before the call, {cached}",
        )
    if passed < cached:
        return (
            f"the position counter lags {cached - passed} behind the cache: it counts calls, not tokens, or tokens "
            "were rolled back in the counter and not in the cache",
            f"advance the position by the tokens of each call; it is {cached} here",
        )
    return (
        f"the position counter is {passed - cached} ahead of the cache: tokens were counted that were not stored, or "
        "rolled back in the cache and not in the counter",
        f"count what the cache holds; it is {cached} here",
    )


def _shapes(found: re.Match[str]) -> Told | None:
    mask, scores = ints(found[1]), ints(found[2])
    if len(mask) > len(scores) or (len(mask) == len(scores) and mask[1:2] != [1] and scores[1:2] == [1]):
        mask, scores = scores, mask
    return mask_and_scores(mask, scores)


NUMBERS = r"((?:\d{1,12}, ?)*\d{1,12},?)"

READERS = (
    reader("candle", rf"cannot broadcast \[{NUMBERS}\] to \[{NUMBERS}\]")(_shapes),
    reader("MLX", rf"\[broadcast_shapes\] Shapes \({NUMBERS}\) and \({NUMBERS}\) cannot be broadcast")(_shapes),
    reader("NumPy", rf"operands could not be broadcast together with shapes \({NUMBERS}\) \({NUMBERS}\)")(_shapes),
)

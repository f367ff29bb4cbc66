"""PyTorch's errors of shapes and indices, on the CPU and on CUDA."""

from __future__ import annotations

import re

from .explanation import Told, ints, reader, says
from .masks import mask_and_scores

ENGINE = "PyTorch"
AXES = {0: "rows", 1: "heads", 2: "length", 3: "keys or head_dim"}


def _broadcast(found: re.Match[str]) -> Told:
    one, other, axis = int(found[1]), int(found[2]), int(found[3])
    more = abs(one - other)
    numbers = ((f"size of axis {axis} on one side", one), ("on the other", other), ("difference", more))
    if axis == 3:
        return Told(
            f"scores have {one} keys and the mask {other}, or the other way round: {more} keys apart. A mask of the call's "
            "length means that the past is missing from it; one that is longer, that a counter went on where the cache did not",
            "make the mask for the tokens that the cache holds, plus those of the call",
            numbers,
        )
    if axis == 2:
        return Told(
            f"two tensors are {more} positions apart along the length: the mask, positions or rotations are of another call "
            "than the keys",
            "make positions and mask for the tokens of this very call",
            numbers,
        )
    what = AXES.get(axis, "an axis")
    return Told(
        f"two tensors differ in {what}: {one} and {other}",
        "a cache of other rows than the call's, or one that was not reordered with the rest, gives this: select its rows",
        numbers,
    )


def _expand(found: re.Match[str]) -> Told | None:
    target, tensor = ints(found[4]), ints(found[5])
    if len(tensor) == 2 and len(target) == 4 and (told := mask_and_scores(tensor, target)):
        return told
    room, new, axis = int(found[1]), int(found[2]), int(found[3])
    if axis == len(target) - 2 and room < new:
        return Told(
            f"{new} tokens are written where the buffer has room for {room}",
            f"refuse the call before anything is written, or make the buffer longer by {new - room}",
            (("tokens in the call", new), ("slots left", room)),
        )
    if len(tensor) == len(target) == 4 and axis in (2, 3):
        return mask_and_scores(tensor, target)
    return Told(
        f"a tensor of size {new} along axis {axis} is put where {room} is due",
        "compare rows, heads and length of what is stored with those of the call",
        (("due", room), ("given", new), ("axis", axis)),
    )


def _cat(found: re.Match[str]) -> Told:
    axis, due, got = (int(found[at]) for at in (1, 2, 3))
    numbers = (("joined along axis", axis), ("size of the first", due), ("size of the next", got))
    if axis in (3, -1):
        return Told(
            f"blocks of lengths {due} and {got} are joined along head_dim (the last axis) instead of along the length",
            "join keys and values along axis 2 of [rows, heads, length, head_dim]",
            numbers,
        )
    return Told(
        f"a new block differs from what is cached in an axis that must be equal, rows or heads: {due} and {got}",
        "make a new cache for another number of rows, or select those of the old one; check keys' heads under grouped queries",
        numbers,
    )


def _bmm(found: re.Match[str]) -> Told:
    due, got = ints(found[1])[-1], ints(found[2])[-1]
    numbers = (("due", due), ("given", got))
    if due and got and got % due == 0 and got > due:
        return Told(
            f"queries have head_dim {due} and keys {got}, {got // due} times as much: blocks were joined along head_dim; "
            "or weights over fewer keys meet more values",
            "join keys and values along the length; check that both have been stored equally often",
            numbers,
        )
    return Told(
        f"{due} is multiplied with {got}: weights over {due} keys meet {got} values, or head_dim differs",
        "store keys and values together: as many of one as of the other, in every layer",
        numbers,
    )


def _static(found: re.Match[str]) -> Told:
    place, size = int(found[1]), int(found[2])
    return Told(
        f"position {place} is written to a cache of {size} slots, 0 to {size - 1}",
        "make the cache longer (max_cache_len), or stop at its end; after a reset, start from position 0",
        (("position passed", place), ("slots", size)),
    )


def _index(found: re.Match[str]) -> Told:
    place, size = int(found[1]), int(found[3])
    return Told(
        f"{place} is looked up in a table of {size}, 0 to {size - 1}: a position past the last (or a row that is not there)",
        f"refuse what lies past {size} positions before any state is touched; check that the counter starts at 0",
        (("position or row passed", place), ("table", size)),
    )


def _narrow(found: re.Match[str]) -> Told:
    start, length, size = (int(found[at]) for at in (1, 2, 3))
    return Told(
        f"positions {start} to {start + length - 1} are asked of a table or buffer of {size}",
        "refuse a call that goes past the end before any state is touched; check what advances the position",
        (("position passed", start), ("tokens in the call", length), ("limit", size)),
    )


def _slices(found: re.Match[str]) -> Told:
    due, got = ints(found[1]), ints(found[2])
    numbers = (("rows of the cache", due[0]), ("rows of the call", got[0])) if due and got else ()
    return Told(
        "a static cache was made for other rows than the call has",
        "make a new cache for another number of rows: a reset keeps the old one",
        numbers,
    )


SIZES = r"\[((?:-?\d{1,12}, ?)*-?\d{1,12})\]"

READERS = (
    reader(
        ENGINE,
        r"The expanded size of the tensor \((\d{1,12})\) must match the existing size \((\d{1,12})\) at non-singleton "
        rf"dimension (\d{{1,3}})\. Target sizes: {SIZES}\. Tensor sizes: {SIZES}",
    )(_expand),
    reader(
        ENGINE,
        r"The size of tensor a \((\d{1,12})\) must match the size of tensor b \((\d{1,12})\) at non-singleton "
        r"dimension (\d{1,3})",
    )(_broadcast),
    reader(
        ENGINE,
        r"Sizes of tensors must match except in dimension (-?\d{1,3})\. Expected size (\d{1,12}) but got size (\d{1,12})",
    )(_cat),
    reader(ENGINE, rf"Expected size for first two dimensions of batch2 tensor to be: {SIZES} but got: {SIZES}")(_bmm),
    reader(ENGINE, r"index_copy_\(\): index (\d{1,12}) is out of bounds for dimension 2 with size (\d{1,12})")(_static),
    reader(
        ENGINE,
        r"index_copy_\(\): Source/destination tensor must have same slice shapes\. Destination slice shape: "
        r"((?:\d{1,12} ?){1,8}) at dimension \d{1,3} and source slice shape: ((?:\d{1,12} ?){1,8})",
    )(_slices),
    reader(ENGINE, r"index (-?\d{1,12}) is out of bounds for dimension (\d{1,3}) with size (\d{1,12})")(_index),
    reader(ENGINE, r"start \((\d{1,12})\) \+ length \((\d{1,12})\) exceeds dimension size \((\d{1,12})\)")(_narrow),
    says(
        ENGINE,
        r"index out of range in self",
        "an embedding was asked for a row that it has not: a token id outside the vocabulary, or a position outside a table "
        "of learned positions",
        "print the largest token id and the largest position of the failing call: one of them is at or past its table's size, "
        "or below 0",
    ),
    says(
        "PyTorch on CUDA",
        r"srcIndex < srcSelectDimSize",
        "an embedding was asked for a row that it has not: a token id outside the vocabulary, or a position outside a table "
        "of learned positions. The process is lost; later errors are echoes",
        "run the same program on the CPU, where the error names the call; print the largest token id and position of that call",
    ),
    says(
        "PyTorch on CUDA",
        r"index_copy_\(\): index out of bounds",
        "a position past the end of a static cache was written",
        "make the cache longer (max_cache_len), or stop at its end; after a reset, start from position 0",
    ),
    says(
        "PyTorch on CUDA",
        r'index < sizes\[i\] && "index out of bounds"',
        "a tensor was indexed past its end: a table of positions, a mask or a cache",
        "run the same program on the CPU, where the error names index and size",
    ),
    says(
        "PyTorch on CUDA",
        r"device-side assert triggered",
        "a kernel met an index outside its table; with a cache it is nearly always a position or a token id. The line that is "
        "named is that of a later call, for kernels run behind",
        "run the same program on the CPU, or with CUDA_LAUNCH_BLOCKING=1, and read that error",
    ),
)

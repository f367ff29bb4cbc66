"""candle's errors other than that of a mask."""

from __future__ import annotations

import re

from .explanation import Told, reader


def _narrow(found: re.Match[str]) -> Told:
    rows, start, length = int(found[1]), int(found[2]), int(found[3])
    return Told(
        f"the table of rotations has {rows} rows, positions 0 to {rows - 1}, and the call asks for {start} to "
        f"{start + length - 1}",
        f"stop, or start a new cache, at {rows} tokens; a table for more is made when the model is loaded",
        (("position passed", start), ("tokens in the call", length), ("limit", rows)),
    )


READERS = (
    reader(
        "candle",
        r"narrow invalid args start \+ len > dim_len: \[(\d{1,12})(?:, ?\d{1,12})*\], dim: 0, "
        r"start: (\d{1,12}), len: ?(\d{1,12})",
    )(_narrow),
)

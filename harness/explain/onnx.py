"""onnxruntime's errors of inputs that do not fit the past."""

from __future__ import annotations

import re

from .explanation import Told, reader, says

ENGINE = "onnxruntime"


def _dimensions(found: re.Match[str]) -> Told:
    name, axis, got, due = found[1], int(found[2]), int(found[3]), int(found[4])
    return Told(
        f"axis {axis} of {name} is {got}, and {due} is due: an attention mask is as long as past and call together, the past "
        "as long as what was cached",
        "give the mask past + call tokens, and pass the present of the last call as past, for every layer",
        (("given", got), ("due", due), ("axis", axis)),
    )


def _axes(found: re.Match[str]) -> Told:
    one, other = int(found[1]), int(found[2])
    return Told(
        f"two lengths do not fit: {one} and {other}, {abs(one - other)} apart: the mask or the positions are of another length "
        "than past and call together",
        "make attention_mask as long as past and call together; position_ids start at the length of the past",
        (("one length", one), ("the other", other)),
    )


READERS = (
    reader(
        ENGINE,
        r"Got invalid dimensions for input: ([\w.\-/]{1,80}) for the following indices index: (\d{1,3}) Got: (\d{1,12}) "
        r"Expected: (\d{1,12})",
    )(_dimensions),
    reader(ENGINE, r"Attempting to broadcast an axis by a dimension other than 1\. (\d{1,12}) by (\d{1,12})")(_axes),
    says(
        ENGINE,
        r"raw attention mask shall have shape batch_size x \(past_sequence_length \+ sequence_length\)",
        "the mask is of the call's length, and keys include the past",
        "make attention_mask as long as past and call together",
    ),
)

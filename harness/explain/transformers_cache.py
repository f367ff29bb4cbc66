"""What transformers says of its caches."""

from __future__ import annotations

import re

from .explanation import Told, ints, reader, says
from .masks import mask_and_scores

ENGINE = "transformers"


def _positive(found: re.Match[str]) -> Told:
    asked = int(found[1])
    return Told(
        f"crop was given {asked}; it counts the tokens to remove, as a negative number, where older versions took the length "
        "to keep",
        f"to keep {asked} tokens, call crop({asked} - cache.get_seq_length())",
        (("given", asked),),
    )


def _mask(found: re.Match[str]) -> Told | None:
    due, got = ints(found[1]), ints(found[2])
    if len(due) != 4 or len(got) < 2:
        return None
    if told := mask_and_scores(got[-2:], due):
        return told
    return Told(
        f"the mask is for {got[-1]} keys, and there are {due[-1]}",
        "leave the mask out, or make it as long as the past and the call together",
        (("keys", due[-1]), ("keys in the mask", got[-1])),
    )


READERS = (
    reader(ENGINE, r"Calling `crop` with a positive value \(`(\d{1,12})`\) is not supported")(_positive),
    says(
        ENGINE,
        r"can only be cropped by passing a negative int",
        "crop counts the tokens to remove, as a negative number",
        "to keep n tokens, call crop(n - cache.get_seq_length())",
    ),
    says(
        ENGINE,
        r"`crop` was called, but the current layer does not track past states",
        "a window that is full, or a recurrent state, has already dropped what the rollback would need",
        "call activate_past_recording before the first token is fed; without it such a cache cannot be rolled back",
    ),
    says(
        ENGINE,
        r"is not croppable|not croppable",
        "this cache keeps layers that cannot be rolled back",
        "ask is_croppable first; feed the kept tokens to a fresh cache instead",
    ),
    reader(ENGINE, r"[Aa]ttention mask should be of size \(?([\d, ]{1,60})\)?, but is (?:torch\.Size\()?\[?\(?([\d, ]{1,60})")(
        _mask
    ),
    says(
        ENGINE,
        r"object has no attribute '(?:get_max_length|get_usable_length|seen_tokens|key_cache|value_cache)'",
        "the model's own code was written for an older cache: this name is gone",
        "use get_seq_length and layers, or a version of transformers that the model's code was written for",
    ),
    says(
        ENGINE,
        r"You called `get_seq_length` on layer index",
        "the layer asked has no keys: a recurrent or linear layer keeps a state, not tokens",
        "ask a layer with attention, or the cache as a whole",
    ),
    says(
        ENGINE,
        r"Cannot call `update_(?:conv|recurrent)_state` on a non-LinearAttention layer",
        "the cache was made without the model's configuration, so that its layers are of the wrong kind",
        "make it as DynamicCache(config=model.config)",
    ),
)

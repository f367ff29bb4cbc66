"""What the faults of the engines in JavaScript and C must be called."""

from __future__ import annotations

COMMON = {
    "pos_zero": "positions restart at 0 in every call",
    "pos_per_call": "the position counter advances by calls, not by tokens",
    "pos_minus_3": "positions behind a prefill are shifted by -3",
    "no_cat": "a call's keys and values replace the old ones",
    "layers_swapped": "a layer reads another layer's past",
    "no_mask": "there is no causal mask",
    "mask_one_ahead": "a token sees the one after it",
    "mask_top_left": "the mask is aligned at its top left: keys are compared with the row of the call",
    "crop_ignored": "crop does nothing",
    "fork_shares_buffer": "a fork shares its buffer with the original",
}
JAVASCRIPT = {
    **COMMON,
    "kv_mismatch": "keys and values are concatenated in opposite orders",
    "crop_one_layer": "only the first layer is cropped",
    "reset_keeps_length": "the cache is cleared, the position counter is not",
    "select_keys_only": "rows are reordered for keys, not for values",
}
C = {
    **COMMON,
    "first_call_not_stored": "the first call's keys and values are not stored",
    "values_behind": "values are stored one slot too late on a warm cache",
    "tail_attended": "the unused slots of a buffer are seen",
    "crop_keeps_position": "a crop does not roll the position counter back",
    "reset_ignored": "reset does nothing: a new prompt lands behind the old one",
    "limit_off_by_one": "one position past the limit is accepted",
    "limit_wraps": "past the limit the cache begins anew, and positions wrap around",
}

"""llama.cpp's errors of decoding, and those of its bindings."""

from __future__ import annotations

import re

from .explanation import Told, reader, says

ENGINE = "llama.cpp"


def _positions(found: re.Match[str]) -> Told:
    last, start = int(found[1]), int(found[2])
    held = last + 1
    numbers = (("tokens really cached", held), ("position passed", start), ("position due", held))
    if start > held:
        kept = "the memory was cleared and n_past was not" if not held else "n_past counts tokens that were never decoded"
        return Told(
            f"the batch starts {start - held} positions past the end of what is cached: {kept}, or a decode failed and was "
            "counted all the same",
            f"pass position {held}, or decode what is missing first",
            numbers,
        )
    if start == 0:
        return Told(
            f"a new prompt starts at position 0, and the sequence still holds {held} tokens",
            "clear the sequence first: llama_memory_seq_rm(mem, seq, -1, -1)",
            numbers,
        )
    return Told(
        f"the batch starts at position {start}, and the sequence holds {held} tokens, {held - start} too many: drafts or a "
        "prompt that was edited were not removed, or the last token is fed again",
        f"remove what was rejected first: llama_memory_seq_rm(mem, seq, {start}, -1); recurrent memory and windows cannot",
        numbers,
    )


def _no_slot(found: re.Match[str]) -> Told:
    return Told(
        f"no room for {int(found[1])} more tokens: the cache is full, or, with a window or several sequences, in pieces",
        "count the tokens of all sequences against n_ctx; remove old ones, or make the context longer",
        (("tokens in the batch", int(found[1])),),
    )


RETURNED = {
    1: (
        "no room in the cache for this batch; nothing was stored",
        "make n_ctx larger or the batch smaller, or remove old tokens; do not advance n_past by a batch that failed",
    ),
    2: (
        "decoding was aborted, and what was processed before it stays in the memory",
        "ask the memory how far it got, and go on from there",
    ),
    -1: (
        "the batch is not valid: mostly positions that do not follow what is cached, or a token outside the vocabulary",
        "read the lines before this one: they name the sequence, the last position stored and the one passed",
    ),
}


def _returned(found: re.Match[str]) -> Told:
    code = int(found[1])
    means, mend = RETURNED.get(
        code, ("decoding failed for good, and what the memory holds is not known", "start again from an empty context")
    )
    return Told(means, mend, (("return code", code),))


def _window(found: re.Match[str]) -> Told:
    asked, limit = int(found[1]), int(found[2])
    return Told(
        f"{asked} tokens are more than the context of {limit} holds, by {asked - limit}",
        "make the context longer (n_ctx), or shorten the prompt; past turns count too",
        (("tokens", asked), ("limit", limit)),
    )


READERS = (
    reader(
        ENGINE,
        r"the last position stored in the memory module of the context \(i\.e\. the KV cache\) for sequence \d{1,9} is "
        r"X = (-?\d{1,12})[\s-]+the tokens for sequence \d{1,9} in the input batch have a starting position of "
        r"Y = (-?\d{1,12})",
    )(_positions),
    reader(ENGINE, r"failed to find (?:a )?(?:KV cache|memory) slot for (?:u?batch) of size (\d{1,12})")(_no_slot),
    reader("llama-cpp-python", r"Requested tokens \((\d{1,12})\) exceed context window of (\d{1,12})")(_window),
    reader("llama-server", r"request \((\d{1,12}) tokens\) exceeds the available context size \((\d{1,12}) tokens\)")(_window),
    says(
        ENGINE,
        r"inconsistent sequence positions|does not start from the last position stored in the memory",
        "the positions of the batch do not follow what the sequence holds",
        "pass as position the number of tokens that the sequence holds (llama_memory_seq_pos_max + 1); clear it before a new "
        "prompt",
    ),
    says(
        ENGINE,
        r"failed to find free space in the KV cache|could not find a KV slot|NoKvSlot|KV cache is full",
        "no room for this batch: the cache is full, or in pieces",
        "count the tokens of all sequences against n_ctx; remove old ones, or make the context longer",
    ),
    reader(ENGINE, r"(?:llama_decode|llama_encode|decode)[^\n]{0,60}?(?:ret(?:urn(?:ed)?(?: code)?)?) ?=? ?(-?\d{1,4})")(
        _returned
    ),
    reader("llama-cpp-python", r"llama_decode returned (-?\d{1,4})")(_returned),
    says(
        ENGINE,
        r"llama_decode\(?\)? failed|failed to decode",
        "a batch was not decoded: the cache is full, or positions do not follow what it holds; the return code tells",
        "look for `ret =` and for the lines before it; do not advance n_past by a batch that failed",
    ),
)

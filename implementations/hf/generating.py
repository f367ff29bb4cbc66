"""The library's own `generate`, greedy and with beams, by its public API."""

from __future__ import annotations

import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig, GenerationMixin
from transformers.utils import logging

from ...harness.errors import Unsupported
from ...harness.implementation import WAYS
from ...harness.runner import error_text
from .caches import Kind
from .model import Model

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "greedy": {},
    "padded": {},
    "static": {"cache_implementation": "static", "disable_compile": True},
    "chunked": {"prefill_chunk_size": 4, "disable_compile": True},
    "lookup": {"prompt_lookup_num_tokens": 3, "max_matching_ngram_size": 2},
    "beams": {"num_beams": 3, "length_penalty": 0.0},
}
"""What each way means here. Without a penalty for length a beam's score is the sum of its log-probabilities."""


def ways(model: Model, kind: Kind) -> tuple[str, ...]:
    """Ways that are asked of a model with a kind of cache. `static` names the cache itself, so it is asked where the target
    leaves the cache to the library, or wants that one."""
    can = getattr(model.module, "can_generate", None)
    if can is None or not can() or not hasattr(model.module, "generate"):
        return ()
    if next(kind for kind in type(model.module).__mro__ if "generate" in vars(kind)) is not GenerationMixin:
        return ()  # one of its own, which makes something else: sound, say
    if _appends(model):
        return ()  # a token of its own stands behind the text at each step: no plain pass chooses as it does
    lacks = {"static"} if kind.name not in ("default", "static") else set[str]()
    return tuple(way for way in WAYS if way not in lacks and (way != "padded" or "attention_mask" in model.takes))


def _appends(model: Model) -> bool:
    """Does it give its forward pass more tokens than it was given?"""
    tokens = torch.full((1, 3), model.text, device=model.device)
    try:
        made = model.module.prepare_inputs_for_generation(tokens, is_first_iteration=True)["input_ids"]
    except Exception:
        return False
    return isinstance(made, torch.Tensor) and made.shape[-1] > tokens.shape[-1]


def generated(model: Model, cache: Any, prompts: Sequence[Sequence[int]], count: int, way: str) -> list[list[int]]:
    """The next `count` tokens of each prompt. `cache`: an empty one of the target's kind, None where the library chooses.

    Raises `Unsupported` with the library's own words where it refuses.
    """
    longest = max(map(len, prompts))
    padding = min(model.padding, default=0)
    tokens = torch.tensor([[padding] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    given: dict[str, Any] = dict(SETTINGS[way])
    if cache is not None and way != "static":
        given[model.cache_word] = cache
    if model.padding:
        given["suppress_tokens"] = sorted(model.padding)
    with model.running(), _plain_settings(model.module):
        try:
            text = model.module.generate(
                tokens.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=count,
                do_sample=False,
                pad_token_id=padding,
                **given,
            )
        except (ValueError, NotImplementedError, RuntimeError) as error:
            if _refuses(error):
                raise Unsupported(f"generate refuses: {error_text(error)}") from None
            raise
    return [row[longest:].tolist() for row in text]


@contextmanager
def _plain_settings(module: Any) -> Generator[None]:
    """No settings of the model's own: a token that ends a text is taken from there even where None is asked for."""
    kept, verbosity = module.generation_config, logging.get_verbosity()
    module.generation_config = GenerationConfig()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        module.generation_config = kept
        logging.set_verbosity(verbosity)


def _refuses(error: Exception) -> bool:
    """Did the library's generation or its caches raise this themselves, and no model in the middle of its pass?"""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = Path(last.filename)
    said = not isinstance(error, RuntimeError) or (last.line or "").startswith("raise")  # torch raises it too
    return said and (place.parent.name == "generation" or place.name == "cache_utils.py")

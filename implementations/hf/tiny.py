"""A tiny random model of any decoder architecture that the installed transformers has."""

from __future__ import annotations

import inspect
import re
from difflib import get_close_matches

import torch
import transformers
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel

from ...harness.errors import AdapterError, TargetError, Unsupported
from .exceptions import IMPOSSIBLE, VOCABULARY
from .init import calibrate, draw
from .names import architectures, causal, model_class
from .sizes import tiny

__all__ = ["architectures", "build", "configuration"]


def build(model_type: str, seed: int = 0) -> PreTrainedModel:
    """A causal decoder of this architecture in float32 on the CPU, in eval mode, without gradients.

    Attention and experts are the eager ones. The same seed gives the same weights, and the global random state is left
    as it was. Tokens are those below the last of the vocabulary: the last one means padding to some models.

    Raises Unsupported where no causal decoder can be built here, with the reason; TargetError for an unknown name;
    AdapterError where the small sizes do not go together.
    """
    config = configuration(model_type)
    model = _class(model_type)
    inputs = list(inspect.signature(model.forward).parameters.values())[1:]
    if needed := [
        p.name for p in inputs if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "input_ids"
    ]:
        raise Unsupported(f"{model.__name__} cannot be called with text alone: it needs {', '.join(needed)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            built = model._from_config(config, attn_implementation="eager", experts_implementation="eager")
        except ImportError as error:
            raise Unsupported(_lacking(error)) from error
        except Exception as error:
            raise AdapterError(f"no tiny {model_type}: {_one_line(error)}") from error
        built.float().eval()  # inside `lifted()` a few parameters are still narrow
        draw(built, seed)
        built.requires_grad_(False)
        calibrate(built, VOCABULARY, seed)
    return built


def configuration(model_type: str) -> PreTrainedConfig:
    """The tiny configuration. Raises as `build` does."""
    if model_type not in architectures():
        near = get_close_matches(model_type, architectures(), n=3, cutoff=0.5)
        hint = f"near: {', '.join(near)}" if near else "'kvconform list targets' shows them"
        raise TargetError(f"transformers {transformers.__version__} has no architecture {model_type!r}; {hint}")
    if model_type in IMPOSSIBLE:
        raise Unsupported(IMPOSSIBLE[model_type])
    model = _class(model_type)
    try:
        config = CONFIG_MAPPING[model_type]()
        if config.is_encoder_decoder and model_type not in causal():
            raise Unsupported(f"{model.__name__} is an encoder with a decoder; the library has no causal decoder of it alone")
        return tiny(_part(config, model))
    except Unsupported:
        raise
    except Exception as error:  # the library's checks raise many kinds
        raise AdapterError(f"no tiny configuration of {model_type}: {_one_line(error)}") from error


def _class(model_type: str) -> type[PreTrainedModel]:
    return getattr(transformers, str(model_class(model_type)))


def _part(config: PreTrainedConfig, model: type[PreTrainedModel]) -> PreTrainedConfig:
    """The part of a composite configuration that the model class takes: often the text part alone."""
    wanted = model.config_class or PreTrainedConfig
    return next(
        (part for part in (config, *(getattr(config, key) for key in config.sub_configs)) if isinstance(part, wanted)), config
    )


def _lacking(error: ImportError) -> str:
    """Which package is missing: the library's own messages fill a paragraph."""
    names = re.findall(r"pip install ([\w-]+)", str(error)) or [error.name or _one_line(error)]
    return f"not installed, and needed by one of its parts: {', '.join(dict.fromkeys(names))}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

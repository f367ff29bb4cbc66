"""Tiny configurations: every size of a library default made small and distinct, by the name of its field.

Sizes are told by field names, since the same few names serve some two hundred architectures; what the names do not tell
stands in `EXCEPTIONS`, each with its reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields as dataclass_fields
from itertools import pairwise
from typing import Any

from transformers import PreTrainedConfig

from .exceptions import EXCEPTIONS, SINGLE_LAYERS, SPECIAL, VOCABULARY

HIDDEN = 96
HEADS = 6
HEAD_DIM = 32
"""Where the class lets it differ from hidden size ÷ heads, which is 16."""
ROTARY = 8
"""Rotated part of a head where keys come of a latent vector."""
IMAGE = 56
POSITIONS = 512
TABLE = 112
"""Length of a learned position table: short, so that programs can reach its end."""

SIZES: tuple[tuple[str, Any], ...] = (
    ("vocab_size|vocab_size_per_layer_input|unpadded_vocab_size", VOCABULARY),
    ("hidden_size|d_model|n_embd|dim_model|emb_dim|embedding_dim|embed_dim|lru_width|word_embed_proj_dim", HIDDEN),
    ("n_embed|embedding_size|encoder_hidden_size|out_hidden_size|text_hidden_size|hidden_size_global", HIDDEN),
    ("projection_dim|projector_hidden_size|image_token_embed_dim", 64),
    ("moe_hidden_size", 48),
    ("num_embeddings", 128),
    ("image_size", IMAGE),
    ("num_attention_heads|n_heads?|num_heads|attention_heads|(en|de)coder_attention_heads", HEADS),
    ("num_(en|de)coder_attention_heads|num_attention_heads_per_layer", HEADS),
    ("mamba_n_heads|mamba_num_heads|n_mamba_heads", 12),
    ("mamba_d_head|mamba_head_dim", 16),
    ("mamba_d_ssm", 192),
    ("num_key_value_heads|num_kv_heads|kv_n_heads|num_query_groups", 2),
    ("head_dim|d_head|attention_head_size|kv_channels|dim_head|d_kv", HEAD_DIM),
    ("intermediate_size|(en|de)coder_ffn_dim|ffn_dim|n_inner|d_inner|dff|dim_ff|ffn_hidden_size|feed_forward_size", 80),
    ("dense_intermediate_size|intermediate_size_mlp|prefix_dense_intermediate_size", 88),
    ("moe_intermediate_size|expert_ffn_hidden_size|ffn_hidden_size", 40),
    ("(moe_)?shared_experts?_intermediate_size|shared_intermediate_size", 56),
    ("max_position_embeddings|max_sequence_length|model_max_length|context_length", POSITIONS),
    ("n_positions|n_ctx|max_target_positions|max_source_positions|max_seq_len", TABLE),
    ("original_max_position_embeddings", 128),
    ("num_experts|n_routed_experts|num_local_experts|moe_num_experts", 8),
    ("n_group|num_expert_group", 4),
    ("topk_group", 2),
    ("zero_expert_num", 3),
    ("sliding_window|sliding_window_size|window_size|attention_window_size|swa_window_size|local_attention", 8),
    ("local_attention_window_len|keep_window_size", 8),
    ("attention_chunk_size|(mamba_)?chunk_size", 8),
    ("swa_num_attention_heads", 4),
    ("swa_num_key_value_heads", 2),
    ("swa_head_dim", 24),
    ("d_rel", 12),
    ("rel_extent", 16),
    ("q_lora_rank", 40),
    ("kv_lora_rank", 24),
    ("o_lora_rank", 20),
    ("qk_nope_head_dim", 16),
    ("qk_rope_head_dim", ROTARY),
    ("v_head_dim", 20),
    ("index_head_dim|indexer_head_dim", 16),
    ("index_n_heads|indexer_n_heads", 16),
    ("index_topk|index_topk_tokens", 8),
    ("state_size|ssm_state_size|mamba_d_state", 12),
    ("time_step_rank|mamba_dt_rank", 7),
    ("linear_key_head_dim", 16),
    ("linear_value_head_dim", 24),
    ("linear_num_key_heads", 2),
    ("linear_num_value_heads", 4),
    ("linear_head_dim", 16),
    ("linear_num_heads", 3),
    ("rotary_dim", ROTARY),
    ("index_kpool", 2),
    ("n_groups|mamba_n_groups|mamba_ngroups", 2),
    ("num_kv_shared_layers", 2),
    ("attn_layer_period", 3),
    ("attn_layer_offset|expert_layer_offset", 1),
    ("expert_layer_period", 2),
    ("num_codebooks", 1),
)
"""Patterns of field names, and the size that such a field gets. The first that matches counts."""

CAPS: tuple[tuple[str, int], ...] = (
    ("num_experts_per_tok(en)?|moe_topk|moe_k|top_k_experts", 2),
    ("n_shared_experts|num_shared_experts|moe_num_shared_experts", 2),
    ("first_k_dense_replace|num_dense_layers|moe_layer_start_index", 1),
    ("num_nextn_predict_layers|num_mtp_layers", 0),
)
"""Upper bounds for counts that keep a smaller default."""

LAYER_COUNTS = "num_hidden_layers|depth|layers|n_layers?|num_layers|(en|de)coder_layers|num_(en|de)coder_layers|num_blocks"
LAYERS = 4
"""Layers of a model whose layers are all alike: more than two, so that a slip of the layer index shows."""

MIXED_LAYERS = 5
"""Layers where kinds alternate by a period that another field gives."""

PERIODS = "_period$|_interval$|layer_step$|every_n_layers$"

MAX_LAYERS = 8

TOKENS = "(pad|bos|eos|sep|cls|mask|unk|eod|start|decoder_start|forced_bos|forced_eos)_token_id"
"""Special tokens of text. None where that is allowed, else the last of the vocabulary."""

SAME: frozenset[str] = frozenset({"transformers_version", "architectures", "id2label", "label2id", "model_type", "dtype"})


def tiny(default: PreTrainedConfig) -> PreTrainedConfig:
    """A configuration of the same class with small sizes; configurations inside it are made small too.

    Fields that the class derives from others are left to it. Raises whatever the class raises about sizes that do not
    go together.
    """
    fields = {name: vars(default).get(name, value) for name, value in default.to_dict().items() if name not in SAME}
    kept = kept_layers(fields)
    count = len(kept) or (MIXED_LAYERS if any(re.search(PERIODS, name) for name in fields) else LAYERS)
    declared = {field.name: str(field.type) for field in dataclass_fields(type(default))}
    required = frozenset(n for n, kind in declared.items() if "None" not in kind or n == "pad_token_id")
    given: dict[str, Any] = {}
    settable = declared.keys() | default.attribute_map.keys() | set(default.attribute_map.values())
    for name, value in fields.items():
        if name not in settable:  # the class derives it
            continue
        small = _field(name, value, kept, count, required)
        if small is not value or _is_override(default, name, value):
            given[name] = small
    if "qk_rope_head_dim" in fields:
        given["head_dim"] = ROTARY  # what rotary tables are made for
    if "rope_parameters" in given:
        width = given.get("head_dim") or HIDDEN // given.get("num_attention_heads", HEADS)
        multimodal = "mrope_section" in getattr(default, "ignore_keys_at_rope_validation", ())
        given["rope_parameters"] = _sections(given["rope_parameters"], width, multimodal)
    if "kv_lora_rank" in fields and fields.get("num_key_value_heads") == fields.get("num_attention_heads"):
        given["num_key_value_heads"] = given["num_attention_heads"]  # keys and values come of one latent: no groups
    if fields.get("per_layer_config") and kept:
        given["per_layer_config"] = _single_layers(fields["per_layer_config"], kept, SINGLE_LAYERS.get(default.model_type, {}))
    if set(fields.get("layer_types") or ()) == {"full_attention"} and fields.get("sliding_window"):
        given["layer_types"] = ["sliding_attention", "full_attention"] * (count // 2)  # it can have both
    given.update(EXCEPTIONS.get(default.model_type, {}))
    return type(default)(**given)


def _is_override(config: PreTrainedConfig, name: str, value: Any) -> bool:
    """Whether a configuration inside another was given this value in place of its class's own."""
    own = getattr(type(config), name, None)
    return isinstance(value, int | float | str) and isinstance(own, int | float | str) and value != own


def kept_layers(fields: Mapping[str, Any]) -> list[int]:
    """Which layers of the default stay, so that every kind of layer stays at least once, and most of them twice.

    A layer's kind is what all the lists about layers say of it. Long runs of one kind are cut to two layers at their
    first place and to one later, which keeps the order in which the kinds alternate. Empty where no field lists layers.
    """
    count = next((fields[n] for n in fields if re.fullmatch(LAYER_COUNTS, n) and isinstance(fields[n], int)), 0)
    indices = [set(v) for n, v in fields.items() if _lists_indices(n, v)]
    lists = [v for n, v in fields.items() if isinstance(v, list | tuple) and len(v) == count and not _lists_indices(n, v)]
    lists += [[index in wanted for index in range(count)] for wanted in indices]
    if not lists or count < 2:
        return []
    kinds = [repr(entries) for entries in zip(*lists, strict=True)]
    total, seen, kept = Counter(kinds), Counter[str](), list[int]()
    longest = 2 if len(total) > 1 else LAYERS
    run = 0
    for index, kind in enumerate(kinds):
        run = run + 1 if index and kind == kinds[index - 1] else 1
        if run > (longest if seen[kind] < longest else 1):
            continue
        kept.append(index)
        seen[kind] += 1
        if len(kept) >= LAYERS and all(seen[k] >= min(2, total[k]) for k in total):
            break
    kept += list(range(kept[-1] + 1, count))[: max(0, LAYERS - len(kept))]
    return kept[:MAX_LAYERS]


def _lists_indices(name: str, value: Any) -> bool:
    """Whether a field lists the layers of a kind by their indices, as `attn_layer_indices` does."""
    if (
        not re.search("(_idxs|_indices|_layers|layer_ids|_layers_ids)$", name)
        or not isinstance(value, list | tuple)
        or not value
    ):
        return False
    return all(type(entry) is int for entry in value) and all(a < b for a, b in pairwise(value))


def _field(name: str, value: Any, kept: Sequence[int], count: int, required: frozenset[str]) -> Any:
    """What a field becomes; the very same object where it stays."""
    if isinstance(value, PreTrainedConfig):
        return tiny(value)
    if re.fullmatch(LAYER_COUNTS, name) and isinstance(value, int):
        return count
    if _lists_indices(name, value):
        return [new for new, old in enumerate(kept) if old in value]
    if isinstance(value, list | tuple) and kept and len(value) > max(kept) and len(value) > 1:
        return [_field(name, value[index], (), 0, required) for index in kept]
    if re.fullmatch(TOKENS, name):
        return None if value is None or name not in required else SPECIAL
    if name == "is_decoder":
        return True
    if name == "rope_parameters" and isinstance(value, dict):
        return rotary(value)
    if name == "image_size" and isinstance(value, list | tuple):
        return [IMAGE] * len(value)
    if isinstance(value, float) and re.search("norm.*eps|_epsilon$|^eps$", name):
        return value * 30
    if name in ("head_dim", "num_key_value_heads") and value is None:
        return {"head_dim": HEAD_DIM, "num_key_value_heads": 2}[name]
    if not isinstance(value, int) or isinstance(value, bool) or value <= 1:
        return value
    for pattern, size in SIZES:
        if re.fullmatch(pattern, name):
            return size
    for pattern, cap in CAPS:
        if re.fullmatch(pattern, name):
            return min(cap, value)
    return value


def rotary(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary parameters with another base; they can be one set or a set for each type of layer."""
    if not any(isinstance(value, dict) for value in parameters.values()):
        theta = parameters.get("rope_theta")
        return {**parameters, "rope_theta": theta * 0.37} if theta else dict(parameters)
    return {kind: rotary(value) if isinstance(value, dict) else value for kind, value in parameters.items()}


def _sections(parameters: Mapping[str, Any], head_dim: int, multimodal: bool) -> dict[str, Any]:
    """Multimodal rotary sections (time, height, width) for another head size: they sum to half of what is rotated."""
    if not multimodal and "mrope_section" not in parameters:
        return dict(parameters)
    half = int(head_dim * parameters.get("partial_rotary_factor", 1.0)) // 2
    return {**parameters, "mrope_section": [half - 2 * (half // 3), half // 3, half // 3]}


def _single_layers(
    overrides: Mapping[Any, Mapping[str, Any]], kept: Sequence[int], exceptions: Mapping[str, Any]
) -> dict[int, dict[str, Any]]:
    """What single layers have otherwise than the rest, for the layers that stay: half as large again, fewer heads."""
    by_layer = {int(index): values for index, values in overrides.items()}
    return {
        new: {name: _other_size(name, _field(name, value, (), 0, frozenset())) for name, value in by_layer[old].items()}
        | dict(exceptions)
        for new, old in enumerate(kept)
        if old in by_layer
    }


def _other_size(name: str, size: Any) -> Any:
    if not isinstance(size, int) or isinstance(size, bool) or re.search("window|chunk", name):
        return size
    return {6: 4, 2: 1}.get(size, size) if "heads" in name else size + size // 2

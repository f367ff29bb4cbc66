"""What field names do not tell: sizes for single architectures, each with its reason; and what cannot be built."""

from __future__ import annotations

from typing import Any

VOCABULARY = 97

SPECIAL = VOCABULARY - 1
"""The one special token: padding, where a model needs a padding token. Programs must not draw it."""

EXCEPTIONS: dict[str, dict[str, Any]] = {
    "helium": {"head_dim": 16},
    "xlnet": {"d_head": 16, "attn_type": "uni"},
    "mamba2": {"num_heads": 12, "head_dim": 16},
    "dots1": {
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "num_experts_per_tok": 2,
        "n_group": 4,
        "topk_group": 2,
    },
    "deepseek_v2": {
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
    },
    "gemma4_text": {"num_kv_shared_layers": 2},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"], "num_hidden_layers": 5},
    "xlm": {"causal": True},
    "xmod": {"default_language": "en_XX"},
    "bamba": {"num_hidden_layers": 5, "attn_layer_indices": [1, 4]},
    "granitemoehybrid": {
        "num_hidden_layers": 5,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"],
    },
    "blt": {"encoder_hash_byte_group_vocab": 113},
    "cohere_compass_text": {
        "num_hidden_layers": 5,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 3700.0},
            "full_attention": {"rope_type": "default", "rope_theta": 3700.0},
        },
    },
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 3700.0, "clip_qkv": 8.0}},
    "dory": {
        "num_hidden_layers": 6,
        "n_input_layers": 2,
        "n_recurrent_layers": 2,
        "n_output_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
    },
    "xlstm": {"hidden_size": 128, "embedding_dim": 128, "num_heads": 4},
    "mimo_v2_flash": {"num_attention_heads": 8},
    "cohere": {"logit_scale": 0.4},
    "cohere2": {"logit_scale": 0.4},
    "cohere2_moe": {"logit_scale": 0.4},
    "recurrent_gemma": {"num_hidden_layers": 6},
    "gpt_neo": {"num_layers": 4, "attention_types": [[["global", "local"], 2]]},
    "roc_bert": {
        "shape_vocab_size": 101,
        "pronunciation_vocab_size": 103,
        "shape_embed_dim": 24,
        "pronunciation_embed_dim": 40,
    },
    "reformer": {
        "axial_pos_embds_dim": [32, 64],
        "axial_pos_shape": [8, 16],
        "max_position_embeddings": 128,
        "local_attn_chunk_length": 8,
        "attn_layers": ["local"] * 4,
        "lsh_attn_chunk_length": 8,
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 16,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 32,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
        "ple_layer_ids": [2, 4],
        "ple_embed_dim": 48,
        "heads_per_ngram": 2,
        "ngram_vocab_size_base": 101,
        "make_ngram_vocab_size_divisible_by": 8,
        "split_ngram_parts": 1,
        "hc_lowrank": 20,
        "eos_token_id": SPECIAL,
    },
    "deepseek_v4": {
        "head_dim": 64,
        "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 6},
        "o_groups": 2,
    },
}
"""By the configuration's model type."""

SINGLE_LAYERS: dict[str, dict[str, Any]] = {
    "dots3_note_text": {
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "kv_lora_rank": 36,
        "qk_nope_head_dim": 24,
        "head_dim": 32,
    },
}
"""What the layers that differ get in place of sizes told by names."""

IMPOSSIBLE: dict[str, str] = {
    "cpmant": "its forward pass lets every token of a prompt see all later ones: no causal decoder",
    "diffusion_gemma": "it fills a block of tokens by diffusion, not one token after another",
    "idefics": "its forward pass asks for images",
    "kosmos-2": "its forward pass asks for images",
    "gemma4_assistant": "it drafts for another model and reads that model's keys and values",
    "gemma4_unified_assistant": "it drafts for another model and reads that model's keys and values",
}

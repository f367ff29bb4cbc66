"""What field names do not tell: sizes for single architectures, each with its reason; and what cannot be built."""

from __future__ import annotations

from typing import Any

VOCABULARY = 97

SPECIAL = VOCABULARY - 1
"""The one special token: padding, where a model needs a padding token. Programs must not draw it."""

EXCEPTIONS: dict[str, dict[str, Any]] = {
    # the class takes hidden size ÷ heads whatever the field says
    "helium": {"head_dim": 16},
    # checked to be hidden size ÷ heads; by default every token sees all others
    "xlnet": {"d_head": 16, "attn_type": "uni"},
    # heads × head size must be twice the hidden size
    "mamba2": {"num_heads": 12, "head_dim": 16},
    # the default leaves experts open
    "dots1": {
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "num_experts_per_tok": 2,
        "n_group": 4,
        "topk_group": 2,
    },
    # the default leaves experts open
    "deepseek_v2": {
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "topk_method": "group_limited_greedy",
        "n_group": 4,
        "topk_group": 2,
    },
    # layers that share keys and values, as the small released models have
    "gemma4_text": {"num_kv_shared_layers": 2},
    # no default
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"], "num_hidden_layers": 5},
    # by default every token sees all others
    "xlm": {"causal": True},
    # no default
    "xmod": {"default_language": "en_XX"},
    # by default no attention layer
    "bamba": {"num_hidden_layers": 5, "attn_layer_indices": [1, 4]},
    # by default no attention layer
    "granitemoehybrid": {
        "num_hidden_layers": 5,
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"],
    },
    # tables of hashed byte groups
    "blt": {"encoder_hash_byte_group_vocab": 113},
    # no default that its own model accepts
    "cohere_compass_text": {
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 3700.0},
            "full_attention": {"rope_type": "default", "rope_theta": 3700.0},
        },
    },
    # by default no convolution layer
    "lfm2": {"num_hidden_layers": 5, "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"]},
    # the default has one layer of a kind
    "nemotron_h": {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention", "full_attention"]
    },
    # by default no sparse layer
    "minimax_m3_vl_text": {
        "num_hidden_layers": 4,
        "layer_types": ["full_attention", "minimax_m3_sparse", "full_attention", "minimax_m3_sparse"],
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        "index_n_heads": 2,
        "index_block_size": 4,
        "index_topk_blocks": 2,
    },
    # its model reads a base and a clipping that its configuration lacks
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 3700.0, "clip_qkv": 8.0}},
    # the class doubles its counts and layers where it prints them
    "dory": {
        "num_hidden_layers": 6,
        "n_input_layers": 2,
        "n_recurrent_layers": 2,
        "n_output_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
    },
    # sizes are rounded up to multiples of 64 in one place and not in another
    "xlstm": {"hidden_size": 128, "embedding_dim": 128, "num_heads": 4},
    # sliding layers have twice the kv heads, and heads must be a multiple of them
    "mimo_v2_flash": {"num_attention_heads": 8},
    # logits are multiplied by it; under the default the embedding would drown the layers
    "cohere": {"logit_scale": 0.4},
    # as cohere
    "cohere2": {"logit_scale": 0.4},
    # as cohere
    "cohere2_moe": {"logit_scale": 0.4},
    # the pattern is recurrent, recurrent, attention: twice
    "recurrent_gemma": {"num_hidden_layers": 6},
    # the pattern counts layers
    "gpt_neo": {"num_layers": 4, "attention_types": [[["global", "local"], 2]]},
    # tables of shapes and sounds
    "roc_bert": {
        "shape_vocab_size": 101,
        "pronunciation_vocab_size": 103,
        "shape_embed_dim": 24,
        "pronunciation_embed_dim": 40,
    },
    # chunks of hashed buckets depend on later tokens, so that only local layers are causal
    "reformer": {
        "axial_pos_embds_dim": [32, 64],
        "axial_pos_shape": [8, 16],
        "max_position_embeddings": 128,
        "local_attn_chunk_length": 8,
        "attn_layers": ["local"] * 4,
        "lsh_attn_chunk_length": 8,
    },
    # indexer and per-layer embeddings are off by default; the latter need a token that ends a text
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
    # an eighth of a head is rotated; short compression blocks, so that programs fill several
    "deepseek_v4": {
        "head_dim": 64,
        "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 6},
        "o_groups": 2,
    },
    # no default; the image token lies outside the vocabulary
    "chameleon": {"vocabulary_map": {"<image>": 1000}},
    # convolutions of a tower that text never enters
    "janus_vqgan": {"base_channels": 32},
    # convolutions of a tower that text never enters
    "muse_spark_audio": {"hidden_sizes": [16, 24, 32, 48]},
    # image and audio tokens must be part of the vocabulary
    "apertus1p5": {"image_token_offset": 33, "audio_token_offset": 65},
    # as above, and convolutions of a tower that text never enters
    "apertus1p5_vision_tokenizer": {"codebook_size": 32, "base_channels": 32},
    # as above
    "wavtokenizer_encoder": {"codebook_dim": 96, "codebook_size": 32},
    # its model splits the rotated part by sections that its configuration lacks
    "paddleocr_vl_text": {"rope_parameters": {"rope_type": "default", "rope_theta": 3700.0, "mrope_section": [6, 5, 5]}},
    # the default leaves experts open
    "deepseek_ocr2_text": {
        "num_experts_per_tok": 2,
        "num_hidden_layers": 4,
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    },
    # its model splits the rotated part by sections that its configuration lacks
    "ernie4_5_vl_moe_text": {"rope_parameters": {"rope_type": "default", "rope_theta": 3700.0, "mrope_section": [3, 3, 2]}},
    # multipliers for a wide model: here the embedding would drown the layers
    "granite_docling_text": {"embedding_multiplier": 2.0, "residual_multiplier": 1.0, "attention_multiplier": 0.25},
    # no defaults
    "granite4_vision": {"downsample_rate": "1/2", "deepstack_layer_map": [[-1, 1]], "spatial_target_layers": [2]},
    # half of a head is rotated
    "mistral4": {"qk_nope_head_dim": 8, "head_dim": 16},
    # layers of the vision tower
    "molmo2_adapter": {"vision_feature_layer": [2, 1]},
    # must be what the model around it says
    "radio": {"video_temporal_patch_size": 2},
    # its eager attention repeats no keys: no groups
    "unlimited_ocr_text": {"num_key_value_heads": 6},
    # by default no sliding layer
    "step3p5": {
        "num_hidden_layers": 4,
        "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        "sliding_window": 8,
        "num_sliding_attention_heads": 4,
    },
}
"""Fields by the configuration's model type, of whatever model it is a part."""

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

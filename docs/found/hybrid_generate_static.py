"""Hybrid sliding layers (inkling, inkling2): generate with a static cache makes them a mask without a window, and raises."""

import torch
from transformers import AutoModelForCausalLM, Inkling2TextConfig

torch.manual_seed(0)
config = Inkling2TextConfig(
    vocab_size=97, unpadded_vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=16, d_rel=8, rel_extent=16,
    n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, layer_types=["hybrid_sliding", "hybrid"],
    conv_kernel_size=4, initializer_range=0.2, sliding_window_size=8,
)  # fmt: skip
model, tokens, error = AutoModelForCausalLM.from_config(config).eval(), torch.arange(1, 13)[None], None
options = dict(attention_mask=torch.ones_like(tokens), max_new_tokens=8, do_sample=False, disable_compile=True)
print("dynamic:", model.generate(tokens, **options)[0, 12:].tolist())
try:
    print("static:", model.generate(tokens, cache_implementation="static", **options)[0, 12:].tolist())
except RuntimeError as error_:
    error = error_
print("static:", error)
raise SystemExit(error is None)

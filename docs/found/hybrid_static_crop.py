"""Hybrid layers of StaticCache (inkling2): crop rolls the convolution back, and leaves keys and the length as they are."""

import torch
from transformers import AutoModelForCausalLM, Inkling2TextConfig, StaticCache

torch.manual_seed(0)
config = Inkling2TextConfig(
    vocab_size=97, unpadded_vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, swa_num_attention_heads=4, swa_num_key_value_heads=2, swa_head_dim=16, d_rel=8, rel_extent=16,
    n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, layer_types=["hybrid"] * 2, conv_kernel_size=4,
    initializer_range=0.2,
)  # fmt: skip
model, cache = AutoModelForCausalLM.from_config(config).eval(), StaticCache(config=config, max_cache_len=32)
a = torch.arange(1, 11)[None]
b = torch.cat([a[:, :5], a[:, 5:] + 40], 1)
with torch.no_grad():
    cache.activate_past_recording()
    model(a[:, :8], cache=cache)
    can, _ = cache.is_croppable, cache.crop(-3)
    length = int(cache.get_seq_length())
    full = model(b, use_cache=False).logits[:, 5:]
    size = (model(b[:, 5:], cache=cache).logits - full).abs().max().item()
print(f"is_croppable {can}; eight tokens less three: length {length}; then five: max |Δ| {size:.3g} of {full.abs().max():.3g}")
raise SystemExit(size < 0.01)

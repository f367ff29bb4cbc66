"""deepseek_v4: crop and batch_select_indices change the window of keys only; buffers and compressed entries stay."""

import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM, DynamicCache

torch.manual_seed(0)
config = DeepseekV4Config(
    vocab_size=97, hidden_size=64, moe_intermediate_size=32, num_hidden_layers=3, num_attention_heads=4, head_dim=32,
    n_routed_experts=4, num_experts_per_tok=4, o_groups=2, o_lora_rank=16, index_n_heads=4, index_head_dim=16,
    index_topk=8, q_lora_rank=32,
    compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 4}, sliding_window=16,
    layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"],
    mlp_layer_types=["moe"] * 3, initializer_range=0.2,
)  # fmt: skip
model, cache, a = DeepseekV4ForCausalLM(config).eval(), DynamicCache(config=config), torch.arange(1, 10)[None]
with torch.no_grad():
    model(a[:, :8], cache=cache)
    can, _, b = cache.is_croppable, cache.crop(-6), torch.cat([a[:, :2], a[:, 2:] + 40], 1)
    size = (model(b[:, 2:], cache=cache).logits - model(b, use_cache=False).logits[:, 2:]).abs().max().item()
    cache = DynamicCache(config=config)
    model(torch.arange(1, 19).reshape(3, 6), cache=cache)
    cache.batch_select_indices(torch.tensor([0, 2]))
rows = cache.layers[2].keys.shape[0], cache.layers[2].compressed_kv["compressor"].shape[0]
print(f"is_croppable {can}; eight tokens, six taken back, seven others: max |Δ| {size:.3g}; rows after a selection {rows}")
raise SystemExit(size < 0.01 or rows[0] == rows[1])

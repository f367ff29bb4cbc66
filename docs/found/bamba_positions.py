"""bamba: a call without position_ids counts its positions from zero, whatever the cache holds."""

import torch
from transformers import BambaConfig, BambaForCausalLM, DynamicCache

torch.manual_seed(0)
config = BambaConfig(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, attn_layer_indices=[1], num_attention_heads=4,
    num_key_value_heads=2, mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16, mamba_chunk_size=8, initializer_range=0.2,
)  # fmt: skip
model = BambaForCausalLM(config).double().eval()
tokens = torch.arange(1, 13)[None]
with torch.no_grad():
    full = model(tokens, use_cache=False).logits
    cache, told = DynamicCache(config=config), DynamicCache(config=config)
    steps = [model(tokens[:, i : i + 1], cache=cache).logits for i in range(12)]
    right = [model(tokens[:, i : i + 1], cache=told, position_ids=torch.tensor([[i]])).logits for i in range(12)]
size = (torch.cat(steps, 1) - full).abs().max().item()
good = (torch.cat(right, 1) - full).abs().max().item()
print(f"token by token: max |Δ| {size:.3g} of {full.abs().max():.3g}; with position_ids {good:.1e}")
raise SystemExit(size < 0.01)

"""MiniMaxCache: reorder_cache and reset leave the state of the linear attention as it was."""

import torch
from transformers import MiniMaxConfig, MiniMaxForCausalLM

torch.manual_seed(0)
config = MiniMaxConfig(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, num_local_experts=2, layer_types=["full_attention", "linear_attention"], block_size=8, initializer_range=0.2,
)  # fmt: skip
model = MiniMaxForCausalLM(config).eval()
tokens, more, order = torch.arange(1, 13).reshape(2, 6), torch.tensor([[20], [30]]), torch.tensor([1, 0])
with torch.no_grad():
    cache = model(tokens, use_cache=True).cache
    cache.reorder_cache(order)
    swapped = model(more, cache=cache).logits
    full = model(torch.cat([tokens[order], more], 1), use_cache=False).logits[:, -1:]
    cache = model(tokens, use_cache=True).cache
    cache.reset()
    again, fresh = model(tokens.flip(1), cache=cache).logits, model(tokens.flip(1), use_cache=False).logits
sizes = [(swapped - full).abs().max().item(), (again - fresh).abs().max().item()]
print(f"after reorder_cache max |Δ| {sizes[0]:.3g}, after reset {sizes[1]:.3g}, of {fresh.abs().max():.3g}")
raise SystemExit(min(sizes) < 0.01)

"""recurrent_gemma: the recurrent state lies in the model, not in the cache, so that two caches share it."""

import torch
from transformers import DynamicCache, RecurrentGemmaConfig, RecurrentGemmaForCausalLM

torch.manual_seed(0)
config = RecurrentGemmaConfig(
    vocab_size=97, hidden_size=64, lru_width=64, num_hidden_layers=3, num_attention_heads=4, intermediate_size=192,
    attention_window_size=16, initializer_range=0.2, w_init_variance_scale=1.0,
)  # fmt: skip
model = RecurrentGemmaForCausalLM(config).double().eval()
a, b = torch.arange(1, 13)[None], torch.arange(40, 52)[None]
with torch.no_grad():
    full = model(a, use_cache=False).logits
    mine, other = DynamicCache(config=config), DynamicCache(config=config)
    parts = [model(a[:, :6], cache=mine).logits]
    model(b, cache=other)
    parts += [model(a[:, i : i + 1], cache=mine).logits for i in range(6, 12)]
    cache = DynamicCache(config=config)
    chunks = [model(a[:, :6], cache=cache).logits, model(a[:, 6:], cache=cache).logits]
sizes = [(torch.cat(x, 1) - full).abs().max().item() for x in (parts, chunks)]
print(f"another cache in between: max |Δ| {sizes[0]:.3g}; six tokens, then six: {sizes[1]:.3g}; of {full.abs().max():.3g}")
raise SystemExit(min(sizes) < 0.01)

"""Sliding layers keep the last `window - 1` tokens by a slice of -window + 1: a window of 1 makes that -0, and all are kept."""

import torch
from transformers import DynamicCache, MistralConfig, MistralForCausalLM

torch.manual_seed(0)
sizes = {}
for window in (1, 2):
    config = MistralConfig(
        vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, sliding_window=window, initializer_range=0.2,
    )  # fmt: skip
    model, cache = MistralForCausalLM(config).double().eval(), DynamicCache(config=config)
    tokens = torch.arange(1, 11)[None]
    with torch.no_grad():
        full = model(tokens, use_cache=False).logits
        steps = torch.cat([model(tokens[:, i : i + 1], cache=cache).logits for i in range(10)], dim=1)
    sizes[window] = (steps - full).abs().max().item()
    held = cache.layers[0].keys.shape[-2]
    print(f"window {window}: {held} tokens kept; token by token max |Δ| {sizes[window]:.3g} of {full.abs().max():.3g}")
raise SystemExit(sizes[1] < 0.01)

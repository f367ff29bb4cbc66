"""Static caches with sliding layers: crop behind the window is accepted and gives wrong logits; the dynamic cache raises."""

import torch
from transformers import DynamicCache, MistralConfig, MistralForCausalLM, StaticCache

torch.manual_seed(0)
config = MistralConfig(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    sliding_window=8, initializer_range=0.2,
)  # fmt: skip
model, tokens, sizes = MistralForCausalLM(config).double().eval(), torch.randint(4, 97, (1, 30)), {}
with torch.no_grad():
    full = model(tokens, use_cache=False).logits
    for cache in (StaticCache(config=config, max_cache_len=64), DynamicCache(config=config)):
        model(tokens[:, :20], cache=cache)
        try:
            cache.crop(-4)
            sizes["static"] = (model(tokens[:, 16:20], cache=cache).logits - full[:, 16:20]).abs().max().item()
            told = f"max |Δ| {sizes['static']:.3g} of {full.abs().max():.3g}; is_croppable says {cache.is_croppable}"
        except RuntimeError as error:
            told = f"RuntimeError: {error}"
        print(f"{type(cache).__name__}, four of 20 tokens taken back: {told}")
raise SystemExit(sizes["static"] < 0.01)

"""Sliding layers that record for a rollback keep a window after it: a second rollback is accepted, and the next call fails."""

import torch
from transformers import DynamicCache, MistralConfig, MistralForCausalLM

torch.manual_seed(0)
config = MistralConfig(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    sliding_window=8, initializer_range=0.2,
)  # fmt: skip
model, tokens, told = MistralForCausalLM(config).double().eval(), torch.randint(4, 97, (1, 30)), {}
with torch.no_grad():
    full = model(tokens, use_cache=False).logits
    for way in ((-4,), (-2, -2)):
        cache = DynamicCache(config=config)
        cache.activate_past_recording()
        model(tokens[:, :20], cache=cache)
        for removed in way:
            cache.crop(removed)
        try:
            told[way] = f"max |Δ| {(model(tokens[:, 16:18], cache=cache).logits - full[:, 16:18]).abs().max():.1e}"
        except RuntimeError as error:
            told[way] = f"RuntimeError: {error}"
        print(f"crop {way}: {cache.layers[0].keys.shape[-2]} tokens kept of a length of 16; {told[way]}")
raise SystemExit("RuntimeError" not in told[-2, -2])

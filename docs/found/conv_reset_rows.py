"""Convolutions and states keep their rows when reset: a single row is copied into both of them, and the next call sees two."""

import torch
from transformers import AutoModelForCausalLM, DynamicCache, Lfm2Config, LlamaConfig, Mamba2Config

torch.manual_seed(0)
told, size = {}, dict(vocab_size=97, hidden_size=64, num_hidden_layers=2)
heads = dict(intermediate_size=96, num_attention_heads=4, num_key_value_heads=2)
configs = [
    LlamaConfig(**size, **heads),
    Lfm2Config(**size, **heads, layer_types=["conv", "full_attention"]),
    Mamba2Config(**size, num_heads=8, head_dim=16, n_groups=1, state_size=16),
]
for config in configs:
    model, cache = AutoModelForCausalLM.from_config(config).double().eval(), DynamicCache(config=config)
    with torch.no_grad():
        model(torch.tensor([[1, 2], [3, 4]]), cache=cache)
        cache.reset()
        model(torch.tensor([[5]]), cache=cache)
        try:
            told[config.model_type] = f"logits {tuple(model(torch.tensor([[6]]), cache=cache).logits.shape)}"
        except RuntimeError as error:
            told[config.model_type] = f"RuntimeError: {error}"
print("two rows, reset, one row of two tokens:", told)
raise SystemExit("(1, 1, 97)" in told["lfm2"])

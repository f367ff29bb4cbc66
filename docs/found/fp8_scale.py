"""QuantizedCache("fp8") keeps the scale of its first call: behind a short prompt, larger keys and values are cut off."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, QuantizedCache

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    initializer_range=0.2,
)  # fmt: skip
model, tokens, sizes = LlamaForCausalLM(config).double().eval(), torch.randint(4, 97, (1, 60)), {}
with torch.no_grad():
    full = model(tokens, use_cache=False).logits
    for prompt in (1, 5, 10, 20, 40):
        cache = QuantizedCache("fp8", config)
        model(tokens[:, :prompt], cache=cache)
        steps = torch.cat([model(tokens[:, i : i + 1], cache=cache).logits for i in range(prompt, 60)], dim=1)
        sizes[prompt] = (steps - full[:, prompt:])[:, -20:].abs().max().item()
        keys, scale = cache.layers[0]._quantized_keys
        cut = (keys.float().abs() == torch.finfo(keys.dtype).max).double().mean().item()
        print(f"prompt of {prompt}: max |Δ| {sizes[prompt]:.3g} of {full.abs().max():.3g}; {cut:.1%} of its keys are cut off")
raise SystemExit(sizes[1] < 2 * sizes[40])

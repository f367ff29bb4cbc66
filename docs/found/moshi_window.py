"""moshi: the cache forgets what lies outside of the window, the mask does not: decoding sees less than the plain pass."""

import torch
from transformers import DynamicCache, MoshiConfig, MoshiForCausalLM

torch.manual_seed(0)
config = MoshiConfig(
    vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, ffn_dim=96, sliding_window=8, head_dim=16,
    audio_encoder_config={"model_type": "mimi"}, initializer_range=0.2,
)  # fmt: skip
model = MoshiForCausalLM(config).double().eval()
tokens, cache = torch.arange(1, 17)[None], DynamicCache(config=config)
with torch.no_grad():
    full = model(tokens, use_cache=False).logits
    short = model(tokens[:, -8:], use_cache=False).logits[:, -1]
    steps = [model(tokens[:, i : i + 1], cache=cache).logits for i in range(16)]
sizes = (torch.cat(steps, 1) - full).abs().amax((0, 2))
near, far = sizes[:8].max(), sizes[8:].max()
print(f"token by token: max |Δ| {near:.1e} in the window of 8, {far:.3g} of {full.abs().max():.3g} behind it")
print(f"does the plain pass forget? the last eight tokens alone give other logits: {(short - full[:, -1]).abs().max():.3g}")
raise SystemExit(sizes.max().item() < 0.01)

"""inkling: with a static cache each call counts its positions twice: the length it asks for is a tensor that update moves."""

import torch
from transformers import AutoModelForCausalLM, InklingTextConfig, StaticCache

torch.manual_seed(0)
config = InklingTextConfig(
    vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, d_rel=8,
    rel_extent=16, layer_types=["hybrid"] * 2, mlp_layer_types=["dense"] * 2, conv_kernel_size=4, intermediate_size=96,
    number_of_conv_states=4, sliding_window_size=32, initializer_range=0.2, logits_mup_width_multiplier=1.0,
)  # fmt: skip
model, cache, tokens = AutoModelForCausalLM.from_config(config).eval(), StaticCache(config, 32), torch.arange(1, 13)[None]
for name, weight in model.named_parameters():
    if weight.dim() == 2 or "rel" in name:
        torch.nn.init.normal_(weight, std=1.5 * weight.shape[-1] ** -0.5)
with torch.no_grad():
    full = model(tokens, use_cache=False).logits
    steps = [model(tokens[:, i : i + 1], cache=cache).logits for i in range(12)]
    options = dict(attention_mask=torch.ones_like(tokens), max_new_tokens=8, do_sample=False, disable_compile=True)
    made = [model.generate(tokens, cache_implementation=kind, **options)[0, 12:].tolist() for kind in ("dynamic", "static")]
size = (torch.cat(steps, 1) - full).abs().max().item()
print(f"token by token: max |Δ| {size:.3g} of {full.abs().max():.3g}; generate, dynamic and static: {made}")
raise SystemExit(size < 0.01)

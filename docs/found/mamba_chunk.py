"""mamba, falcon_mamba, jamba, zamba: several tokens on a warm cache are scanned from an empty state."""

import torch
from transformers import AutoModelForCausalLM, DynamicCache, FalconMambaConfig, JambaConfig, MambaConfig, ZambaConfig

torch.manual_seed(0)
small = dict(vocab_size=97, hidden_size=64, num_hidden_layers=2, initializer_range=0.2)
heads = dict(intermediate_size=96, num_attention_heads=4, num_key_value_heads=4)
configs = [MambaConfig(**small), FalconMambaConfig(**small)]
places = dict(attn_layer_period=2, attn_layer_offset=1)
configs += [JambaConfig(**small, **heads, **places, expert_layer_period=9, expert_layer_offset=8)]
configs += [ZambaConfig(**small | {"num_hidden_layers": 6}, **heads, **places, n_mamba_heads=2)]
tokens, sizes = torch.arange(1, 13)[None], []
for config in configs:
    model = AutoModelForCausalLM.from_config(config).double().eval()
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and "A_log" not in name:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    with torch.no_grad():
        cache = DynamicCache(config=config)
        parts = [model(tokens[:, :6], cache=cache).logits, model(tokens[:, 6:], cache=cache).logits]
        full = model(tokens, use_cache=False).logits
    sizes.append((torch.cat(parts, 1) - full).abs().max().item())
    print(f"{config.model_type}: six tokens, then six: max |Δ| {sizes[-1]:.3g} of {full.abs().max():.3g}")
raise SystemExit(min(sizes) < 0.01)

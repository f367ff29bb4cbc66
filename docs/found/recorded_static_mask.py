"""lfm2: a static cache that records for a rollback counts as not compilable, and sdpa then leaves out the mask of a step."""

import torch
from transformers import Lfm2Config, Lfm2ForCausalLM, StaticCache

torch.manual_seed(0)
config = Lfm2Config(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    layer_types=["conv", "full_attention"], initializer_range=0.2, eos_token_id=None, bos_token_id=None,
)  # fmt: skip
model, sizes = Lfm2ForCausalLM(config).double().eval(), {}
tokens = torch.arange(1, 5).repeat(1, 4)
with torch.no_grad():
    full = model(tokens, use_cache=False).logits
    for attention, recorded in (("sdpa", False), ("eager", True), ("sdpa", True)):
        model.set_attn_implementation(attention)
        cache = StaticCache(config=config, max_cache_len=32)
        if recorded:
            cache.activate_past_recording()  # as prompt look-up and assisted generation do
        steps = torch.cat([model(tokens[:, i : i + 1], cache=cache).logits for i in range(16)], dim=1)
        sizes[attention, recorded] = (steps - full).abs().max().item()
        print(f"{attention}, recorded={recorded}: max |Δ| {sizes[attention, recorded]:.3g} of {full.abs().max():.3g}")
raise SystemExit(sizes["sdpa", True] < 0.01)

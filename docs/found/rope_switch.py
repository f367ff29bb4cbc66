"""rope_type "longrope": behind the original length other frequencies hold, and cached keys were turned by the old ones."""

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
rope = {"rope_type": "longrope", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 16}
rope |= {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
config = LlamaConfig(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64, rope_parameters=rope, initializer_range=0.2, eos_token_id=None, bos_token_id=None,
)  # fmt: skip
model = LlamaForCausalLM(config).double().eval()
tokens, cache = torch.randint(4, 97, (1, 24)), DynamicCache(config=config)
with torch.no_grad():
    full = torch.cat([model(tokens[:, :i], use_cache=False).logits[:, -1:] for i in range(1, 25)], dim=1)
    sizes = (torch.cat([model(tokens[:, i : i + 1], cache=cache).logits for i in range(24)], dim=1) - full).abs().amax((0, 2))
    made = model.generate(tokens[:, :8], attention_mask=torch.ones(1, 8), max_new_tokens=24, do_sample=False)
    best = [model(made[:, :i], use_cache=False).logits[0, -1] for i in range(8, 32)]
gap = max((logits.max() - logits[token]).item() for logits, token in zip(best, made[0, 8:], strict=True))
print(
    f"token by token: max |Δ| {sizes[:16].max():.1e} within 16 tokens, {sizes[16:].max():.3g} of {full.abs().max():.3g} behind"
)
print(f"generate: choices lie {gap:.3g} below the best logit")
raise SystemExit(sizes.max().item() < 0.01)

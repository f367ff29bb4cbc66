"""git: text alone with an attention mask: from the second call on the mask is widened for image tokens that are not there."""

import torch
from transformers import DynamicCache, GitConfig, GitForCausalLM

torch.manual_seed(0)
vision = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=16)
config = GitConfig(
    vision_config=vision, vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
    max_position_embeddings=64, initializer_range=0.2, bos_token_id=3, eos_token_id=4,
)  # fmt: skip
model = GitForCausalLM(config).double().eval()
row, pad = torch.arange(5, 15)[None], 3
tokens = torch.cat([torch.zeros(1, pad, dtype=torch.long), row], 1)
mask = (tokens != 0).long()
places = (mask.cumsum(-1) - 1).clamp(min=0)
with torch.no_grad():
    full, cache, n, steps = model(row, use_cache=False).logits, DynamicCache(config=config), tokens.shape[1], []
    for a, b in [(0, 8), *((i, i + 1) for i in range(8, n))]:
        steps.append(model(tokens[:, a:b], attention_mask=mask[:, :b], position_ids=places[:, a:b], cache=cache).logits)
first, later = (torch.cat(steps, 1)[:, pad:] - full).abs().amax((0, 2)).split([8 - pad, n - 8])
print(f"left-padded row: max |Δ| {first.max():.1e} in the prompt, {later.max():.3g} of {full.abs().max():.3g} after it")
raise SystemExit(later.max().item() < 0.01)

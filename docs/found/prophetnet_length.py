"""prophetnet: a whole pass gives a token logits that depend on how many others are in the call; a step gives others again."""

import torch
from transformers import DynamicCache, ProphetNetConfig, ProphetNetForCausalLM

torch.manual_seed(0)
config = ProphetNetConfig(
    vocab_size=97, hidden_size=64, decoder_ffn_dim=96, num_decoder_layers=2, num_decoder_attention_heads=4, num_buckets=8,
    max_position_embeddings=64, is_decoder=True, is_encoder_decoder=False, add_cross_attention=False, init_std=0.2,
)  # fmt: skip
model, cache = ProphetNetForCausalLM(config).double().eval(), DynamicCache(config=config)
tokens, made = torch.arange(5, 15)[None], []
with torch.no_grad():
    full = model(tokens, use_cache=False).logits
    shorter = model(tokens[:, :6], use_cache=False).logits
    steps = [model(tokens[:, i : i + 1], cache=cache).logits for i in range(10)]
    for kept in (True, False):
        made += model.generate(tokens, max_new_tokens=6, do_sample=False, use_cache=kept)[:, 10:].tolist()
sizes = [(shorter - full[:, :6]).abs().max().item(), (torch.cat(steps, 1) - full).abs().max().item()]
print(f"six tokens or ten, no cache: max |Δ| {sizes[0]:.3g}; token by token {sizes[1]:.3g}; of {full.abs().max():.3g}")
print("generate with and without a cache:", *made)
raise SystemExit(min(sizes) < 0.01)

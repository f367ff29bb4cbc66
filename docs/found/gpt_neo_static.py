"""gpt_neo: with a static cache the causal and the local mask stand at the end of the cache, not at the query."""

import torch
from transformers import GPTNeoConfig, GPTNeoForCausalLM, StaticCache

torch.manual_seed(0)
config = GPTNeoConfig(
    vocab_size=97, hidden_size=64, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=4, window_size=8,
    intermediate_size=96, max_position_embeddings=64, initializer_range=0.2, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
model = GPTNeoForCausalLM(config).double().eval()
tokens = torch.arange(5, 17)[None]
with torch.no_grad():
    full = model(tokens, use_cache=False).logits
    prefill = model(tokens, cache=StaticCache(config=config, max_cache_len=32)).logits
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "disable_compile": True}
    made = [model.generate(tokens, cache_implementation=kind, **options) for kind in ("dynamic", "static")]
size = (prefill - full).abs().max().item()
print(f"prefill of a static cache: max |Δ| {size:.3g} of {full.abs().max():.3g}")
print("generate, dynamic and static:", *(row[0, -8:].tolist() for row in made))
raise SystemExit(size < 0.01)

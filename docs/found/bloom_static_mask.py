"""bloom: a padding mask together with a static cache raises: alibi is as long as the mask, the keys as the cache."""

import torch
from transformers import BloomConfig, BloomForCausalLM, StaticCache

torch.manual_seed(0)
config = BloomConfig(vocab_size=97, hidden_size=64, n_layer=2, n_head=4, initializer_range=0.2)
model = BloomForCausalLM(config).double().eval()
tokens, mask = torch.arange(5, 15).reshape(2, 5), torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
with torch.no_grad():
    model(tokens, cache=StaticCache(config=config, max_cache_len=16))
    try:
        model(tokens, attention_mask=mask, cache=StaticCache(config=config, max_cache_len=16))
        error = None
    except RuntimeError as error_:
        error = error_
print(f"five tokens, 16 slots: without a mask right; with one: {error}")
raise SystemExit(error is None)

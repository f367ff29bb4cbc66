"""xlm: each step appends a mask token and the cache keeps it: with the cache, generate never reads the tokens it has chosen."""

import torch
from transformers import XLMConfig, XLMWithLMHeadModel

torch.manual_seed(0)
config = XLMConfig(
    vocab_size=97, emb_dim=64, n_layers=2, n_heads=4, causal=True, init_std=0.3, embed_init_std=0.3, mask_token_id=5,
    pad_token_id=2, lang_id=0, eos_token_id=None, bos_token_id=None,
)  # fmt: skip
model, tokens, gaps = XLMWithLMHeadModel(config).double().eval(), torch.randint(6, 97, (1, 8)), {}
for use_cache in (True, False):
    with torch.no_grad():
        ones = torch.ones_like(tokens)
        made = model.generate(tokens, attention_mask=ones, max_new_tokens=8, do_sample=False, use_cache=use_cache)
        asked = [torch.cat([made[:, :i], torch.tensor([[5]])], dim=1) for i in range(8, 16)]
        best = [model(text, langs=torch.zeros_like(text), use_cache=False).logits[0, -1] for text in asked]
    gaps[use_cache] = max((logits.max() - logits[token]).item() for logits, token in zip(best, made[0, 8:], strict=True))
    print(f"use_cache={use_cache}: choices lie {gaps[use_cache]:.3g} below the best logit of {max(map(torch.max, best)):.3g}")
raise SystemExit(gaps[True] < 0.01)

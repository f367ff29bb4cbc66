"""StaticCache: a call that does not fit raises, but has counted its tokens, so that the next one that would fit fails."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

torch.manual_seed(0)
config = LlamaConfig(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4)
model = LlamaForCausalLM(config).double().eval()
cache = StaticCache(config=config, max_cache_len=16)
with torch.no_grad():
    model(torch.arange(1, 11)[None], cache=cache)
    before = int(cache.get_seq_length())
    try:
        model(torch.arange(1, 8)[None], cache=cache)
    except Exception as error:
        print(f"ten tokens and seven into 16 slots, as it should be: {error}")
    after = int(cache.get_seq_length())
    try:
        model(torch.tensor([[11]]), cache=cache)
        broken = False
    except Exception as error:
        broken = True
        print(f"one more token, which fits: {error}")
print(f"length before the refused call {before}, after it {after}")
raise SystemExit(not (broken and after != before))

"""xlstm: generate asks a cache that it is given whether it can be compiled, and xLSTMCache has no such attribute."""

import torch
from transformers import xLSTMConfig, xLSTMForCausalLM

torch.manual_seed(0)
config = xLSTMConfig(
    vocab_size=97, hidden_size=64, num_hidden_layers=2, num_heads=4, chunk_size=8, qk_dim_factor=1.0, eos_token_id=None,
    chunkwise_kernel="chunkwise--native_autograd", sequence_kernel="native_sequence__native", step_kernel="native",
)  # fmt: skip
model, text = xLSTMForCausalLM(config).eval(), torch.arange(1, 9)[None]
with torch.no_grad():
    cache = model(text, use_cache=True).cache
    try:
        more = torch.arange(1, 11)[None]
        model.generate(more, attention_mask=torch.ones_like(more), cache=cache, max_new_tokens=4, do_sample=False)
        error = None
    except AttributeError as error_:
        error = error_
print(f"generate with a cache that was filled: {error}")
raise SystemExit(error is None)

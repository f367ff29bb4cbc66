"""rope_type "dynamic": the frequencies of the longest text so far stay in the model: the same pass gives other logits later."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
config = LlamaConfig(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=16, rope_parameters=rope, initializer_range=0.2,
)  # fmt: skip
model = LlamaForCausalLM(config).double().eval()
tokens = torch.randint(4, 97, (1, 60))
with torch.no_grad():
    before = model(tokens[:, :24], use_cache=False).logits
    model(tokens, use_cache=False)  # a longer text in between
    after = model(tokens[:, :24], use_cache=False).logits
    model(tokens[:, :8], use_cache=False)  # a text within the limit sets the frequencies back
    reset = model(tokens[:, :24], use_cache=False).logits
moved = (after - before).abs().max().item()
print(f"24 tokens before and after a pass over 60: max |Δ| {moved:.3g} of {before.abs().max():.3g}")
print(f"and after one over 8, which is within the limit: {(reset - before).abs().max():.1e}")
raise SystemExit(moved < 0.01)

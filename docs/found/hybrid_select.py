"""falcon_h1: batch_select_indices drops rows of keys and values, and keeps all rows of the convolution and the state."""

import torch
from transformers import DynamicCache, FalconH1Config, FalconH1ForCausalLM

torch.manual_seed(0)
config = FalconH1Config(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    head_dim=16, mamba_d_ssm=128, mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16, mamba_chunk_size=8,
)  # fmt: skip
model, cache = FalconH1ForCausalLM(config).double().eval(), DynamicCache(config=config)
with torch.no_grad():
    model(torch.arange(1, 19).reshape(3, 6), cache=cache)
    cache.batch_select_indices(torch.tensor([0, 2]))
    layer = cache.layers[0]
    rows = {"keys": layer.keys.shape[0], "conv": layer.conv_states[0].shape[0], "state": layer.recurrent_states[0].shape[0]}
    try:
        model(torch.tensor([[7], [8]]), cache=cache)
        error = None
    except RuntimeError as error_:
        error = error_
print(f"rows after two of three were selected: {rows}; the next token: {error}")
raise SystemExit(error is None)

"""QuantizedCache("fp8"): rows cannot be selected or repeated: both look at the empty store of DynamicLayer."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, QuantizedCache

torch.manual_seed(0)
config = LlamaConfig(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4)
model, errors = LlamaForCausalLM(config).double().eval(), []
for what in ("batch_select_indices", "batch_repeat_interleave"):
    cache = QuantizedCache("fp8", config)
    with torch.no_grad():
        model(torch.arange(1, 19).reshape(3, 6), cache=cache)
        model(torch.tensor([[1], [2], [3]]), cache=cache)
        try:
            getattr(cache, what)(torch.tensor([0, 2]) if "select" in what else 2)
            rows = cache.layers[0]._quantized_keys[0].shape[0]
            model(torch.ones(2 if "select" in what else 6, 1, dtype=torch.long), cache=cache)
        except Exception as error:
            errors.append(f"{what}: {type(error).__name__}: {error}")
print("\n".join(errors))
raise SystemExit(not errors)

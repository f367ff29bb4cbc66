"""mamba, mamba2: generate(prefill_chunk_size=...) asks the cache for a length, and a cache of states alone raises."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Mamba2Config, MambaConfig

torch.manual_seed(0)
size, errors = dict(vocab_size=97, hidden_size=64, num_hidden_layers=2, eos_token_id=None, bos_token_id=None), []
configs = [
    LlamaConfig(**size, intermediate_size=96, num_attention_heads=4),
    MambaConfig(**size, state_size=8),
    Mamba2Config(**size, num_heads=8, head_dim=16, n_groups=1, state_size=16),
]
text = torch.randint(4, 97, (1, 10))
for config in configs:
    model = AutoModelForCausalLM.from_config(config).double().eval()
    try:
        model.generate(text, attention_mask=torch.ones_like(text), max_new_tokens=4, do_sample=False, prefill_chunk_size=4)
        print(f"{config.model_type}: goes through")
    except ValueError as error:
        errors.append(error)
        print(f"{config.model_type}: ValueError: {error}")
raise SystemExit(not errors)

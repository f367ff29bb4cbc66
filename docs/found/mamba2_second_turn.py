"""mamba2: generate goes on from a cache by its length, a cache of states tells none, and the whole text is fed to it again."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Mamba2Config

torch.manual_seed(0)
size = dict(vocab_size=97, hidden_size=64, num_hidden_layers=2, initializer_range=0.2, eos_token_id=None, bos_token_id=None)
configs = [
    LlamaConfig(**size, intermediate_size=96, num_attention_heads=4),
    Mamba2Config(**size, num_heads=8, head_dim=16, n_groups=1, state_size=16),
]
sizes, how = {}, dict(max_new_tokens=6, do_sample=False, return_dict_in_generate=True, output_logits=True)
for config in configs:
    model, text = AutoModelForCausalLM.from_config(config).double().eval(), torch.randint(4, 97, (1, 8))
    with torch.no_grad():
        first = model.generate(text, attention_mask=torch.ones_like(text), **how)
        more = torch.cat([first.sequences, torch.randint(4, 97, (1, 4))], dim=1)  # the user's next turn
        made = model.generate(more, attention_mask=torch.ones_like(more), cache=first.cache, **how)
        full = model(made.sequences[:, :-1], use_cache=False).logits[:, more.shape[1] - 1 :]
    sizes[config.model_type] = (torch.stack(made.logits, dim=1) - full).abs().max().item()
    print(f"{config.model_type}: logits of the next turn: max |Δ| {sizes[config.model_type]:.3g} of {full.abs().max():.3g}")
raise SystemExit(sizes["mamba2"] < 0.01)

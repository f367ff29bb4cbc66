"""mamba, falcon_mamba: a step with the mask of the whole text is multiplied by all of it, as if it were so many tokens."""

import torch
from transformers import DynamicCache, FalconMambaConfig, FalconMambaForCausalLM, MambaConfig, MambaForCausalLM

torch.manual_seed(0)
tokens, mask, sizes = torch.arange(5, 17).reshape(2, 6), torch.ones(2, 6, dtype=torch.long), []
mask[0, :2] = 0
for kind, owner in ((MambaConfig, MambaForCausalLM), (FalconMambaConfig, FalconMambaForCausalLM)):
    config = kind(vocab_size=97, hidden_size=64, num_hidden_layers=2, initializer_range=0.2)
    model, cache = owner(config).double().eval(), DynamicCache(config=config)
    for name, weight in model.named_parameters():
        if weight.dim() == 2 and "A_log" not in name:
            torch.nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
    with torch.no_grad():
        model(tokens[:, :5], cache=cache, attention_mask=mask[:, :5])
        step = model(tokens[:, 5:], cache=cache, attention_mask=mask).logits
        alone = model(tokens[:1, 2:], use_cache=False).logits[:, -1:]
    sizes.append((step[:1] - alone).abs().max().item())
    print(f"{config.model_type}: one token, a mask of six: max |Δ| {sizes[-1]:.3g} of {alone.abs().max():.3g} in a padded row")
raise SystemExit(min(sizes) < 0.01)

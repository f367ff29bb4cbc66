"""mamba2 and its relatives: a limit of the time step holds in a prompt and not in a step of one token."""

import torch
from transformers import DynamicCache, Mamba2Config, Mamba2ForCausalLM

torch.manual_seed(0)
tokens, sizes = torch.arange(5, 17)[None], []
for limit in ((0.0, float("inf")), (0.0, 0.05)):
    config = Mamba2Config(
        vocab_size=97, hidden_size=64, num_hidden_layers=2, num_heads=8, head_dim=16, state_size=16, n_groups=1, chunk_size=8,
        time_step_limit=limit,
    )  # fmt: skip
    model, cache = Mamba2ForCausalLM(config).double().eval(), DynamicCache(config=config)
    for weight in model.parameters():
        if weight.dim() == 2:
            torch.nn.init.normal_(weight, std=1.5 * weight.shape[1] ** -0.5)
    with torch.no_grad():
        full = model(tokens, use_cache=False).logits
        steps = [model(tokens[:, i : i + 1], cache=cache).logits for i in range(12)]
    sizes.append((torch.cat(steps, 1) - full).abs().max().item())
    print(f"time steps in {limit}: token by token max |Δ| {sizes[-1]:.3g} of {full.abs().max():.3g}")
raise SystemExit(sizes[1] < 0.01)

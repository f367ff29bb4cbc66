"""rwkv: one token at a time with several rows: each row is mixed with the last token of every row."""

import torch
from transformers import RwkvConfig, RwkvForCausalLM

torch.manual_seed(0)
config = RwkvConfig(vocab_size=97, hidden_size=64, num_hidden_layers=2, intermediate_size=96, context_length=64)
model = RwkvForCausalLM(config).double().eval()
for weight in model.parameters():
    torch.nn.init.normal_(weight, std=1.5 * weight.shape[-1] ** -0.5)
tokens = torch.arange(1, 17).reshape(2, 8)
with torch.no_grad():
    full, state, steps = model(tokens, use_cache=False).logits, None, []
    for i in range(8):
        output = model(tokens[:, i : i + 1], state=state, use_cache=True)
        state = output.state
        steps.append(output.logits[:, -1:])
size = (torch.cat(steps, 1) - full).abs().max().item()
print(f"two rows, token by token: max |Δ| {size:.3g} of {full.abs().max():.3g}; logits of a call {list(output.logits.shape)}")
raise SystemExit(size < 0.01)

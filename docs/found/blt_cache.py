"""blt: every pass with a cache raises, so that generate does too."""

import torch
from transformers import BltConfig, BltForCausalLM

torch.manual_seed(0)
part = dict(vocab_size=300, hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=96)
config = BltConfig(
    vocab_size=300, patcher_config=part, encoder_config=part, decoder_config=part | {"hidden_size_global": 64},
    global_config=part, encoder_hash_byte_group_vocab=97, encoder_hash_byte_group_size=[3],
)  # fmt: skip
model, tokens, errors = BltForCausalLM(config).double().eval(), torch.arange(5, 15)[None], []
with torch.no_grad():
    print("without a cache:", list(model(tokens, use_cache=False).logits.shape))
    calls = {"use_cache": lambda: model(tokens, use_cache=True), "generate": lambda: model.generate(tokens, max_new_tokens=2)}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            errors.append(f"{name}: {type(error).__name__}: {error}")
print("\n".join(errors))
raise SystemExit(not errors)

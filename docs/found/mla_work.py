"""deepseek_v3 and its like: each decoded token expands all cached latents again, so that its cost grows with the length."""

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, DynamicCache

torch.manual_seed(0)
config = DeepseekV3Config(
    vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, first_k_dense_replace=2, num_attention_heads=4,
    num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16,
)  # fmt: skip
model, cache, costs = DeepseekV3ForCausalLM(config).eval(), DynamicCache(config=config), {}
model.set_attn_implementation("eager")
with torch.no_grad():
    for length in (1, 64, 128):
        model(torch.ones(1, length - cache.get_seq_length(), dtype=torch.long), cache=cache)
        with FlopCounterMode(display=False) as counter:
            model(torch.ones(1, 1, dtype=torch.long), cache=cache)
        cache.crop(-1)
        costs[length] = counter.get_total_flops()
attention = 2 * 2 * 4 * (128 - 64) * (24 + 16)  # layers, multiply and add, heads, keys, their and the values' width
print(f"operations of one token behind 1, 64, 128: {list(costs.values())}; attention explains {attention} of the last step")
raise SystemExit(costs[128] - costs[64] < 2 * attention)

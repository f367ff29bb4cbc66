"""minimax_m3_vl: the sparse layers' indexer holds slots against position_ids: a left-padded row loses its own last tokens."""

import torch
from transformers import AutoModelForCausalLM, MiniMaxM3VLTextConfig

torch.manual_seed(0)
config = MiniMaxM3VLTextConfig(
    vocab_size=97, hidden_size=64, intermediate_size=48, dense_intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, layer_types=["minimax_m3_sparse"] * 2, mlp_layer_types=["dense"] * 2, index_n_heads=2,
    index_head_dim=16, index_block_size=4, index_topk_blocks=8, index_local_blocks=0, initializer_range=0.2,
)  # fmt: skip
model = AutoModelForCausalLM.from_config(config).eval()
row = torch.arange(5, 14)[None]
padded = torch.cat([torch.zeros(1, 7, dtype=torch.long), row], 1)
mask = (padded != 0).long()
places = (mask.cumsum(-1) - 1).clamp(min=0)
with torch.no_grad():
    alone = model(row, use_cache=False).logits
    beside = model(padded, attention_mask=mask, position_ids=places, use_cache=False).logits[:, 7:]
sizes = (beside - alone).abs().amax((0, 2))
print(f"nine tokens behind seven slots of padding, all blocks chosen: max |Δ| {sizes.max():.3g} of {alone.abs().max():.3g}")
raise SystemExit(sizes.max().item() < 0.01)

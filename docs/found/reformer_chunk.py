"""reformer: behind its prompt a cache takes one token at a time: several raise a shape error."""

import torch
from transformers import ReformerConfig, ReformerModelWithLMHead

torch.manual_seed(0)
config = ReformerConfig(
    vocab_size=97, hidden_size=64, num_attention_heads=4, attention_head_size=16, feed_forward_size=96, is_decoder=True,
    attn_layers=["local", "local"], axial_pos_embds=False, max_position_embeddings=64, local_attn_chunk_length=8,
)  # fmt: skip
model, tokens, told = ReformerModelWithLMHead(config).double().eval(), torch.arange(1, 13)[None], []
with torch.no_grad():
    full = model(tokens, use_cache=False).logits
    for width in (1, 2):
        cache = model(tokens[:, :6], use_cache=True).past_buckets_states
        try:
            logits = model(tokens[:, 6 : 6 + width], past_buckets_states=cache, use_cache=True).logits
            told.append(f"max |Δ| {(logits - full[:, 6 : 6 + width]).abs().max():.1e}")
        except RuntimeError as error:
            told.append(f"RuntimeError: {error}")
        print(f"{width} token(s) behind six: {told[-1]}")
raise SystemExit("RuntimeError" not in told[1])

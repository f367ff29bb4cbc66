"""bart and its like as decoders: a left-padded prompt gets positions that count the padding, and none can be given."""

import torch
from transformers import AutoModelForCausalLM, BartConfig, BlenderbotConfig, MBartConfig, PegasusConfig

torch.manual_seed(0)
common = dict(vocab_size=97, d_model=64, decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=96, init_std=0.3)
common |= dict(max_position_embeddings=64, is_decoder=True, is_encoder_decoder=False, add_cross_attention=False, pad_token_id=1)
row, sizes = torch.arange(5, 11)[None], []
padded = torch.cat([torch.full((1, 3), 1), row], 1)
mask = (padded != 1).long()
for kind in (BartConfig, MBartConfig, BlenderbotConfig, PegasusConfig):
    model = AutoModelForCausalLM.from_config(kind(**common)).double().eval()
    with torch.no_grad():
        alone = model(row).logits
        sizes.append((model(padded, attention_mask=mask).logits[:, 3:] - alone).abs().max().item())
        given = [(row, mask[:, 3:]), (padded, mask)]
        texts = [model.generate(i, attention_mask=m, max_new_tokens=8, do_sample=False)[0, -8:].tolist() for i, m in given]
    print(f"{model.config.model_type}: three slots of padding: max |Δ| {sizes[-1]:.3g} of {alone.abs().max():.3g}; {texts}")
raise SystemExit(min(sizes) < 0.01)

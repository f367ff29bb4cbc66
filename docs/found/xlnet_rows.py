"""xlnet: with attn_type="uni" the mask of several rows is added in place to a causal one that has no rows: it raises."""

import torch
from transformers import XLNetConfig, XLNetLMHeadModel

torch.manual_seed(0)
tokens, told = torch.randint(6, 97, (2, 8)), {}
for attention in ("uni", "bi"):
    config = XLNetConfig(vocab_size=97, d_model=64, n_layer=2, n_head=4, d_inner=96, attn_type=attention)
    model = XLNetLMHeadModel(config).double().eval()
    for rows in (1, 2):
        mask = torch.ones(rows, 8)
        try:
            told[attention, rows] = f"logits {tuple(model(tokens[:rows], attention_mask=mask).logits.shape)}"
        except RuntimeError as error:
            told[attention, rows] = f"RuntimeError: {error}"
        print(f"{attention}, {rows} row(s) with a mask of ones: {told[attention, rows]}")
raise SystemExit("RuntimeError" not in told["uni", 2])

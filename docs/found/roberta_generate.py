"""roberta and its like: a pass counts positions from padding_idx + 1, generate hands over positions from 0: other text."""

import torch
from transformers import AutoModelForCausalLM, CamembertConfig, Data2VecTextConfig, RobertaConfig, XLMRobertaConfig

torch.manual_seed(0)
common = dict(vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, is_decoder=True)
common |= dict(max_position_embeddings=64, initializer_range=0.3, pad_token_id=1, eos_token_id=None, bos_token_id=None)
prompt, gaps = torch.arange(5, 13)[None], []
for kind in (RobertaConfig, CamembertConfig, XLMRobertaConfig, Data2VecTextConfig):
    model = AutoModelForCausalLM.from_config(kind(**common)).double().eval()
    with torch.no_grad():
        made = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False)
        logits = model(made[:, :-1], use_cache=False).logits[0, 7:]
        places = torch.arange(made.shape[1] - 1)[None]
        moved = model(made[:, :-1], position_ids=places, use_cache=False).logits[0, 7:]
    chosen = made[0, 8:]
    gaps.append((logits.amax(-1) - logits[range(8), chosen]).max().item())
    there = (moved.amax(-1) - moved[range(8), chosen]).max().item()
    print(f"{model.config.model_type}: choices lie {gaps[-1]:.3g} below the best logit; {there:.1e} with positions from 0")
raise SystemExit(min(gaps) < 0.01)

"""Sliding and convolution layers of DynamicCache: crop(0) on a cache that is empty (new or reset) raises."""

from transformers import DynamicCache, Lfm2Config, LlamaConfig, MistralConfig

size = dict(vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
DynamicCache(config=LlamaConfig(**size)).crop(0)  # full attention: it does nothing, as it should
errors = []
for config in (MistralConfig(**size, sliding_window=8), Lfm2Config(**size, layer_types=["conv", "full_attention"])):
    cache = DynamicCache(config=config)
    cache.activate_past_recording()
    try:
        cache.crop(0)
    except (AttributeError, TypeError) as error:
        errors.append(error)
        print(f"crop(0) on an empty cache of {config.model_type}: {type(error).__name__}: {error}")
raise SystemExit(not errors)

"""Sliding layers of DynamicCache: crop(0) on a cache that is empty (new or reset) raises AttributeError."""

from transformers import DynamicCache, LlamaConfig, MistralConfig

size = dict(vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
DynamicCache(config=LlamaConfig(**size)).crop(0)  # without a window it does nothing, as it should
cache = DynamicCache(config=MistralConfig(**size, sliding_window=8))
cache.activate_past_recording()
try:
    cache.crop(0)
    error = None
except AttributeError as error_:
    error = error_
print(f"crop(0) on an empty cache: without a window nothing happens; with one: {error}")
raise SystemExit(error is None)

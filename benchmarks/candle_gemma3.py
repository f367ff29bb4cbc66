"""candle's gemma3 on tiny random models of transformers, judged by transformers: what the contract finds.

    python benchmarks/candle_gemma3.py FOLDER

writes the models to FOLDER/one_kv_head and FOLDER/two_kv_heads, asks the contract of candle on both, and prints what fails with
its shortest program. The engine is built by `make engines`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from shlex import join

from kvconform.harness import registry
from kvconform.harness.cache_folder import cache_folder
from kvconform.harness.conformance import chosen, conform
from kvconform.harness.judging import PROFILES

WINDOW = 8
HEAD = 32
KV_HEADS = {"one_kv_head": 1, "two_kv_heads": 2}
PROFILE = replace(PROFILES["quick"], examples=4, fixed=4)
CLAUSES = (
    "forward.plain",
    "prefill.identity",
    "prefill.chunked",
    "decode.incremental",
    "window.eviction",
    "lifecycle.reset",
    "branch.fork",
    "batch.rows",
    "limit.refuses",
)


def write(folder: Path, kv_heads: int) -> Path:
    """A gemma3 of four layers, every other one under a window, in the folder `folder`."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    torch.manual_seed(3)
    bases = {"full_attention": 5000.0, "sliding_attention": 700.0}
    config = Gemma3TextConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=kv_heads,
        head_dim=HEAD,
        query_pre_attn_scalar=HEAD,  # candle ignores it and takes the head's size
        max_position_embeddings=128,
        sliding_window=WINDOW,
        rms_norm_eps=1e-5,
        initializer_range=0.15,
        layer_types=["sliding_attention", "full_attention"] * 2,
        rope_parameters={kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
    )
    Gemma3ForCausalLM(config).save_pretrained(folder)
    # candle reads fields that transformers writes no longer.
    told = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    told |= {"rope_theta": 5000.0, "rope_local_base_freq": 700.0, "sliding_window_pattern": 2}
    (folder / "config.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return folder


def main() -> None:
    binary = cache_folder() / "candle" / "release" / "kvconform-candle"
    for name, kv_heads in KV_HEADS.items():
        folder = Path(sys.argv[1]) / name
        if not (folder / "config.json").is_file():
            write(folder, kv_heads)
        engine = registry.resolve(f"cmd:{join([str(binary), 'gemma3', str(folder)])}").implementation
        resolved = replace(registry.resolve(f"hf:{folder}"), implementation=engine, carrier=None)
        for clause in CLAUSES:
            for case in conform(name, resolved, chosen(registry.clauses(), clause), PROFILE, ["float32"]):
                print(
                    f"{name} {case.clause}: {case.verdict} ({case.programs} programs, largest {case.largest:.3g}) {case.reason}"
                )
                for finding in case.findings:
                    print(f"    {finding.program}\n        {finding.detail}", flush=True)
        engine.close()


if __name__ == "__main__":
    main()

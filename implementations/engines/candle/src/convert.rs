//! A llama of transformers as a GGUF file, in float32 or Q8_0.

use anyhow::{bail, Context, Result};
use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use candle_transformers::models::llama::LlamaConfig;
use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

const LAYER: [(&str, &str); 9] = [
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
];

/// Write `folder`'s model to `file`, its matrices as `kind`: `f32` or `q8_0`. Norms stay in float32.
pub fn convert(folder: &Path, file: &Path, kind: &str) -> Result<()> {
    let kind = match kind {
        "f32" => GgmlDType::F32,
        "q8_0" => GgmlDType::Q8_0,
        _ => bail!("no type {kind:?}: f32 or q8_0"),
    };
    let config: LlamaConfig = serde_json::from_str(&fs::read_to_string(folder.join("config.json")).context("no config.json")?)?;
    let tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu)?;
    let (heads, kv_heads) = (config.num_attention_heads, config.num_key_value_heads());

    let mut names = vec![("model.embed_tokens.weight".to_string(), "token_embd.weight".to_string())];
    names.push(("model.norm.weight".into(), "output_norm.weight".into()));
    names.push(("lm_head.weight".into(), "output.weight".into()));
    for layer in 0..config.num_hidden_layers {
        names.extend(LAYER.map(|(from, to)| (format!("model.layers.{layer}.{from}.weight"), format!("blk.{layer}.{to}.weight"))));
    }
    let mut written: Vec<(String, QTensor)> = vec![];
    for (from, to) in names {
        let Some(tensor) = tensors.get(&from) else {
            if from == "lm_head.weight" && config.tie_word_embeddings.unwrap_or(false) {
                continue;
            }
            bail!("the model has no {from}");
        };
        let tensor = match to.rsplit('.').nth(1) {
            Some("attn_q") => pairs_side_by_side(tensor, heads)?,
            Some("attn_k") => pairs_side_by_side(tensor, kv_heads)?,
            _ => tensor.clone(),
        };
        let kind = if tensor.rank() == 1 { GgmlDType::F32 } else { kind };
        written.push((to, QTensor::quantize(&tensor, kind)?));
    }
    let about = HashMap::from([
        ("general.architecture", Value::String("llama".into())),
        ("llama.attention.head_count", Value::U32(heads as u32)),
        ("llama.attention.head_count_kv", Value::U32(kv_heads as u32)),
        ("llama.block_count", Value::U32(config.num_hidden_layers as u32)),
        ("llama.embedding_length", Value::U32(config.hidden_size as u32)),
        ("llama.feed_forward_length", Value::U32(config.intermediate_size as u32)),
        ("llama.context_length", Value::U32(config.max_position_embeddings as u32)),
        ("llama.rope.dimension_count", Value::U32((config.hidden_size / heads) as u32)),
        ("llama.rope.freq_base", Value::F32(config.rope_theta)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(config.rms_norm_eps as f32)),
    ]);
    let mut about: Vec<(&str, &Value)> = about.iter().map(|(name, value)| (*name, value)).collect();
    about.sort_by_key(|(name, _)| *name);
    let listed: Vec<(&str, &QTensor)> = written.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut out = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
    gguf_file::write(&mut out, &about, &listed)?;
    Ok(())
}

/// Rows of a query or key projection reordered: transformers rotates (i, i + d/2) together, architecture `llama` of GGUF
/// the neighbours (2i, 2i + 1).
fn pairs_side_by_side(weight: &Tensor, heads: usize) -> candle_core::Result<Tensor> {
    let (rows, columns) = weight.dims2()?;
    weight.reshape((heads, 2, rows / heads / 2, columns))?.transpose(1, 2)?.contiguous()?.reshape((rows, columns))
}

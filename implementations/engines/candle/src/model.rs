//! candle's three models: how each is loaded, what a cache of it is, and its forward pass.

use anyhow::{bail, Context, Result};
use candle_core::quantized::{gguf_file, GgmlDType};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{gemma3, llama, quantized_llama};
use std::fs::{self, File};
use std::path::Path;

/// A loaded model without any conversation in it.
pub enum Model {
    Llama { model: llama::Llama, config: llama::Config },
    Quantized { base: quantized_llama::ModelWeights, vocab_size: usize, noisy: bool },
    Gemma { base: gemma3::Model, config: gemma3::Config },
}

/// One live cache. `quantized_llama` and `gemma3` keep it inside the model, whose clones share the weights.
/// Its `Clone` is candle's own.
#[derive(Clone)]
pub enum Cache {
    Llama(llama::Cache),
    Quantized(quantized_llama::ModelWeights),
    Gemma(gemma3::Model),
}

impl Model {
    /// Load `kind` from a folder of transformers (`config.json`, `model.safetensors`) or a GGUF file.
    pub fn load(kind: &str, path: &Path) -> Result<Self> {
        match kind {
            "llama" => {
                let config: llama::LlamaConfig = serde_json::from_str(&config_text(path)?)?;
                let config = config.into_config(false);
                let model = llama::Llama::load(weights(path)?, &config)?;
                Ok(Self::Llama { model, config })
            }
            "gemma3" => {
                let config: gemma3::Config = serde_json::from_str(&config_text(path)?)?;
                let base = gemma3::Model::new(false, &config, weights(path)?)?;
                Ok(Self::Gemma { base, config })
            }
            "quantized_llama" => {
                let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
                let content = gguf_file::Content::read(&mut file).map_err(|e| e.with_path(path))?;
                let embedding = content.tensor_infos.get("token_embd.weight").context("the file has no token_embd.weight")?;
                let vocab_size = embedding.shape.dims()[0];
                let plain = [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16];
                let rounds = content.tensor_infos.values().any(|info| !plain.contains(&info.ggml_dtype));
                let noisy = rounds && !std::env::var("CANDLE_DEQUANTIZE_ALL").is_ok_and(|said| !said.is_empty() && said != "0");
                let base = quantized_llama::ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?;
                Ok(Self::Quantized { base, vocab_size, noisy })
            }
            _ => bail!("no model {kind:?}: llama, quantized_llama or gemma3"),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Llama { .. } => "candle llama",
            Self::Quantized { .. } => "candle quantized_llama",
            Self::Gemma { .. } => "candle gemma3",
        }
    }

    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Llama { config, .. } => config.vocab_size,
            Self::Quantized { vocab_size, .. } => *vocab_size,
            Self::Gemma { config, .. } => config.vocab_size,
        }
    }

    /// Rows of the table of rotations: no position lies past it.
    pub fn max_length(&self) -> usize {
        match self {
            Self::Llama { config, .. } => config.max_position_embeddings,
            Self::Quantized { .. } => quantized_llama::MAX_SEQ_LEN,
            Self::Gemma { config, .. } => config.max_position_embeddings,
        }
    }

    /// Lengths at which the behaviour changes.
    pub fn landmarks(&self) -> Vec<usize> {
        match self {
            Self::Gemma { config, .. } => vec![config.sliding_window],
            _ => vec![],
        }
    }

    /// Are activations rounded on their way through the weights?
    pub fn noisy(&self) -> bool {
        matches!(self, Self::Quantized { noisy: true, .. })
    }

    /// Only the llama has a forward pass that uses no cache.
    pub fn has_full(&self) -> bool {
        matches!(self, Self::Llama { .. })
    }

    pub fn new_cache(&self) -> candle_core::Result<Cache> {
        Ok(match self {
            Self::Llama { config, .. } => Cache::Llama(llama::Cache::new(true, DType::F32, config, &Device::Cpu)?),
            Self::Quantized { base, .. } => Cache::Quantized(base.clone()),
            Self::Gemma { base, .. } => Cache::Gemma(base.clone()),
        })
    }

    /// Logits `[rows, vocab]` of the last position. `tokens` is `[rows, n]`.
    pub fn forward(&self, tokens: &Tensor, index_pos: usize, cache: &mut Cache) -> candle_core::Result<Tensor> {
        match (self, cache) {
            (Self::Llama { model, .. }, Cache::Llama(cache)) => model.forward(tokens, index_pos, cache),
            (_, Cache::Quantized(model)) => model.forward(tokens, index_pos),
            (_, Cache::Gemma(model)) => model.forward(tokens, index_pos)?.squeeze(1),
            _ => candle_core::bail!("this cache is another model's"),
        }
    }

    /// The same without any cache.
    pub fn full(&self, tokens: &Tensor) -> candle_core::Result<Tensor> {
        match self {
            Self::Llama { model, config } => {
                let mut none = llama::Cache::new(false, DType::F32, config, &Device::Cpu)?;
                model.forward(tokens, 0, &mut none)
            }
            _ => candle_core::bail!("{} has no forward pass without a cache", self.name()),
        }
    }
}

impl Cache {
    /// candle's own way to empty the cache that a model keeps inside; the llama has none.
    pub fn clear(&mut self) -> bool {
        match self {
            Self::Llama(_) => return false,
            Self::Quantized(model) => model.clear_kv_cache(),
            Self::Gemma(model) => model.clear_kv_cache(),
        }
        true
    }
}

fn config_text(folder: &Path) -> Result<String> {
    let path = folder.join("config.json");
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn weights(folder: &Path) -> Result<VarBuilder<'static>> {
    let file = folder.join("model.safetensors");
    // Safe as long as nobody changes the file while the engine runs.
    unsafe { VarBuilder::from_mmaped_safetensors(&[&file], DType::F32, &Device::Cpu) }
        .with_context(|| format!("cannot load {}", file.display()))
}

//! The ops of the line protocol on a candle model, as one caller of it would do them.

use crate::caller::{Caller, Reset};
use crate::model::{Cache, Model};
use candle_core::{DType, Device, Tensor};
use serde_json::{json, Value};
use std::collections::HashMap;

/// A live cache and what the caller keeps beside it.
#[derive(Clone)]
struct Conversation {
    cache: Cache,
    rows: usize,
    index_pos: usize,
    /// Tokens a row really holds.
    length: usize,
    calls: usize,
    last: Vec<u32>,
}

/// What an op did not do.
pub enum Failure {
    Refused(String),
    Raised(String),
    Unsupported(String),
}

impl From<candle_core::Error> for Failure {
    fn from(error: candle_core::Error) -> Self {
        // With RUST_BACKTRACE set a backtrace follows the first line.
        Self::Raised(error.to_string().lines().next().unwrap_or_default().to_string())
    }
}

/// The keys of a reply, and the logits `[rows, 1, vocab]` that follow it.
pub type Answer = Result<(Value, Option<Tensor>), Failure>;

pub struct Engine {
    pub model: Model,
    pub caller: Caller,
    pub reset: Reset,
    pub source: String,
    conversations: HashMap<u64, Conversation>,
}

impl Engine {
    pub fn new(model: Model, caller: Caller, reset: Reset, source: String) -> Self {
        Self { model, caller, reset, source, conversations: HashMap::new() }
    }

    pub fn answer(&mut self, request: &Value) -> Answer {
        let done = |()| (json!({}), None);
        let number = |key: &str| request[key].as_u64().unwrap_or(0);
        let cache = number("cache");
        match request["op"].as_str().unwrap_or("") {
            "hello" => Ok((self.hello(), None)),
            "new" => self.open(cache, number("rows") as usize).map(done),
            "append" => self.append(cache, &request["tokens"]),
            "full" if self.model.has_full() => {
                let (tokens, _) = self.tokens(&request["tokens"])?;
                Ok((json!({}), Some(self.model.full(&tokens)?)))
            }
            "fork" => {
                let twin = self.held(cache)?.clone();
                self.conversations.insert(number("target"), twin);
                Ok(done(()))
            }
            "reset" => self.begin_anew(cache).map(done),
            "drop" => {
                self.conversations.remove(&cache);
                Ok(done(()))
            }
            "close" => Ok(done(())),
            other => Err(Failure::Unsupported(format!("candle has no {other}"))),
        }
    }

    fn hello(&self) -> Value {
        let mut capabilities = vec!["fork", "reset", "reset_rows"];
        if self.model.has_full() {
            capabilities.push("full");
        }
        let mut about = json!({
            "kvconform": 1,
            "name": self.model.name(),
            "vocab_size": self.model.vocab_size(),
            "capabilities": capabilities,
            "logits": "last",
            "max_length": self.model.max_length(),
            "landmarks": self.model.landmarks(),
            "noisy": self.model.noisy(),
            "model": self.source,
            "version": concat!("kvconform-candle ", env!("CARGO_PKG_VERSION"), " on candle 0.11"),
        });
        // On quantised weights candle refuses several rows of several tokens: "input tensor is not contiguous".
        if self.model.noisy() {
            about["max_rows"] = 1.into();
            about["quieter"] = json!(["--dequantise"]);
        }
        about
    }

    fn held(&mut self, cache: u64) -> Result<&mut Conversation, Failure> {
        self.conversations.get_mut(&cache).ok_or_else(|| Failure::Raised(format!("there is no cache {cache}")))
    }

    fn open(&mut self, cache: u64, rows: usize) -> Result<(), Failure> {
        let fresh = Conversation { cache: self.model.new_cache()?, rows, index_pos: 0, length: 0, calls: 0, last: vec![] };
        self.conversations.insert(cache, fresh);
        Ok(())
    }

    /// Tokens `[rows, n]` as a tensor and as they came. candle panics on an empty call, so that is refused here.
    fn tokens(&self, given: &Value) -> Result<(Tensor, Vec<Vec<u32>>), Failure> {
        let rows: Vec<Vec<u32>> = serde_json::from_value(given.clone()).map_err(|e| Failure::Refused(e.to_string()))?;
        if rows.iter().any(Vec::is_empty) {
            return Err(Failure::Refused("no token".into()));
        }
        Ok((Tensor::new(rows.clone(), &Device::Cpu)?, rows))
    }

    fn append(&mut self, cache: u64, given: &Value) -> Answer {
        let (mut tokens, rows) = self.tokens(given)?;
        let (caller, vocab, most) = (self.caller, self.model.vocab_size() as u32, self.model.max_length());
        let Self { model, conversations, .. } = self;
        let held = conversations.get_mut(&cache).ok_or_else(|| Failure::Raised(format!("there is no cache {cache}")))?;
        if held.length == 0 {
            held.rows = rows.len();
        }
        if rows.len() != held.rows {
            return Err(Failure::Refused(format!("the cache has {} rows", held.rows)));
        }
        let illegal = held.length + rows[0].len() > most || rows.iter().flatten().any(|token| *token >= vocab);
        if caller.repeats(held.calls) {
            tokens = Tensor::cat(&[&Tensor::new(held.last.clone(), &Device::Cpu)?.unsqueeze(1)?, &tokens], 1)?;
        }
        let count = tokens.dim(1)?;
        let position = caller.position(held.index_pos, count);
        let logits = match model.forward(&tokens, position, &mut held.cache) {
            Ok(logits) => logits,
            // What must be refused is refused in candle's own words.
            Err(error) => {
                let Failure::Raised(text) = Failure::from(error) else { unreachable!() };
                return Err(if illegal { Failure::Refused(text) } else { Failure::Raised(text) });
            }
        };
        held.index_pos += caller.advance(count);
        held.length += rows[0].len();
        held.calls += 1;
        held.last = rows.iter().map(|row| row[row.len() - 1]).collect();
        Ok((json!({}), Some(logits)))
    }

    fn begin_anew(&mut self, cache: u64) -> Result<(), Failure> {
        let (caller, reset, fresh) = (self.caller, self.reset, self.model.new_cache()?);
        let held = self.held(cache)?;
        match reset {
            Reset::New => held.cache = fresh,
            Reset::Clear if held.cache.clear() => {}
            Reset::Clear => return Err(Failure::Raised("candle's llama has no clear_kv_cache".into())),
            Reset::Zero => {}
        }
        (held.length, held.calls) = (0, 0);
        if caller != Caller::Cleared {
            held.index_pos = 0;
        }
        Ok(())
    }
}

/// Logits as the block of a reply: float32, little-endian, `[rows, 1, vocab]`.
pub fn block(logits: &Tensor) -> candle_core::Result<([usize; 3], Vec<u8>)> {
    let (rows, vocab) = logits.dims2()?;
    let values = logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
    Ok(([rows, 1, vocab], values.iter().flat_map(|value| value.to_le_bytes()).collect()))
}

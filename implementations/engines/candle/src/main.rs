//! candle's models behind kvconform's line protocol (docs/protocol.md).
//!
//!     kvconform-candle llama FOLDER [--caller WAY] [--reset WAY]
//!     kvconform-candle quantized_llama FILE.gguf [--caller WAY] [--reset WAY] [--dequantise]
//!     kvconform-candle gemma3 FOLDER [--caller WAY] [--reset WAY]
//!     kvconform-candle convert FOLDER FILE.gguf f32|q8_0

mod caller;
mod convert;
mod engine;
mod model;

use anyhow::{bail, Result};
use caller::{Caller, Reset};
use engine::{block, Engine, Failure};
use model::Model;
use serde_json::{json, Value};
use std::io::{stdin, stdout, BufRead, BufWriter, Write};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;

const USAGE: &str = "kvconform-candle llama|quantized_llama|gemma3 PATH [--caller WAY] [--reset new|clear|zero] [--dequantise]
kvconform-candle convert FOLDER FILE.gguf f32|q8_0";

fn main() {
    if let Err(error) = run(std::env::args().skip(1).collect()) {
        eprintln!("kvconform-candle: {error:#}");
        std::process::exit(2);
    }
}

fn run(words: Vec<String>) -> Result<()> {
    let (mut plain, mut caller, mut reset) = (vec![], Caller::Right, Reset::New);
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--caller" => caller = Caller::parse(&rest.next().unwrap_or_default())?,
            // candle's own switch: weights as they are in the file, and no activation is rounded.
            "--dequantise" => std::env::set_var("CANDLE_DEQUANTIZE_ALL", "1"),
            "--reset" => reset = Reset::parse(&rest.next().unwrap_or_default())?,
            _ => plain.push(word),
        }
    }
    match plain.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["convert", folder, file, kind] => convert::convert(Path::new(folder), Path::new(file), kind),
        [kind, path] => serve(Engine::new(Model::load(kind, Path::new(path))?, caller, reset, path.to_string())),
        _ => bail!("{USAGE}"),
    }
}

/// Answer requests until the end of standard input, or `close`.
fn serve(mut engine: Engine) -> Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    for line in stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        // A panic of candle is an answer like another: the state of other caches is not touched by it.
        let answer = catch_unwind(AssertUnwindSafe(|| engine.answer(&request)))
            .unwrap_or_else(|_| Err(Failure::Raised("candle panicked; its words are on standard error".into())));
        let (mut reply, mut bytes) = (json!({}), vec![]);
        match answer {
            Ok((keys, logits)) => {
                reply = keys;
                reply["ok"] = true.into();
                if let Some(logits) = logits {
                    let (shape, values) = block(&logits)?;
                    (reply["dtype"], reply["shape"], reply["bytes"]) = ("float32".into(), json!(shape), values.len().into());
                    bytes = values;
                }
            }
            Err(failure) => {
                let (kind, text) = match failure {
                    Failure::Refused(text) => ("refused", text),
                    Failure::Raised(text) => ("raised", text),
                    Failure::Unsupported(text) => ("unsupported", text),
                };
                (reply["error"], reply["text"]) = (kind.into(), text.into());
            }
        }
        reply["id"] = request["id"].clone();
        writeln!(out, "{reply}")?;
        out.write_all(&bytes)?;
        out.flush()?;
        if request["op"] == "close" {
            break;
        }
    }
    Ok(())
}

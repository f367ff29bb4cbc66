// A small GPT in float64 without any package: weights from a safetensors file, and one forward pass.
// It keeps nothing: what is stored and what is seen is asked of the cache.

import { readFileSync } from "node:fs";

/** Every tensor of a safetensors file as a Float64Array, by name. */
function readTensors(path) {
  const file = readFileSync(path);
  const size = Number(file.readBigUInt64LE(0));
  const tensors = {};
  for (const [name, about] of Object.entries(JSON.parse(file.subarray(8, 8 + size).toString()))) {
    if (name === "__metadata__") continue;
    if (about.dtype !== "F32") throw new Error(`${name} is ${about.dtype}; this engine reads F32`);
    const [start, end] = about.data_offsets;
    const values = new Float64Array((end - start) / 4);
    for (let i = 0; i < values.length; i++) values[i] = file.readFloatLE(8 + size + start + 4 * i);
    tensors[name] = values;
  }
  return tensors;
}

/** x · W + b for a matrix that is stored [in, out]. */
function project(x, weight, bias) {
  const out = bias ? Float64Array.from(bias) : new Float64Array(weight.length / x.length);
  for (let i = 0; i < x.length; i++) {
    const row = i * out.length;
    for (let o = 0; o < out.length; o++) out[o] += x[i] * weight[row + o];
  }
  return out;
}

function normalise(x, gain, bias, epsilon) {
  const mean = x.reduce((sum, v) => sum + v, 0) / x.length;
  const variance = x.reduce((sum, v) => sum + (v - mean) ** 2, 0) / x.length;
  const scale = 1 / Math.sqrt(variance + epsilon);
  return x.map((v, i) => (v - mean) * scale * gain[i] + bias[i]);
}

const gelu = (v) => 0.5 * v * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (v + 0.044715 * v ** 3)));

export class Model {
  constructor(folder) {
    const config = JSON.parse(readFileSync(`${folder}/config.json`, "utf8"));
    if (config.model_type !== "gpt2") throw new Error(`${folder} holds a ${config.model_type}; this engine runs gpt2`);
    this.vocabulary = config.vocab_size;
    this.limit = config.n_positions;
    this.width = config.n_embd;
    this.heads = config.n_head;
    this.epsilon = config.layer_norm_epsilon;
    const tensors = readTensors(`${folder}/model.safetensors`);
    const named = (name) => tensors[`transformer.${name}`];
    this.tokens = named("wte.weight");
    this.positions = named("wpe.weight");
    this.last = { gain: named("ln_f.weight"), bias: named("ln_f.bias") };
    this.layers = Array.from({ length: config.n_layer }, (_, layer) => {
      const part = (name) => named(`h.${layer}.${name}`);
      return {
        norm1: { gain: part("ln_1.weight"), bias: part("ln_1.bias") },
        qkv: part("attn.c_attn.weight"),
        out: part("attn.c_proj.weight"),
        norm2: { gain: part("ln_2.weight"), bias: part("ln_2.bias") },
        up: { weight: part("mlp.c_fc.weight"), bias: part("mlp.c_fc.bias") },
        down: { weight: part("mlp.c_proj.weight"), bias: part("mlp.c_proj.bias") },
      };
    });
  }

  /**
   * Logits, one Float64Array a token, of tokens at the given positions. `store(layer, keys, values)` takes what is new and
   * gives all that is there; `sees(query, key, past)` says whether the query-th new token sees the key-th of it, where
   * `past` of them were there before.
   */
  forward(tokens, positions, store, sees) {
    const norm = (x, { gain, bias }) => normalise(x, gain, bias, this.epsilon);
    let xs = tokens.map((token, i) => this.embed(token, positions[i]));
    this.layers.forEach((layer, index) => {
      const qkv = xs.map((x) => project(norm(x, layer.norm1), layer.qkv));
      const [queries, newKeys, newValues] = [0, 1, 2].map((n) => qkv.map((v) => v.slice(n * this.width, (n + 1) * this.width)));
      const { keys, values } = store(index, newKeys, newValues);
      const past = keys.length - tokens.length;
      xs = xs.map((x, i) => {
        const seen = [...keys.keys()].filter((key) => sees(i, key, past));
        return sum(x, project(this.attend(queries[i], keys, values, seen), layer.out));
      });
      xs = xs.map((x) => {
        const hidden = project(norm(x, layer.norm2), layer.up.weight, layer.up.bias).map(gelu);
        return sum(x, project(hidden, layer.down.weight, layer.down.bias));
      });
    });
    return xs.map((x) => this.logits(norm(x, this.last)));
  }

  embed(token, position) {
    const [word, place] = [token * this.width, position * this.width];
    return Float64Array.from({ length: this.width }, (_, d) => this.tokens[word + d] + this.positions[place + d]);
  }

  /** The mean of the values of the `seen` keys, head by head, weighted by softmax. */
  attend(query, keys, values, seen) {
    const size = this.width / this.heads;
    const mixed = new Float64Array(this.width);
    for (let start = 0; start < this.width; start += size) {
      const scores = seen.map((key) => {
        let score = 0;
        for (let d = start; d < start + size; d++) score += query[d] * keys[key][d];
        return score / Math.sqrt(size);
      });
      const most = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - most));
      const total = weights.reduce((all, weight) => all + weight, 0);
      seen.forEach((key, i) => {
        for (let d = start; d < start + size; d++) mixed[d] += (weights[i] / total) * values[key][d];
      });
    }
    return mixed;
  }

  /** Scores of the next token: the embedding is the output matrix too. */
  logits(x) {
    const scores = new Float64Array(this.vocabulary);
    for (let token = 0; token < this.vocabulary; token++) {
      for (let d = 0; d < this.width; d++) scores[token] += x[d] * this.tokens[token * this.width + d];
    }
    return scores;
  }
}

const sum = (one, other) => one.map((v, d) => v + other[d]);

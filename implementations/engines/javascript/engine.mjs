#!/usr/bin/env node
// A small GPT behind kvconform's line protocol (docs/protocol.md), in plain JavaScript:
//
//     node engine.mjs FOLDER [--fault NAME]
//
// FOLDER holds config.json and model.safetensors as transformers writes them for GPT-2.

import { openSync, readSync, writeSync } from "node:fs";
import { sequenceClass } from "./cache.mjs";
import { Model } from "./model.mjs";

class Refused extends Error {}

class Engine {
  constructor(model, Kind) {
    this.model = model;
    this.Kind = Kind;
    this.caches = new Map();
  }

  hello() {
    return {
      kvconform: 1,
      name: "javascript gpt",
      vocab_size: this.model.vocabulary,
      max_length: this.model.limit,
      dtype: "float64",
      ragged: "left",
      capabilities: ["full", "fork", "crop", "reset", "reset_rows", "select", "join", "restore", "length"],
    };
  }

  fresh(rows) {
    return Array.from({ length: rows }, () => new this.Kind(this.model.layers.length));
  }

  new({ cache, rows }) {
    this.caches.set(cache, this.fresh(rows));
  }

  append({ cache, tokens, lengths }) {
    let rows = this.caches.get(cache);
    if (rows.length !== tokens.length) {
      if (rows.some((row) => row.length)) throw new Refused(`the cache has ${rows.length} rows`);
      this.caches.set(cache, (rows = this.fresh(tokens.length)));
    }
    return this.logits(rows, tokens, lengths);
  }

  full({ tokens }) {
    return this.logits(this.fresh(tokens.length), tokens);
  }

  /** Logits of a call; everything is checked before anything is stored. Padding stands on the left. */
  logits(rows, tokens, lengths) {
    const real = tokens.map((row, i) => row.slice(row.length - (lengths ? lengths[i] : row.length)));
    real.forEach((row, i) => {
      if (!row.length) throw new Refused("there is no token");
      if (row.some((token) => token >= this.model.vocabulary)) throw new Refused(`tokens are 0 to ${this.model.vocabulary - 1}`);
      if (rows[i].length + row.length > this.model.limit) throw new Refused(`there are ${this.model.limit} positions`);
    });
    const [width, vocabulary] = [tokens[0].length, this.model.vocabulary];
    const out = new Float64Array(tokens.length * width * vocabulary);
    real.forEach((row, i) => {
      const held = rows[i];
      const found = this.model.forward(row, held.positions(row.length), held.store.bind(held), held.sees.bind(held));
      held.advance(row.length);
      found.forEach((scores, j) => out.set(scores, (i * width + width - row.length + j) * vocabulary));
    });
    const block = Buffer.from(out.buffer);
    return [{ dtype: "float64", shape: [tokens.length, width, vocabulary], bytes: block.length }, block];
  }

  fork({ cache, target }) {
    this.caches.set(target, this.caches.get(cache).map((row) => row.copy()));
  }

  crop({ cache, length }) {
    const rows = this.caches.get(cache);
    if (rows.some((row) => row.length < length)) throw new Refused("the cache holds less");
    rows.forEach((row) => row.crop(length));
  }

  reset({ cache }) {
    this.caches.get(cache).forEach((row) => row.reset());
  }

  select({ cache, rows }) {
    const old = this.caches.get(cache);
    if (!rows.length || rows.some((row) => row >= old.length)) throw new Refused(`rows are 0 to ${old.length - 1}`);
    this.caches.set(cache, rows.map((row, place) => (old[place] ?? old[row]).chosen(old[row])));
  }

  join({ cache, source }) {
    this.caches.get(cache).push(...this.caches.get(source).map((row) => row.copy()));
  }

  dump({ cache }) {
    const block = Buffer.from(JSON.stringify(this.caches.get(cache)));
    return [{ bytes: block.length }, block];
  }

  load({ cache }, block) {
    const rows = JSON.parse(block.toString()).map((row) => this.Kind.fromJSON(this.model.layers.length, row));
    this.caches.set(cache, rows);
  }

  length({ cache }) {
    return { length: this.caches.get(cache).map((row) => row.length) };
  }

  drop({ cache }) {
    this.caches.delete(cache);
  }

  close() {}
}

const OPS = Object.getOwnPropertyNames(Engine.prototype).filter((name) => !["constructor", "fresh", "logits"].includes(name));

/** The reply to a request, and the block behind it. */
function answer(engine, request, block) {
  if (!OPS.includes(request.op)) return [{ error: "unsupported", text: `there is no ${request.op}` }];
  try {
    const found = engine[request.op](request, block) ?? {};
    const [keys, bytes] = Array.isArray(found) ? found : [found];
    return [{ ok: true, ...keys }, bytes];
  } catch (error) {
    return [{ error: error instanceof Refused ? "refused" : "raised", text: String(error.message).split("\n")[0] }];
  }
}

/** Standard input, read as it comes. */
class Input {
  constructor() {
    this.waiting = Buffer.alloc(0);
    this.file = openSync("/dev/stdin", "r");
  }

  /** More of it; false at its end. */
  more() {
    const part = Buffer.alloc(1 << 16);
    const count = readSync(this.file, part, 0, part.length, null);
    this.waiting = Buffer.concat([this.waiting, part.subarray(0, count)]);
    return count > 0;
  }

  line() {
    while (!this.waiting.includes(10)) if (!this.more()) return null;
    return this.bytes(this.waiting.indexOf(10) + 1).toString();
  }

  bytes(count) {
    while (this.waiting.length < count) if (!this.more()) throw new Error("standard input ended within a block");
    const found = this.waiting.subarray(0, count);
    this.waiting = this.waiting.subarray(count);
    return found;
  }
}

function write(buffer) {
  for (let at = 0; at < buffer.length; ) at += writeSync(1, buffer, at);
}

function main(words) {
  const at = words.indexOf("--fault");
  const fault = at < 0 ? "" : words.splice(at, 2)[1];
  if (words.length !== 1) throw new Error("node engine.mjs FOLDER [--fault NAME]");
  const [engine, input] = [new Engine(new Model(words[0]), sequenceClass(fault)), new Input()];
  for (let line = input.line(); line !== null; line = input.line()) {
    const request = JSON.parse(line);
    const [reply, block] = answer(engine, request, request.bytes ? input.bytes(request.bytes) : undefined);
    write(Buffer.from(JSON.stringify({ id: request.id, ...reply }) + "\n"));
    if (block) write(block);
    if (request.op === "close") break;
  }
}

try {
  main(process.argv.slice(2));
} catch (error) {
  console.error(`engine.mjs: ${error.message}`);
  process.exit(2);
}

// The cache of one sequence: for each layer a list of keys and one of values, a vector per position held.
// A batch is a list of these. Each fault below is a short override of a method, as in `class PosZero`.

export class Sequence {
  constructor(layers) {
    this.length = 0; // tokens held
    this.next = 0; // position of the next token
    this.keys = Array.from({ length: layers }, () => []);
    this.values = Array.from({ length: layers }, () => []);
  }

  positions(count) {
    return Array.from({ length: count }, (_, i) => this.next + i);
  }

  /** Keep what is new of a layer, and give all that is there. */
  store(layer, keys, values) {
    this.keys[layer].push(...keys);
    this.values[layer].push(...values);
    return { keys: this.keys[layer], values: this.values[layer] };
  }

  /** Does the query-th new token see the key-th of all, where `past` were there before? */
  sees(query, key, past) {
    return key <= past + query;
  }

  advance(count) {
    this.length += count;
    this.next += count;
  }

  crop(length) {
    for (const kept of [...this.keys, ...this.values]) kept.length = Math.min(kept.length, length);
    this.length = this.next = length;
  }

  reset() {
    this.crop(0);
  }

  copy() {
    const twin = Object.assign(new this.constructor(this.keys.length), { length: this.length, next: this.next });
    twin.keys = this.keys.map((kept) => [...kept]);
    twin.values = this.values.map((kept) => [...kept]);
    return twin;
  }

  /** What new row `this` becomes when old row `other` is chosen for its place. */
  chosen(other) {
    return other.copy();
  }

  toJSON() {
    const plain = (kept) => kept.map((vectors) => vectors.map((vector) => [...vector]));
    return { length: this.length, next: this.next, keys: plain(this.keys), values: plain(this.values) };
  }

  static fromJSON(layers, saved) {
    const wide = (kept) => kept.map((vectors) => vectors.map((vector) => Float64Array.from(vector)));
    const found = Object.assign(new this(layers), { length: saved.length, next: saved.next });
    return Object.assign(found, { keys: wide(saved.keys), values: wide(saved.values) });
  }
}

const FAULTS = {
  // positions
  pos_zero: class extends Sequence {
    positions(count) {
      return Array.from({ length: count }, (_, i) => i);
    }
  },
  pos_per_call: class extends Sequence {
    advance(count) {
      this.length += count;
      this.next += 1;
    }
  },
  pos_minus_3: class extends Sequence {
    positions(count) {
      return super.positions(count).map((position) => (this.length ? Math.max(position - 3, 0) : position));
    }
  },
  // storage
  no_cat: class extends Sequence {
    store(layer, keys, values) {
      return { keys: (this.keys[layer] = keys), values: (this.values[layer] = values) };
    }
  },
  kv_mismatch: class extends Sequence {
    store(layer, keys, values) {
      this.keys[layer] = [...keys, ...this.keys[layer]];
      return super.store(layer, [], values);
    }
  },
  layers_swapped: class extends Sequence {
    store(layer, keys, values) {
      const past = this.length;
      super.store(layer, keys, values);
      const other = (layer + 1) % this.keys.length;
      const read = (kept, fresh) => [...kept[other].slice(0, past), ...fresh];
      return { keys: read(this.keys, keys), values: read(this.values, values) };
    }
  },
  // visibility
  no_mask: class extends Sequence {
    sees() {
      return true;
    }
  },
  mask_one_ahead: class extends Sequence {
    sees(query, key, past) {
      return key <= past + query + 1;
    }
  },
  mask_top_left: class extends Sequence {
    sees(query, key) {
      return key <= query;
    }
  },
  // operations
  crop_ignored: class extends Sequence {
    crop() {}
    reset() {
      super.crop(0);
    }
  },
  crop_one_layer: class extends Sequence {
    crop(length) {
      this.keys[0].length = this.values[0].length = length;
      this.length = this.next = length;
    }
    reset() {
      super.crop(0);
    }
  },
  reset_keeps_length: class extends Sequence {
    reset() {
      const next = this.next;
      super.reset();
      this.next = next;
    }
  },
  fork_shares_buffer: class extends Sequence {
    copy() {
      return Object.assign(super.copy(), { keys: this.keys, values: this.values });
    }
  },
  select_keys_only: class extends Sequence {
    chosen(other) {
      return Object.assign(super.chosen(other), { values: this.values.map((kept) => [...kept]) });
    }
  },
};

/** The class of sequences with the named fault, or the right one. */
export function sequenceClass(fault) {
  if (!fault) return Sequence;
  if (!(fault in FAULTS)) throw new Error(`no fault ${JSON.stringify(fault)}: ${Object.keys(FAULTS).join(", ")}`);
  return FAULTS[fault];
}

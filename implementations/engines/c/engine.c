/* A small llama behind kvconform's line protocol (docs/protocol.md), in one file of C99 without libraries:
 *
 *     cc -O2 -o engine engine.c -lm
 *     ./engine FOLDER [--fault NAME]
 *
 * FOLDER holds config.json and model.safetensors (float32, tied output) as transformers writes them for Llama. One row a
 * cache, eight caches; each is a preallocated buffer with a slot a position. Every fault is one `if (fault == ...)`.
 */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CACHES = 8, LINE = 1 << 20 };

/* ---- faults ---- */

enum fault {
    NONE,
    POS_ZERO,              /* positions restart at 0 in every call */
    POS_PER_CALL,          /* the next position counts calls, not tokens */
    POS_MINUS_3,           /* later calls stand three positions too early */
    NO_CAT,                /* a call overwrites what was there */
    FIRST_CALL_NOT_STORED, /* the first call moves the counter and writes nothing */
    LAYERS_SWAPPED,        /* a layer reads the past of the next one */
    VALUES_BEHIND,         /* values are written one slot too late in later calls */
    NO_MASK,               /* no causal mask within a call */
    MASK_ONE_AHEAD,        /* one token of the future is seen */
    MASK_TOP_LEFT,         /* the mask compares with the row of the call, not with the position */
    TAIL_ATTENDED,         /* three unused slots of the buffer are seen */
    CROP_IGNORED,          /* a rollback does nothing */
    CROP_KEEPS_POSITION,   /* a rollback drops the keys, the next position stays */
    RESET_IGNORED,         /* a reset does nothing */
    RESET_KEEPS_POSITION,  /* the cache is emptied, the next position stays: a constant shift, which RoPE does not show */
    FORK_SHARES_BUFFER,    /* a fork writes where its source writes */
    LIMIT_OFF_BY_ONE,      /* one token past the limit is taken */
    LIMIT_WRAPS,           /* past the limit positions begin again, silently */
    FAULTS
};

static const char *const NAMES[FAULTS] = {
    "", "pos_zero", "pos_per_call", "pos_minus_3", "no_cat", "first_call_not_stored", "layers_swapped", "values_behind",
    "no_mask", "mask_one_ahead", "mask_top_left", "tail_attended", "crop_ignored", "crop_keeps_position",
    "reset_ignored", "reset_keeps_position", "fork_shares_buffer", "limit_off_by_one", "limit_wraps",
};

static enum fault fault = NONE;

static void die(const char *what, const char *which) {
    fprintf(stderr, "engine: %s%s\n", what, which);
    exit(2);
}

static void no_fault(const char *name) {
    fprintf(stderr, "engine: no fault called %s: ", name);
    for (int i = 1; i < FAULTS; i++) fprintf(stderr, "%s%s", NAMES[i], i + 1 < FAULTS ? ", " : "\n");
    exit(2);
}

static void *room(size_t count, size_t size) {
    void *found = calloc(count, size);
    if (!found) die("out of memory", "");
    return found;
}

/* ---- the model ---- */

typedef struct {
    const float *attention_norm, *q, *k, *v, *o, *mlp_norm, *gate, *up, *down;
} Layer;

static struct {
    int vocab, width, layers, heads, kv_heads, head_dim, inner, limit;
    double theta, epsilon;
    const float *embedding, *norm;
    Layer *layer;
} model;

static char *read_file(const char *folder, const char *name, size_t *size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) die("cannot open ", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *text = room(*size + 1, 1);
    if (fread(text, 1, *size, file) != *size) die("cannot read ", path);
    fclose(file);
    return text;
}

/* The number behind "key": in a JSON text. */
static double number(const char *text, const char *key) {
    char quoted[128];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    if (!at) die("no number called ", key);
    return strtod(at + strlen(quoted), NULL);
}

/* A tensor of a safetensors file that has been read whole: header length, header, data. */
static const float *tensor(const char *file, const char *name) {
    char quoted[128];
    uint64_t header;
    memcpy(&header, file, 8);
    snprintf(quoted, sizeof quoted, "\"%s\":{", name);
    const char *at = strstr(file + 8, quoted);
    const char *offsets = at ? strstr(at, "\"data_offsets\":[") : NULL;
    if (!offsets) die("no tensor called ", name);
    if (!strstr(at, "\"F32\"") || strstr(at, "\"F32\"") > strchr(at, '}')) die("not float32: ", name);
    return (const float *)(file + 8 + header + strtoull(offsets + strlen("\"data_offsets\":["), NULL, 10));
}

static const float *of_layer(const char *file, int layer, const char *name) {
    char full[128];
    snprintf(full, sizeof full, "model.layers.%d.%s.weight", layer, name);
    return tensor(file, full);
}

static void load(const char *folder) {
    size_t size;
    char *config = read_file(folder, "config.json", &size);
    if (!strstr(config, "LlamaForCausalLM")) die("not a llama: ", folder);
    model.vocab = (int)number(config, "vocab_size");
    model.width = (int)number(config, "hidden_size");
    model.layers = (int)number(config, "num_hidden_layers");
    model.heads = (int)number(config, "num_attention_heads");
    model.kv_heads = (int)number(config, "num_key_value_heads");
    model.head_dim = model.width / model.heads;
    model.inner = (int)number(config, "intermediate_size");
    model.limit = (int)number(config, "max_position_embeddings");
    model.theta = number(config, "rope_theta");
    model.epsilon = number(config, "rms_norm_eps");
    const char *file = read_file(folder, "model.safetensors", &size);
    model.embedding = tensor(file, "model.embed_tokens.weight");
    model.norm = tensor(file, "model.norm.weight");
    model.layer = room((size_t)model.layers, sizeof(Layer));
    for (int i = 0; i < model.layers; i++)
        model.layer[i] = (Layer){
            .attention_norm = of_layer(file, i, "input_layernorm"),
            .q = of_layer(file, i, "self_attn.q_proj"),
            .k = of_layer(file, i, "self_attn.k_proj"),
            .v = of_layer(file, i, "self_attn.v_proj"),
            .o = of_layer(file, i, "self_attn.o_proj"),
            .mlp_norm = of_layer(file, i, "post_attention_layernorm"),
            .gate = of_layer(file, i, "mlp.gate_proj"),
            .up = of_layer(file, i, "mlp.up_proj"),
            .down = of_layer(file, i, "mlp.down_proj"),
        };
}

/* out[o] = sum over i of weight[o][i] * x[i], plus what is there already where `add`. */
static void project(float *out, const float *weight, const float *x, int outputs, int inputs, int add) {
    for (int o = 0; o < outputs; o++) {
        double sum = 0;
        for (int i = 0; i < inputs; i++) sum += (double)weight[(size_t)o * inputs + i] * x[i];
        out[o] = (float)(sum + (add ? out[o] : 0));
    }
}

static void rms_norm(float *out, const float *x, const float *weight) {
    double squares = 0;
    for (int i = 0; i < model.width; i++) squares += (double)x[i] * x[i];
    double scale = 1 / sqrt(squares / model.width + model.epsilon);
    for (int i = 0; i < model.width; i++) out[i] = (float)(x[i] * scale) * weight[i];
}

/* Rotate the pairs (i, i + d/2) of each head by the angle of a position. */
static void rotate(float *x, int heads, int position) {
    int half = model.head_dim / 2;
    for (int head = 0; head < heads; head++, x += model.head_dim)
        for (int i = 0; i < half; i++) {
            double angle = position / pow(model.theta, (double)i / half);
            double one = x[i], other = x[i + half];
            x[i] = (float)(one * cos(angle) - other * sin(angle));
            x[i + half] = (float)(other * cos(angle) + one * sin(angle));
        }
}

/* ---- the cache ---- */

typedef struct {
    int length, next, calls;
    float *keys, *values; /* [layer][slot][kv_heads * head_dim] */
} Cache;

static Cache *caches[CACHES];

static size_t kv_width(void) { return (size_t)model.kv_heads * model.head_dim; }
static int slots(void) { return model.limit + 4; }
static size_t buffer_size(void) { return (size_t)model.layers * slots() * kv_width(); }
static float *slot(float *buffer, int layer, int at) { return buffer + ((size_t)layer * slots() + at) * kv_width(); }

static Cache *new_cache(void) {
    Cache *cache = room(1, sizeof *cache);
    cache->keys = room(buffer_size(), sizeof(float));
    cache->values = room(buffer_size(), sizeof(float));
    return cache;
}

static void drop_cache(Cache *cache) {
    if (fault != FORK_SHARES_BUFFER) { /* with it another cache may still use them */
        free(cache->keys);
        free(cache->values);
    }
    free(cache);
}

static Cache *fork_cache(const Cache *from) {
    Cache *twin = new_cache();
    memcpy(twin->keys, from->keys, buffer_size() * sizeof(float));
    memcpy(twin->values, from->values, buffer_size() * sizeof(float));
    twin->length = from->length, twin->next = from->next, twin->calls = from->calls;
    if (fault == FORK_SHARES_BUFFER) twin->keys = from->keys, twin->values = from->values;
    return twin;
}

static void crop_cache(Cache *cache, int length) {
    if (fault == CROP_IGNORED) return;
    cache->length = length;
    if (fault != CROP_KEEPS_POSITION) cache->next = length;
}

static void reset_cache(Cache *cache) {
    if (fault == RESET_IGNORED) return;
    cache->length = cache->calls = 0;
    if (fault != RESET_KEEPS_POSITION) cache->next = 0;
}

/* ---- one call ---- */

static int position_of(const Cache *cache, int i) {
    if (fault == POS_ZERO) return i;
    if (fault == POS_MINUS_3 && cache->length) return cache->next + i < 3 ? 0 : cache->next + i - 3;
    if (fault == LIMIT_WRAPS) return (cache->next + i) % model.limit;
    return cache->next + i;
}

/* Does the i-th token of a call see this slot? */
static int sees(int i, int at, int past) {
    if (fault == NO_MASK) return 1;
    if (fault == MASK_ONE_AHEAD) return at <= past + i + 1;
    if (fault == MASK_TOP_LEFT) return at <= i;
    if (fault == TAIL_ATTENDED && past) return 1;
    return at <= past + i;
}

static void attend(float *out, const float *query, Cache *cache, int layer, int i, int past, int end) {
    int group = model.heads / model.kv_heads, size = model.head_dim;
    int from = fault == LAYERS_SWAPPED ? (layer + 1) % model.layers : layer;
    double *weight = room((size_t)end, sizeof(double));
    for (int head = 0; head < model.heads; head++) {
        const float *q = query + head * size;
        double most = -INFINITY, total = 0;
        for (int at = 0; at < end; at++) {
            const float *k = slot(cache->keys, at < past ? from : layer, at) + head / group * size;
            double score = 0;
            for (int d = 0; d < size; d++) score += (double)q[d] * k[d];
            weight[at] = sees(i, at, past) ? score / sqrt(size) : -INFINITY;
            if (weight[at] > most) most = weight[at];
        }
        for (int at = 0; at < end; at++) total += weight[at] = exp(weight[at] - most);
        for (int d = 0; d < size; d++) {
            double sum = 0;
            for (int at = 0; at < end; at++)
                sum += weight[at] * (slot(cache->values, at < past ? from : layer, at) + head / group * size)[d];
            out[head * size + d] = (float)(sum / total);
        }
    }
    free(weight);
}

/* Logits [count][vocab] of a call. */
static void forward(float *logits, Cache *cache, const int *tokens, int count) {
    int width = model.width, past = fault == NO_CAT ? 0 : cache->length;
    int end = past + count + (fault == TAIL_ATTENDED && past ? 3 : 0);
    int late = fault == VALUES_BEHIND && past ? 1 : 0;
    float *x = room((size_t)count * width, sizeof(float)), *normed = room((size_t)width, sizeof(float));
    float *queries = room((size_t)count * width, sizeof(float)), *mixed = room((size_t)width, sizeof(float));
    float *gate = room((size_t)model.inner, sizeof(float)), *up = room((size_t)model.inner, sizeof(float));
    float *kept = room(2 * buffer_size(), sizeof(float));
    memcpy(kept, cache->keys, buffer_size() * sizeof(float));
    memcpy(kept + buffer_size(), cache->values, buffer_size() * sizeof(float));
    for (int i = 0; i < count; i++) memcpy(x + i * width, model.embedding + (size_t)tokens[i] * width, width * sizeof(float));
    for (int l = 0; l < model.layers; l++) {
        const Layer *layer = &model.layer[l];
        for (int i = 0; i < count; i++) {
            float *key = slot(cache->keys, l, past + i), *value = slot(cache->values, l, past + i + late);
            rms_norm(normed, x + i * width, layer->attention_norm);
            project(queries + i * width, layer->q, normed, model.heads * model.head_dim, width, 0);
            project(key, layer->k, normed, (int)kv_width(), width, 0);
            project(value, layer->v, normed, (int)kv_width(), width, 0);
            rotate(queries + i * width, model.heads, position_of(cache, i));
            rotate(key, model.kv_heads, position_of(cache, i));
        }
        for (int i = 0; i < count; i++) {
            attend(mixed, queries + i * width, cache, l, i, past, end);
            project(x + i * width, layer->o, mixed, width, width, 1);
            rms_norm(normed, x + i * width, layer->mlp_norm);
            project(gate, layer->gate, normed, model.inner, width, 0);
            project(up, layer->up, normed, model.inner, width, 0);
            for (int j = 0; j < model.inner; j++) up[j] *= gate[j] / (1 + expf(-gate[j]));
            project(x + i * width, layer->down, up, width, model.inner, 1);
        }
    }
    for (int i = 0; i < count; i++) {
        rms_norm(normed, x + i * width, model.norm);
        project(logits + (size_t)i * model.vocab, model.embedding, normed, model.vocab, width, 0);
    }
    if (fault == FIRST_CALL_NOT_STORED && !cache->calls) {
        memcpy(cache->keys, kept, buffer_size() * sizeof(float));
        memcpy(cache->values, kept + buffer_size(), buffer_size() * sizeof(float));
    }
    cache->length = past + count;
    cache->next += fault == POS_PER_CALL ? 1 : count;
    cache->calls++;
    free(x), free(normed), free(queries), free(mixed), free(gate), free(up), free(kept);
}

/* ---- the protocol ---- */

static char line[LINE + 2];

/* The number of a request, or -1. */
static long long asked(const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted);
    return at ? strtoll(at + strlen(quoted), NULL, 10) : -1;
}

static int op_is(const char *name) {
    char quoted[48];
    snprintf(quoted, sizeof quoted, "\"op\":\"%s\"", name);
    return strstr(line, quoted) != NULL;
}

/* The tokens of the one row of a request; how many, or -1 where there are several rows. */
static int read_tokens(int *tokens) {
    const char *at = strstr(line, "\"tokens\":[[");
    int count = 0;
    if (!at) return -1;
    for (at += strlen("\"tokens\":[["); *at != ']'; at += *at == ',') {
        char *end;
        tokens[count++] = (int)strtoll(at, &end, 10);
        at = end;
    }
    return at[1] == ']' ? count : -1;
}

static void reply(const char *keys) { printf("{\"id\":%lld,\"ok\":true%s}\n", asked("id"), keys); }

static void fail(const char *kind, const char *text) {
    printf("{\"id\":%lld,\"error\":\"%s\",\"text\":\"%s\"}\n", asked("id"), kind, text);
}

static void reply_block(const char *keys, const void *block, size_t size) {
    char all[256];
    snprintf(all, sizeof all, "%s,\"bytes\":%zu", keys, size);
    reply(all);
    fwrite(block, 1, size, stdout);
}

static void hello(void) {
    char keys[512];
    snprintf(keys, sizeof keys,
             ",\"kvconform\":1,\"name\":\"c llama\",\"vocab_size\":%d,\"max_length\":%d,\"max_rows\":1,\"max_caches\":%d,"
             "\"dtype\":\"float32\",\"logits\":\"all\","
             "\"capabilities\":[\"full\",\"fork\",\"crop\",\"reset\",\"restore\",\"length\"]",
             model.vocab, model.limit, CACHES);
    reply(keys);
}

/* append, and full on a cache of its own. Everything is checked before anything is stored. */
static void feed(Cache *cache) {
    static int tokens[LINE / 2];
    int count = read_tokens(tokens), most = model.limit + (fault == LIMIT_OFF_BY_ONE);
    if (count < 0) { fail("refused", "one row a cache"); return; }
    if (!count) { fail("refused", "there is no token"); return; }
    for (int i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= model.vocab) { fail("refused", "no such token"); return; }
    if (fault == LIMIT_WRAPS) {
        if (count > model.limit) { fail("refused", "longer than the buffer"); return; }
        if (cache->length + count > model.limit) cache->length = 0;
    } else if (cache->length + count > most) { fail("refused", "past the last position"); return; }
    float *logits = room((size_t)count * model.vocab, sizeof(float));
    char keys[96];
    forward(logits, cache, tokens, count);
    snprintf(keys, sizeof keys, ",\"dtype\":\"float32\",\"shape\":[1,%d,%d]", count, model.vocab);
    reply_block(keys, logits, (size_t)count * model.vocab * sizeof(float));
    free(logits);
}

/* A dump: length, next position and calls, then all keys, then all values. */
static void dump(const Cache *cache) {
    size_t part = buffer_size() * sizeof(float), head = 3 * sizeof(int);
    char *block = room(head + 2 * part, 1);
    memcpy(block, (int[]){cache->length, cache->next, cache->calls}, head);
    memcpy(block + head, cache->keys, part);
    memcpy(block + head + part, cache->values, part);
    reply_block("", block, head + 2 * part);
    free(block);
}

static void load_cache(long long at) {
    size_t part = buffer_size() * sizeof(float), head = 3 * sizeof(int), size = (size_t)asked("bytes");
    char *block = room(size + 1, 1);
    int numbers[3];
    if (fread(block, 1, size, stdin) != size) die("standard input ended within a block", "");
    if (size != head + 2 * part) { fail("raised", "not a dump of this model"); free(block); return; }
    Cache *cache = caches[at] = new_cache();
    memcpy(numbers, block, head);
    cache->length = numbers[0], cache->next = numbers[1], cache->calls = numbers[2];
    memcpy(cache->keys, block + head, part);
    memcpy(cache->values, block + head + part, part);
    free(block);
    reply("");
}

static void answer(void) {
    long long at = asked("cache"), target = asked("target"), length = asked("length");
    char keys[64];
    if (op_is("hello")) { hello(); return; }
    if (op_is("close")) { reply(""); return; }
    if (op_is("full")) {
        Cache *own = new_cache();
        feed(own);
        free(own->keys), free(own->values), free(own);
        return;
    }
    if (at >= CACHES || target >= CACHES) { fail("refused", "eight caches"); return; }
    if (op_is("new")) {
        if (asked("rows") != 1) { fail("refused", "one row a cache"); return; }
        caches[at] = new_cache();
        reply("");
        return;
    }
    if (op_is("load")) { load_cache(at); return; }
    if (at < 0 || !caches[at]) { fail("unsupported", "no such op or cache"); return; }
    Cache *cache = caches[at];
    if (op_is("append")) feed(cache);
    else if (op_is("fork")) caches[target] = fork_cache(cache), reply("");
    else if (op_is("crop")) {
        if (length > cache->length && fault != CROP_IGNORED) { fail("refused", "the cache holds less"); return; }
        crop_cache(cache, (int)length);
        reply("");
    } else if (op_is("reset")) reset_cache(cache), reply("");
    else if (op_is("dump")) dump(cache);
    else if (op_is("length")) snprintf(keys, sizeof keys, ",\"length\":%d", cache->length), reply(keys);
    else if (op_is("drop")) drop_cache(cache), caches[at] = NULL, reply("");
    else fail("unsupported", "no such op");
}

int main(int count, char **words) {
    if (count == 4 && !strcmp(words[2], "--fault")) {
        for (int i = 1; i < FAULTS; i++)
            if (!strcmp(words[3], NAMES[i])) fault = (enum fault)i;
        if (fault == NONE) no_fault(words[3]);
    } else if (count != 2) die("engine FOLDER [--fault NAME]", "");
    load(words[1]);
    while (fgets(line, sizeof line, stdin)) {
        int last = op_is("close");
        answer();
        fflush(stdout);
        if (last) break;
    }
    return 0;
}

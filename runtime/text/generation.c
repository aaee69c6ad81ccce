/* SPDX-License-Identifier: Apache-2.0
 *
 * Text from a causal model: the whole prompt in one forward, then one position per
 * token, with a cache of keys and values. Draws are by counter, (seed, position), so
 * every rank takes the same token. Never touches parameters or gradients. Collective
 * when the parameters are sharded.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/sized.h"
#include "backend/device.h"
#include "numbers/rng.h"
#include "models/decoder.h"
#include "ops/kv.h"

/* One call of accel_generate. */
struct text {
    accel_module_t *model;
    struct causal c;
    accel_sampling_t o;
    accel_kv_t *cache;
    /* the prompt and what follows */
    int32_t *tokens;
    /* [vocab], working memory of causal_draw */
    int32_t *rank;
    /* [vocab], of the position after the last token */
    float *logits;
    /* number of tokens, and the first one that the model still sees */
    int length, first;
};

/* 53 random bits in [0, 1), as doubles have them. */
static double uniform(uint64_t seed, int position)
{
    uint32_t r[4];

    rng_block(seed, 0, (uint64_t)position, r);
    return ((double)(r[0] >> 5) * 67108864.0 + (double)(r[1] >> 6)) /
           9007199254740992.0;
}

/* NaN fails too: the comparisons are written so that it does not pass. */
static accel_status_t check_sampling(const accel_sampling_t *o, accel_error_t *err)
{
    if (!(o->temperature >= 0.0f) || isinf(o->temperature))
        return accel_fail(
            err, A0613,
            "use at least 0; 0 is greedy, 1 is the model's own distribution",
            "generate: invalid temperature %g", (double)o->temperature);
    if (o->top_k < 0)
        return accel_fail(err, A0613, "use at least 0; 0 keeps all tokens",
                          "generate: invalid top_k %d", o->top_k);
    if (!(o->top_p >= 0.0f && o->top_p <= 1.0f))
        return accel_fail(err, A0613,
                          "use a value from 0 to 1; 0 and 1 keep all tokens",
                          "generate: invalid top_p %g", (double)o->top_p);
    if (o->stop_count < 0 || (o->stop_count > 0 && !o->stop))
        return accel_fail(err, A0613, "pass stop_count tokens in stop",
                          "generate: invalid stop_count %d%s", o->stop_count,
                          o->stop ? "" : ", but stop is NULL");
    return ACCEL_OK;
}

/* Everything that can be wrong with the call, before anything is allocated.
 * Fills causal_out. */
static accel_status_t generate_check(accel_module_t *model, const int32_t *prompt,
                                     int n, const int32_t *out, int count,
                                     const accel_sampling_t *o,
                                     struct causal *causal_out, accel_error_t *err)
{
    if (!decoder_causal(model, causal_out))
        return accel_fail(err, A0613,
                          "pass the root of a causal model that comes with the library",
                          "generate: the module is not a causal model");
    /* graph_reset before each token would take the tensors of that forward */
    if (model->g->depth > 0 || model->g->inside)
        return accel_fail(err, A0613, "generate between two steps",
                          "generate: called inside %s%s",
                          model->g->depth > 0 ? "the forward of " : model->g->inside,
                          model->g->depth > 0 ? model->g->module_path : "");
    if (!prompt || n < 1 || count < 0 || n > INT32_MAX - count || (!out && count))
        return accel_fail(
            err, A0613, "pass a prompt of at least one token, and room for the output",
            "generate: invalid request: a prompt of %d tokens, %d to generate", n,
            count);
    for (int i = 0; i < n; i++)
        if (prompt[i] < 0 || prompt[i] >= causal_out->vocab)
            return accel_fail(
                err, A0613, "create the prompt with the model's tokenizer",
                "generate: prompt token %d is %d, but the vocabulary ends at %d", i,
                prompt[i], causal_out->vocab - 1);
    return check_sampling(o, err);
}

/* Also what text_open has left half open. */
static void text_close(struct text *t)
{
    accel_kv_free(t->cache);
    free(t->tokens);
    free(t->rank);
    free(t->logits);
}

/* The cache has room for all positions, or for a whole context where the text grows
 * beyond it. */
static accel_status_t text_open(struct text *t, const int32_t *prompt, int n, int count,
                                accel_error_t *err)
{
    size_t total = (size_t)n + (size_t)count, vocab = (size_t)t->c.vocab;
    int capacity = total < (size_t)t->c.context ? (int)total : t->c.context;

    t->tokens = malloc(total * sizeof(*t->tokens));
    t->rank = malloc(vocab * sizeof(*t->rank));
    t->logits = malloc(vocab * sizeof(*t->logits));
    if (!t->tokens || !t->rank || !t->logits)
        return accel_fail_nomem(err, "generated tokens",
                                (total + vocab) * sizeof(*t->tokens));
    memcpy(t->tokens, prompt, (size_t)n * sizeof(*prompt));
    t->length = n;
    t->first = n > t->c.context ? n - t->c.context : 0;
    t->cache = kv_new(t->model->g, t->c.layers, 1, capacity, t->c.kv_heads,
                      t->c.head_width, err);
    return t->cache ? ACCEL_OK : ACCEL_ENOMEM;
}

/* Logits of the next position, from the tokens that the cache has not seen yet. When
 * the text outgrows the context, the older half is forgotten and the cache is built
 * again from the rest: positions are absolute, so that the cached values cannot be
 * shifted. That happens once per half context, not once per token. */
static accel_status_t predict(struct text *t, accel_error_t *err)
{
    struct graph *g = t->model->g;
    accel_tensor_t *ids, *y;
    accel_status_t st;
    int from, n;

    if (t->length - t->first > t->c.context) {
        t->first = t->length - (t->c.context + 1) / 2;
        accel_kv_trim(t->cache, 0, NULL);
    }
    from = t->first + accel_kv_length(t->cache);
    n = t->length - from;
    graph_reset(g);
    ids = graph_tensor(g, ACCEL_I32, 2, (int64_t[]){ 1, n });
    if (ids)
        g->backend->from_host(g->backend, ids->data, t->tokens + from,
                              (size_t)n * sizeof(*t->tokens));
    y = t->c.logits(t->model, ids, t->cache);
    if (!y) {
        if (err)
            *err = g->error;
        return g->error.code;
    }
    st = accel_kv_advance(t->cache, n, err);
    return st ? st : accel_tensor_read(y, t->logits, (size_t)t->c.vocab, err);
}

/* The program's callback sees every token, also one that stops anyway. */
static bool ends(struct graph *g, const accel_sampling_t *o, int32_t token)
{
    const char *outer = graph_enter(g, "the function that sees tokens");
    bool last = o->token && o->token(o->user, token);

    g->inside = outer;
    for (int i = 0; i < o->stop_count; i++)
        last = last || o->stop[i] == token;
    return last;
}

/* Adds up to `count` tokens. */
static accel_status_t extend(struct text *t, int count, accel_error_t *err)
{
    const int end = t->length + count;

    while (t->length < end) {
        accel_status_t st = predict(t, err);
        int32_t token;

        if (st)
            return st;
        token = causal_draw(t->logits, t->c.vocab, &t->o, uniform(t->o.seed, t->length),
                            t->rank);
        if (token < 0)
            return accel_fail(err, A0621, "check the training loss of these weights",
                              "generate: the logits of position %d are not finite",
                              t->length);
        t->tokens[t->length++] = token;
        if (ends(t->model->g, &t->o, token))
            break;
    }
    return ACCEL_OK;
}

/* The graph's mode is set back also on failure. out[] is written only on success; -1
 * follows an early end. */
accel_status_t accel_generate(accel_module_t *model, const int32_t *prompt, int n,
                              int32_t *out, int count, const accel_sampling_t *sampling,
                              accel_error_t *err)
{
    struct text t = { .model = model };
    accel_status_t st;
    struct graph *g;
    bool recording, training;

    ACCEL_CHECK(st, sized_read(SIZED(accel_sampling_t, user), &t.o, sampling, err));
    ACCEL_CHECK(st, generate_check(model, prompt, n, out, count, &t.o, &t.c, err));
    g = model->g;
    recording = g->recording;
    training = g->training;
    g->recording = g->training = false;
    st = text_open(&t, prompt, n, count, err);
    ACCEL_TRY(st, extend(&t, count, err));
    g->recording = recording;
    g->training = training;
    graph_reset(g);
    if (!st)
        for (int i = 0; i < count; i++)
            out[i] = n + i < t.length ? t.tokens[n + i] : -1;
    text_close(&t);
    return st;
}

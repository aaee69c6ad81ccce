/* SPDX-License-Identifier: Apache-2.0
 *
 * attention: softmax(scale q k^T) v per head, on a fused qkv or on q, k and v, with or
 * without a cache. Saves its inputs, the output and one log-sum-exp per query, but
 * never the scores or the dropout mask: both are recomputed.
 */
#include <math.h>

#include "ops/kv.h"
#include "ops/ops.h"

static const char op[] = "attention";

/* The address of an element of t. */
static const void *at(const struct graph *g, const accel_tensor_t *t, int64_t elems)
{
    return (const char *)t->data + (size_t)elems * accel_dtype_bytes(g->compute);
}

/* Addresses heads that lie side by side in the last dimension of t, from column
 * `first`. t is [B, T, columns]: value i of head h, position t and sample b lies at (b
 * T + t) columns + first + h width + i. */
static struct heads columns(const struct graph *g, const accel_tensor_t *t,
                            int64_t first, int64_t width)
{
    return (struct heads){ at(g, t, first), t->dim[1] * t->dim[2], t->dim[2], width };
}

/* The same place for writing. Gradients have the layout of their inputs. */
static struct heads_out writable(struct heads h, bool add)
{
    return (struct heads_out){ (void *)(uintptr_t)h.data, h.sample, h.row, h.head,
                               add };
}

/* Sets the addresses of q, k and v. k NULL: all three lie in q, the fused qkv. Its
 * columns are the queries of all heads, then the keys, then the values. */
static void attention_place(const struct graph *g, struct attention *p,
                            accel_tensor_t *q, accel_tensor_t *k, accel_tensor_t *v)
{
    int64_t d = p->head_width;

    p->q = columns(g, q, 0, d);
    p->k = k ? columns(g, k, 0, d) : columns(g, q, p->heads * d, d);
    p->v = v ? columns(g, v, 0, d) : columns(g, q, (p->heads + p->kv_heads) * d, d);
}

/* Rebuilds the call from its tape entry. in: q, k, v. saved: q, k, v, out, lse,
 * lengths, mask. ints: heads, kv heads, causal, stream. reals: scale, dropout. */
static struct attention recorded(const struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *q = e->in[0], *k = e->in[1], *out = e->out;
    const accel_tensor_t *lengths = e->saved[5], *mask = e->saved[6];
    struct attention p = { .type = g->compute,
                           .batch = q->dim[0],
                           .queries = q->dim[1],
                           .keys = k ? k->dim[1] : q->dim[1],
                           .heads = e->ints[0],
                           .kv_heads = e->ints[1],
                           .head_width = out->dim[2] / e->ints[0],
                           .causal = e->ints[2] != 0,
                           /* no cache here, since a cache has no backward: aligned at
                            * the end */
                           .offset = (k ? k->dim[1] : q->dim[1]) - q->dim[1],
                           .lengths = lengths ? lengths->data : NULL,
                           .mask = mask ? mask->data : NULL,
                           .scale = e->reals[0],
                           .dropout = e->reals[1],
                           .seed = g->draws.seed,
                           .stream = (uint64_t)e->ints[3],
                           .first_sample = g->draws.first_sample };

    attention_place(g, &p, q, k, e->in[2]);
    return p;
}

/* The gradient of t in the layout `from`. Data NULL: not wanted, or failed (sticky). */
static struct heads_out grad_of(struct graph *g, accel_tensor_t *t, struct heads from)
{
    bool add;
    accel_tensor_t *to = t->needs_grad ? grad_target(g, t, &add) : NULL;

    if (!to)
        return (struct heads_out){ 0 };
    from.data = to->data;
    return writable(from, add);
}

static bool attention_backward(struct graph *g, const struct tape_entry *e)
{
    accel_tensor_t *q = e->in[0], *k = e->in[1], *v = e->in[2];
    struct attention p = recorded(g, e);
    struct attention_grads grads = { .out = e->saved[3]->data,
                                     .dout = e->out->grad->data,
                                     .lse = e->saved[4]->data };
    const struct backend *be = g->backend;
    void *scratch;

    grads.dq = grad_of(g, q, p.q);
    if (k) { /* in this order: q, k and v may be one tensor */
        grads.dk = grad_of(g, k, p.k);
        grads.dv = grad_of(g, v, p.v);
    } else {
        /* fused: one gradient tensor, in which dk and dv lie where k and v lie in
         * qkv */
        grads.dk = grads.dv = grads.dq;
        grads.dk.data =
            (char *)grads.dq.data + ((const char *)p.k.data - (const char *)p.q.data);
        grads.dv.data =
            (char *)grads.dq.data + ((const char *)p.v.data - (const char *)p.q.data);
    }
    /* grad_of may have failed for one of three; the error is sticky */
    if (g->error.code)
        return false;
    /* blocks of scores, and their gradients, of one thread or block at a time */
    scratch = graph_scratch(g, be->attention_scratch(be, &p, true));
    if (!scratch)
        return false;
    be->attention_grad(be, &p, &grads, scratch);
    graph_scratch_free(g, scratch);
    return true;
}

/* Checks the shapes of q (fused) or of q, k and v, and takes batch, lengths and head
 * width from them. */
static bool attention_shapes_fit(struct graph *g, accel_tensor_t *q, accel_tensor_t *k,
                                 accel_tensor_t *v, struct attention *p)
{
    /* how many heads lie in the last dimension of q */
    int64_t all = k ? p->heads : p->heads + 2 * p->kv_heads;
    const char *rule = "pass qkv as [B, T, (heads + 2 kv_heads) D] or q as [B, T, "
                       "heads D], with heads a multiple of kv_heads";
    char shape[96];

    if (q->ndim != 3 || p->heads < 1 || p->kv_heads < 1 || p->heads % p->kv_heads ||
        q->dim[2] % all)
        return graph_fail(g, A0602, op, rule, "%s %s does not fit %lld heads",
                          k ? "q" : "qkv", tensor_shape_text(q, shape, sizeof(shape)),
                          (long long)p->heads);
    p->batch = q->dim[0];
    /* fused: as many keys as queries */
    p->queries = p->keys = q->dim[1];
    p->head_width = q->dim[2] / all;
    if (!k)
        return true;
    if (k->ndim != 3 || k->dim[0] != q->dim[0] ||
        k->dim[2] != p->kv_heads * p->head_width)
        return op_misfit(g, op, q, "q", k, "k", "k must be [B, S, kv_heads D]");
    if (v->ndim != 3 || v->dim[0] != k->dim[0] || v->dim[1] != k->dim[1] ||
        v->dim[2] != k->dim[2])
        return op_misfit(g, op, k, "k", v, "v", "v must be [B, S, kv_heads D]");
    p->keys = k->dim[1];
    return true;
}

/* Checks the cache and sets the offset of the new positions. */
static bool cache_fits(struct graph *g, const accel_attention_t *o, struct attention *p)
{
    const accel_kv_t *kv = o->cache;

    if (g->recording)
        return graph_fail(g, A0605, op,
                          "disable recording first: accel_inference_mode(run, 1)",
                          "attention with a KV cache has no backward");
    /* the program made the cache, perhaps for another model: check every size */
    if (kv->g != g || kv->batch != p->batch || kv->kv_heads != p->kv_heads ||
        kv->head_width != p->head_width || o->layer < 0 || o->layer >= kv->layers)
        return graph_fail(
            g, A0602, op, "create the cache with the model's sizes",
            "layer %d of batch %lld, %lld kv heads of width %lld and a cache of "
            "%d layers, batch %d, %d kv heads of width %d do not fit",
            o->layer, (long long)p->batch, (long long)p->kv_heads,
            (long long)p->head_width, kv->layers, kv->batch, kv->kv_heads,
            kv->head_width);
    if (accel_dtype_bytes(g->compute) > accel_dtype_bytes(kv->type))
        return graph_fail(g, A0605, op, "create it after accel_prepare",
                          "the cache has room for %s, but module '%s' computes in %s",
                          accel_dtype_name(kv->type), g->module_path,
                          accel_dtype_name(g->compute));
    /* what is appended is what is asked about: one key per query */
    if (p->keys != p->queries || kv->length + p->keys > kv->capacity)
        return graph_fail(
            g, A0605, op, "create a larger cache, or trim this one",
            "%lld new positions do not fit into a cache of %d positions, of "
            "which %d are used",
            (long long)p->keys, kv->capacity, kv->length);
    p->offset = kv->length;
    return true;
}

/* Checks lengths and mask; either may be missing. */
static bool padding_fits(struct graph *g, const accel_attention_t *o,
                         const struct attention *p)
{
    accel_tensor_t *in[] = { o->lengths ? o->lengths : o->mask, o->mask };
    /* a mask covers the cached positions, too */
    int64_t keys = p->keys + (o->cache ? p->offset : 0);
    char shape[96];

    if (!in[0])
        return true;
    if (op_graph(op, in, o->mask ? 2 : 1) != g)
        return graph_fail(g, A0601, op, "pass tensors of this run's forward",
                          "lengths or mask belong to another run");
    if (o->lengths && (!op_int32(g, op, o->lengths, "lengths") ||
                       o->lengths->ndim != 1 || o->lengths->dim[0] != p->batch))
        return graph_fail(g, A0602, op, "pass lengths as [B]",
                          "lengths %s do not fit a batch of %lld",
                          tensor_shape_text(o->lengths, shape, sizeof(shape)),
                          (long long)p->batch);
    if (o->mask && (!op_int32(g, op, o->mask, "mask") || o->mask->ndim != 2 ||
                    o->mask->dim[0] != p->batch || o->mask->dim[1] != keys))
        return graph_fail(
            g, A0602, op,
            "pass mask as [B, S]; with a cache, S covers all its positions",
            "mask %s does not fit a batch of %lld and %lld keys",
            tensor_shape_text(o->mask, shape, sizeof(shape)), (long long)p->batch,
            (long long)keys);
    return true;
}

/* Fills in everything but the addresses of q, k and v. */
static bool attention_describe(struct graph *g, accel_tensor_t *q, accel_tensor_t *k,
                               accel_tensor_t *v, const accel_attention_t *o,
                               struct attention *p)
{
    p->type = g->compute;
    p->heads = o->heads;
    p->kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    p->causal = o->causal;
    if (!attention_shapes_fit(g, q, k, v, p))
        return false;
    if (o->cache && !cache_fits(g, o, p))
        return false;
    /* aligned at the end: the last query sees the last key */
    if (!o->cache)
        p->offset = p->keys - p->queries;
    if (!padding_fits(g, o, p))
        return false;
    if (!(o->dropout >= 0.0f && o->dropout < 1.0f) || !isfinite(o->scale))
        return graph_fail(
            g, A0605, op, "use 0 <= dropout < 1; scale 0 means 1 / sqrt(D)",
            "invalid dropout %g or scale %g", (double)o->dropout, (double)o->scale);
    p->scale = o->scale != 0.0f ? o->scale : 1.0f / sqrtf((float)p->head_width);
    p->lengths = o->lengths ? o->lengths->data : NULL;
    p->mask = o->mask ? o->mask->data : NULL;
    if (g->training && o->dropout > 0.0f) {
        p->dropout = o->dropout;
        p->seed = g->draws.seed;
        /* the mask itself is never stored: seed, stream and the place of an element
         * give it back */
        p->stream = op_draw_stream(g);
        p->first_sample = g->draws.first_sample;
    }
    return true;
}

/* Appends the new keys and values to the cache; from here on the call reads the cache
 * in their place. kv->length stays until all layers have appended. */
static void append(struct graph *g, struct attention *p, const accel_attention_t *o)
{
    const struct heads from[2] = { p->k, p->v };
    struct heads all[2];
    struct heads_out to[2];

    for (int i = 0; i < 2; i++) {
        /* kv_heads_of: 0 is keys, 1 is values */
        all[i] = kv_heads_of(o->cache, o->layer, i);
        to[i] = writable(all[i], false);
        /* after the positions that the cache holds */
        to[i].data = (char *)to[i].data + (size_t)(o->cache->length * all[i].row) *
                                              accel_dtype_bytes(g->compute);
    }
    g->backend->copy_heads(g->backend, to, from, p->type, p->batch, p->keys,
                           p->kv_heads, p->head_width);
    p->k = all[0];
    p->v = all[1];
    p->keys += o->cache->length;
}

/* Saved are also the inputs: the backward recomputes the scores from them. */
static accel_tensor_t *attention_record(struct graph *g, const struct attention *p,
                                        accel_tensor_t *q, accel_tensor_t *k,
                                        accel_tensor_t *v, accel_tensor_t *y,
                                        accel_tensor_t *lse, const accel_attention_t *o)
{
    const struct tape_entry e = {
        .op = op,
        .backward = attention_backward,
        .out = y,
        .in = { q, k, v },
        .saved = { q, k, v, y, lse, o->lengths, o->mask },
        .ints = { p->heads, p->kv_heads, p->causal, (int64_t)p->stream },
        .reals = { p->scale, p->dropout },
    };

    /* a fused qkv has k and v NULL */
    return op_record(g, e.in, 3, &e);
}

accel_tensor_t *accel_attention(accel_tensor_t *q, accel_tensor_t *k, accel_tensor_t *v,
                                const accel_attention_t *o)
{
    accel_tensor_t *in[] = { q, k, v }, *y, *lse;
    struct graph *g = op_graph(op, in, k || v ? 3 : 1);
    struct attention p = { 0 };
    accel_attention_t own;
    void *scratch;

    if (!g || !op_activation(g, op, q, k ? "q" : "qkv") ||
        (k && (!op_activation(g, op, k, "k") || !op_activation(g, op, v, "v"))))
        return NULL;
    if (!o)
        return graph_fail(g, A0601, op, "pass at least the number of heads",
                          "the options are NULL");
    if (!op_options(g, op, SIZED(accel_attention_t, layer), &own, o) ||
        !attention_describe(g, q, k, v, &own, &p))
        return NULL;
    attention_place(g, &p, q, k, v);
    y = graph_tensor(g, g->compute, 3,
                     (int64_t[]){ p.batch, p.queries, p.heads * p.head_width });
    /* allocated without a tape, too: the kernels write it in any case */
    lse = graph_tensor(g, ACCEL_F32, 3, (int64_t[]){ p.batch, p.heads, p.queries });
    scratch =
        y && lse
            ? graph_scratch(g, g->backend->attention_scratch(g->backend, &p, false))
            : NULL;
    if (!scratch)
        return NULL;
    if (own.cache)
        append(g, &p, &own);
    g->backend->attention(g->backend, &p, y->data, lse->data, scratch);
    graph_scratch_free(g, scratch);
    return attention_record(g, &p, q, k, v, y, lse, &own);
}

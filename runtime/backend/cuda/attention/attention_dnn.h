/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention as cuDNN graphs: scores, mask, softmax and product, and their
 * gradients. Only a graph's inputs and results are in memory, plus the workspace that
 * the backward's engine asks for. No device needed; C and C++.
 *
 * The backward writes dq as one product of whole rows, for which cuDNN keeps the scores
 * in memory. The usual form adds up dq in float32 with atomics: it takes less memory,
 * but two runs differ.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_DNN_H
#define ACCEL_BACKEND_CUDA_ATTENTION_DNN_H

#include <float.h>

#include "backend/cuda/attention/attention_parts.h"
#include "backend/cuda/attention/attention_path.h"
#include "backend/cuda/dnn.h"

/* Ids of the graph's tensors in memory and constants; attention_dnn.cu binds addresses
 * to them. */
enum {
    DNN_UID_Q = 1,
    DNN_UID_K,
    DNN_UID_V,
    DNN_UID_OUT,
    DNN_UID_LSE,
    DNN_UID_DOUT,
    DNN_UID_DELTA,
    DNN_UID_DQ,
    DNN_UID_DK,
    DNN_UID_DV,
    DNN_UID_SCALE,
    DNN_UID_HIDDEN,
    DNN_UID_ONE,
    DNN_UIDS
};

/* Shapes that several operations of one graph share. */
struct dnn_attention {
    struct dnn_graph *g;
    struct dnn_shape scores, per_query, one;
    bool causal;
};

/* [b, h, t, d] with the strides of batch, head and row; columns are adjacent. */
static inline struct dnn_shape dnn_shape_of(int64_t b, int64_t h, int64_t t, int64_t d,
                                            int64_t sample, int64_t head, int64_t row)
{
    struct dnn_shape s = { { b, h, t, d }, { sample, head, row, 1 } };

    return s;
}

static inline struct dnn_shape dnn_packed(int64_t b, int64_t h, int64_t t, int64_t d)
{
    return dnn_shape_of(b, h, t, d, h * t * d, t * d, d);
}

/* The transpose: rows and columns swap, the memory stays. */
static inline struct dnn_shape dnn_transposed(struct dnn_shape s)
{
    int64_t dim = s.dim[2], stride = s.stride[2];

    s.dim[2] = s.dim[3];
    s.dim[3] = dim;
    s.stride[2] = s.stride[3];
    s.stride[3] = stride;
    return s;
}

/* The shape of out and dout, [batch, rows, all heads * width]. */
static inline struct dnn_shape dnn_out_shape(const struct attn_part *c)
{
    const struct attention *p = &c->p;

    return dnn_shape_of(p->batch, p->heads, p->queries, p->head_width,
                        p->queries * c->out_row, p->head_width, c->out_row);
}

/* The shape of q (or of k and v, with `keys`), whose strides come from the call. */
static inline struct dnn_shape dnn_heads_shape(const struct attention *p, bool keys,
                                               int64_t sample, int64_t head,
                                               int64_t row)
{
    return dnn_shape_of(p->batch, keys ? p->kv_heads : p->heads,
                        keys ? p->keys : p->queries, p->head_width, sample, head, row);
}

/* A tensor that exists only inside the fused kernel. */
static inline void *dnn_virtual(struct dnn_graph *g, int type,
                                const struct dnn_shape *shape)
{
    return dnn_tensor(g, 0, type, shape, DNN_VIRTUAL);
}

/* Adds one pointwise operation; returns its float32 result. */
static inline void *dnn_apply(struct dnn_graph *g, int mode, void *x, void *b,
                              const struct dnn_shape *shape)
{
    void *y = dnn_virtual(g, DNN_FLOAT, shape);

    dnn_pointwise(g, mode, DNN_FLOAT, x, b, NULL, y);
    return y;
}

static inline struct dnn_attention dnn_attention_begin(struct dnn_graph *g,
                                                       const struct attention *p)
{
    struct dnn_attention a;

    a.g = g;
    /* virtual, so the strides are a formality */
    a.scores = dnn_packed(p->batch, p->heads, p->queries, p->keys);
    a.per_query = dnn_packed(p->batch, p->heads, p->queries, 1);
    a.one = dnn_packed(1, 1, 1, 1);
    a.causal = p->causal;
    return a;
}

static inline void *dnn_constant(const struct dnn_attention *a, int64_t uid)
{
    return dnn_tensor(a->g, uid, DNN_FLOAT, &a->one, DNN_BY_VALUE);
}

/* Replaces the scores of keys after the query by the lowest finite number, so that no
 * arithmetic of the graph meets an infinity. */
static inline void *dnn_hide(const struct dnn_attention *a, void *scores)
{
    struct dnn_graph *g = a->g;
    void *row, *col, *sees, *y;

    if (!a->causal)
        return scores;
    row = dnn_virtual(g, DNN_INT32, &a->scores);
    col = dnn_virtual(g, DNN_INT32, &a->scores);
    sees = dnn_virtual(g, DNN_BOOLEAN, &a->scores);
    y = dnn_virtual(g, DNN_FLOAT, &a->scores);
    /* sees: row >= col, the causal rule without an offset */
    dnn_index(g, 2, scores, row);
    dnn_index(g, 3, scores, col);
    dnn_pointwise(g, DNN_CMP_GE, DNN_BOOLEAN, row, col, NULL, sees);
    dnn_pointwise(g, DNN_SELECT, DNN_FLOAT, scores, dnn_constant(a, DNN_UID_HIDDEN),
                  sees, y);
    return y;
}

/* Softmax of rows, as bfloat16; lse = maximum + log of the sum. */
static inline void *dnn_softmax(const struct dnn_attention *a, void *s, void *lse)
{
    struct dnn_graph *g = a->g;
    void *max = dnn_virtual(g, DNN_FLOAT, &a->per_query), *e, *sum, *log, *y;

    /* the pattern that cuDNN's engines look for; another order of the same arithmetic
     * is refused */
    dnn_reduce(g, DNN_REDUCE_MAX, s, max);
    e = dnn_apply(g, DNN_SUB, s, max, &a->scores);
    e = dnn_apply(g, DNN_EXP, e, NULL, &a->scores);
    sum = dnn_virtual(g, DNN_FLOAT, &a->per_query);
    dnn_reduce(g, DNN_REDUCE_ADD, e, sum);
    log = dnn_apply(g, DNN_LOG, sum, NULL, &a->per_query);
    dnn_pointwise(g, DNN_ADD, DNN_FLOAT, max, log, NULL, lse);
    y = dnn_virtual(g, DNN_BFLOAT16, &a->scores);
    dnn_pointwise(g, DNN_DIV, DNN_FLOAT, e, sum, NULL, y);
    return y;
}

/* Builds the forward's graph; nothing runs. Errors are kept in g. */
static inline void dnn_attention_forward(struct dnn_graph *g, const struct attn_part *c,
                                         void *handle)
{
    const struct attention *p = &c->p;
    struct dnn_attention a = dnn_attention_begin(g, p);
    struct dnn_shape q = dnn_heads_shape(p, false, p->q.sample, p->q.head, p->q.row);
    struct dnn_shape k = dnn_heads_shape(p, true, p->k.sample, p->k.head, p->k.row);
    struct dnn_shape v = dnn_heads_shape(p, true, p->v.sample, p->v.head, p->v.row);
    struct dnn_shape kt = dnn_transposed(k), out = dnn_out_shape(c);
    void *lse = dnn_tensor(g, DNN_UID_LSE, DNN_FLOAT, &a.per_query, DNN_IN_MEMORY);
    void *s = dnn_virtual(g, DNN_FLOAT, &a.scores);

    dnn_matmul(g, dnn_tensor(g, DNN_UID_Q, DNN_BFLOAT16, &q, DNN_IN_MEMORY),
               dnn_tensor(g, DNN_UID_K, DNN_BFLOAT16, &kt, DNN_IN_MEMORY), s);
    s = dnn_apply(g, DNN_MUL, s, dnn_constant(&a, DNN_UID_SCALE), &a.scores);
    s = dnn_softmax(&a, dnn_hide(&a, s), lse);
    dnn_matmul(g, s, dnn_tensor(g, DNN_UID_V, DNN_BFLOAT16, &v, DNN_IN_MEMORY),
               dnn_tensor(g, DNN_UID_OUT, DNN_BFLOAT16, &out, DNN_IN_MEMORY));
    dnn_join(g, handle);
}

/* to [batch, kv_heads, keys, width] = x^T b, summed over the query heads of each key
 * head. */
static inline void dnn_key_grad(const struct dnn_attention *a,
                                const struct attention *p, void *x, void *b,
                                const struct heads_out *to, int64_t uid)
{
    struct dnn_graph *g = a->g;
    struct dnn_shape transposed = dnn_transposed(a->scores);
    struct dnn_shape all = dnn_packed(p->batch, p->heads, p->keys, p->head_width);
    struct dnn_shape shape = dnn_heads_shape(p, true, to->sample, to->head, to->row);
    void *xt = dnn_virtual(g, DNN_BFLOAT16, &transposed), *every;
    void *y = dnn_tensor(g, uid, DNN_BFLOAT16, &shape, DNN_IN_MEMORY);

    dnn_reshape(g, x, xt);
    if (p->heads == p->kv_heads) {
        dnn_matmul(g, xt, b, y);
        return;
    }
    /* grouped heads: a gradient per query head, then their sum */
    every = dnn_virtual(g, DNN_BFLOAT16, &all);
    dnn_matmul(g, xt, b, every);
    dnn_reduce(g, DNN_REDUCE_ADD, every, y);
}

/* delta = sum of dout * out. In memory, because every block of keys rereads it; the
 * product with one writes it there. */
static inline void *dnn_delta(const struct dnn_attention *a, const struct attn_part *c,
                              void *dout)
{
    struct dnn_graph *g = a->g;
    struct dnn_shape shape = dnn_out_shape(c);
    void *out = dnn_tensor(g, DNN_UID_OUT, DNN_BFLOAT16, &shape, DNN_IN_MEMORY);
    void *sum = dnn_virtual(g, DNN_FLOAT, &a->per_query);
    void *delta = dnn_tensor(g, DNN_UID_DELTA, DNN_FLOAT, &a->per_query, DNN_IN_MEMORY);

    dnn_reduce(g, DNN_REDUCE_ADD, dnn_apply(g, DNN_MUL, dout, out, &shape), sum);
    dnn_pointwise(g, DNN_MUL, DNN_FLOAT, sum, dnn_constant(a, DNN_UID_ONE), NULL,
                  delta);
    return delta;
}

/* exp(scale q k^T - lse): the probabilities, 0 where the key is hidden. */
static inline void *dnn_probabilities(const struct dnn_attention *a, void *q, void *kt,
                                      void *scale)
{
    struct dnn_graph *g = a->g;
    void *s = dnn_virtual(g, DNN_FLOAT, &a->scores);
    void *lse = dnn_tensor(g, DNN_UID_LSE, DNN_FLOAT, &a->per_query, DNN_IN_MEMORY);

    dnn_matmul(g, q, kt, s);
    s = dnn_apply(g, DNN_MUL, s, scale, &a->scores);
    s = dnn_hide(a, dnn_apply(g, DNN_SUB, s, lse, &a->scores));
    return dnn_apply(g, DNN_EXP, s, NULL, &a->scores);
}

/* Builds the backward's graph: dv = p^T dout, ds = scale p (dout v^T - delta), dk =
 * ds^T q, dq = ds k. */
static inline void dnn_attention_backward(struct dnn_graph *g,
                                          const struct attn_part *c, void *handle)
{
    const struct attention *p = &c->p;
    const struct attention_grads *to = &c->g;
    struct dnn_attention a = dnn_attention_begin(g, p);
    struct dnn_shape qs = dnn_heads_shape(p, false, p->q.sample, p->q.head, p->q.row);
    struct dnn_shape ks = dnn_heads_shape(p, true, p->k.sample, p->k.head, p->k.row);
    struct dnn_shape vs = dnn_heads_shape(p, true, p->v.sample, p->v.head, p->v.row);
    struct dnn_shape kt = dnn_transposed(ks), vt = dnn_transposed(vs),
                     out = dnn_out_shape(c);
    struct dnn_shape dqs =
        dnn_heads_shape(p, false, to->dq.sample, to->dq.head, to->dq.row);
    void *q = dnn_tensor(g, DNN_UID_Q, DNN_BFLOAT16, &qs, DNN_IN_MEMORY);
    void *k = dnn_tensor(g, DNN_UID_K, DNN_BFLOAT16, &kt, DNN_IN_MEMORY);
    void *v = dnn_tensor(g, DNN_UID_V, DNN_BFLOAT16, &vt, DNN_IN_MEMORY);
    void *dout = dnn_tensor(g, DNN_UID_DOUT, DNN_BFLOAT16, &out, DNN_IN_MEMORY);
    void *scale = dnn_constant(&a, DNN_UID_SCALE), *delta = dnn_delta(&a, c, dout);
    void *e = dnn_probabilities(&a, q, k, scale), *ds, *rows;

    dnn_key_grad(&a, p, e, dout, &to->dv, DNN_UID_DV);
    ds = dnn_virtual(g, DNN_FLOAT, &a.scores);
    dnn_matmul(g, dout, v, ds);
    ds = dnn_apply(g, DNN_SUB, ds, delta, &a.scores);
    ds = dnn_apply(g, DNN_MUL, ds, e, &a.scores);
    ds = dnn_apply(g, DNN_MUL, ds, scale, &a.scores);
    dnn_key_grad(&a, p, ds, q, &to->dk, DNN_UID_DK);
    /* k was declared transposed for the scores; here it is needed as rows */
    rows = dnn_virtual(g, DNN_BFLOAT16, &ks);
    dnn_reshape(g, k, rows);
    dnn_matmul(g, ds, rows,
               dnn_tensor(g, DNN_UID_DQ, DNN_BFLOAT16, &dqs, DNN_IN_MEMORY));
    dnn_join(g, handle);
}

#endif

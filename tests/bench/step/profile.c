/* SPDX-License-Identifier: Apache-2.0
 *
 * See profile.h.
 */
#include <string.h>

#include "tests/bench/step/profile.h"

const char *profile_name(enum profile_kind kind)
{
    static const char *const name[PROFILE_KINDS] = {
        "products",  "attention", "norm", "activation", "softmax",
        "embedding", "bias sums", "add",  "narrowing"
    };

    return name[kind];
}

static struct profile *of(const struct backend *be)
{
    return (struct profile *)(uintptr_t)be; /* its first member */
}

/* Calls the kernel of the inner backend and adds its time to KIND. */
#define TIMED(kind, call)                                                              \
    do {                                                                               \
        int64_t from_ = clock_ns();                                                    \
                                                                                       \
        call;                                                                          \
        of(be)->ns[kind] += clock_ns() - from_;                                        \
    } while (0)
#define INNER (of(be)->inner)

static bool same_shape(const struct gemm *a, const struct gemm *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->trans_a == b->trans_a &&
           a->trans_b == b->trans_b && a->act == b->act && a->a_type == b->a_type &&
           a->b_type == b->b_type && a->add == b->add && !a->bias == !b->bias &&
           a->act_grad == b->act_grad && !a->row_sums == !b->row_sums;
}

static void t_gemm(const struct backend *be, const struct gemm *p)
{
    struct profile *f = of(be);
    int64_t from = clock_ns(), took;
    int i = 0;

    INNER->gemm(INNER, p);
    took = clock_ns() - from;
    f->ns[PROFILE_GEMM] += took;
    while (i < f->products && !same_shape(&f->product[i].p, p))
        i++;
    if (i == (int)ACCEL_ARRAY_SIZE(f->product))
        return;
    if (i == f->products)
        f->product[f->products++] = (struct product){ .p = *p };
    f->product[i].count++;
    f->product[i].ns += took;
}

static void t_add(const struct backend *be, void *dst, const void *a, const void *b,
                  accel_dtype_t type, int64_t n)
{
    TIMED(PROFILE_ADD, INNER->add(INNER, dst, a, b, type, n));
}

static void t_quantize(const struct backend *be, void *dst, accel_dtype_t to,
                       const void *src, accel_dtype_t type, int64_t n,
                       const float *scale, float *amax)
{
    TIMED(PROFILE_NARROW, INNER->quantize(INNER, dst, to, src, type, n, scale, amax));
}

static void t_column_sum(const struct backend *be, float *dst, const void *src,
                         accel_dtype_t type, int64_t rows, int64_t cols, int64_t ld)
{
    TIMED(PROFILE_REDUCE, INNER->column_sum(INNER, dst, src, type, rows, cols, ld));
}

static void t_act(const struct backend *be, void *y, const void *x, accel_dtype_t type,
                  int64_t n, accel_activation_t act, const struct narrow_copy *narrow)
{
    TIMED(PROFILE_ACTIVATION, INNER->act(INNER, y, x, type, n, act, narrow));
}

static void t_act_grad(const struct backend *be, void *dx, bool add, const void *dy,
                       const void *pre, accel_dtype_t type, int64_t n,
                       accel_activation_t act)
{
    TIMED(PROFILE_ACTIVATION, INNER->act_grad(INNER, dx, add, dy, pre, type, n, act));
}

static void t_gated(const struct backend *be, void *y, const void *gate, const void *up,
                    accel_dtype_t type, int64_t n, accel_activation_t act,
                    const struct narrow_copy *narrow)
{
    TIMED(PROFILE_ACTIVATION, INNER->gated(INNER, y, gate, up, type, n, act, narrow));
}

static void t_gated_grad(const struct backend *be, void *dgate, bool add_gate,
                         void *dup, bool add_up, const void *dy, const void *gate,
                         const void *up, accel_dtype_t type, int64_t n,
                         accel_activation_t act)
{
    TIMED(PROFILE_ACTIVATION, INNER->gated_grad(INNER, dgate, add_gate, dup, add_up, dy,
                                                gate, up, type, n, act));
}

static int64_t t_embed(const struct backend *be, void *out, const int32_t *ids,
                       const void *table, const void *positions, accel_dtype_t type,
                       int64_t rows, int64_t time, int64_t vocab, int64_t cols)
{
    int64_t bad;

    TIMED(PROFILE_EMBEDDING, bad = INNER->embed(INNER, out, ids, table, positions, type,
                                                rows, time, vocab, cols));
    return bad;
}

static void t_embed_grad(const struct backend *be, float *dtable, float *dpositions,
                         const int32_t *ids, const void *dy, accel_dtype_t type,
                         int64_t rows, int64_t time, int64_t cols)
{
    TIMED(PROFILE_EMBEDDING, INNER->embed_grad(INNER, dtable, dpositions, ids, dy, type,
                                               rows, time, cols));
}

static void t_norm(const struct backend *be, const struct norm *p, void *y,
                   float *stats, const void *x, const void *gain, const void *bias,
                   const struct narrow_copy *narrow)
{
    TIMED(PROFILE_NORM, INNER->norm(INNER, p, y, stats, x, gain, bias, narrow));
}

static void t_add_norm(const struct backend *be, const struct norm *p, void *sum,
                       void *y, float *stats, const void *a, const void *b,
                       const void *gain, const void *bias,
                       const struct narrow_copy *narrow)
{
    TIMED(PROFILE_NORM,
          INNER->add_norm(INNER, p, sum, y, stats, a, b, gain, bias, narrow));
}

static void t_norm_grad(const struct backend *be, const struct norm *p, void *dx,
                        bool add, float *dgain, float *dbias, const void *dy,
                        const void *x, const float *stats, const void *gain)
{
    TIMED(PROFILE_NORM,
          INNER->norm_grad(INNER, p, dx, add, dgain, dbias, dy, x, stats, gain));
}

static void t_attention(const struct backend *be, const struct attention *p, void *out,
                        float *lse, void *scratch)
{
    TIMED(PROFILE_ATTENTION, INNER->attention(INNER, p, out, lse, scratch));
}

static void t_attention_grad(const struct backend *be, const struct attention *p,
                             const struct attention_grads *grads, void *scratch)
{
    TIMED(PROFILE_ATTENTION, INNER->attention_grad(INNER, p, grads, scratch));
}

static int64_t t_xent(const struct backend *be, const struct xent *o, float *lse,
                      float *loss, const float *logits, const int32_t *targets,
                      int64_t rows, int64_t vocab, int64_t ld)
{
    int64_t bad;

    TIMED(PROFILE_XENT,
          bad = INNER->xent(INNER, o, lse, loss, logits, targets, rows, vocab, ld));
    return bad;
}

static void t_xent_grad(const struct backend *be, const struct xent *o, float *logits,
                        accel_dtype_t type, const float *lse, const float *count,
                        const float *dmean, const int32_t *targets, int64_t rows,
                        int64_t vocab, int64_t ld)
{
    TIMED(PROFILE_XENT, INNER->xent_grad(INNER, o, logits, type, lse, count, dmean,
                                         targets, rows, vocab, ld));
}

void profile_open(struct profile *p, const struct backend *inner)
{
    memset(p, 0, sizeof(*p));
    p->be = *inner;
    p->inner = inner;
    p->be.gemm = t_gemm;
    p->be.add = t_add;
    p->be.quantize = t_quantize;
    p->be.column_sum = t_column_sum;
    p->be.act = t_act;
    p->be.act_grad = t_act_grad;
    p->be.gated = t_gated;
    p->be.gated_grad = t_gated_grad;
    p->be.embed = t_embed;
    p->be.embed_grad = t_embed_grad;
    p->be.norm = t_norm;
    p->be.add_norm = t_add_norm;
    p->be.norm_grad = t_norm_grad;
    p->be.attention = t_attention;
    p->be.attention_grad = t_attention_grad;
    p->be.xent = t_xent;
    p->be.xent_grad = t_xent_grad;
}

void profile_reset(struct profile *p)
{
    memset(p->ns, 0, sizeof(p->ns));
    p->products = 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The meta backend: kernels that touch nothing. A forward and backward on it with a
 * counting arena makes the same allocations in the same order, and so gives the peak
 * before any memory is spent. Reading a value back gives zeros. It has no memory
 * functions and no optimizer kernels: a rehearsal has no shards.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

/* Most arguments are unused by design. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct meta {
    struct backend be; /* its state points back here */
    const struct backend *like;
};

static const struct backend *like_of(const struct backend *be)
{
    return ((const struct meta *)be->state)->like;
}

static void meta_close(struct backend *be)
{
    free(be->state);
}

static void meta_fill(const struct backend *be, void *dst, accel_dtype_t type,
                      int64_t n, float value)
{
}

static void meta_copy(const struct backend *be, void *dst, const void *src,
                      size_t bytes)
{
}

/* The host sees defined values, so that code which reads a loss goes on. */
static void meta_to_host(const struct backend *be, float *host, const void *src,
                         accel_dtype_t type, int64_t n)
{
    memset(host, 0, (size_t)n * sizeof(*host));
}

/* Zeros, for the same reason. */
static void meta_to_host_bytes(const struct backend *be, void *host, const void *src,
                               size_t bytes)
{
    memset(host, 0, bytes);
}

static void meta_from_host(const struct backend *be, void *dst, const void *host,
                           size_t bytes)
{
}

static void meta_add(const struct backend *be, void *dst, const void *a, const void *b,
                     accel_dtype_t type, int64_t n)
{
}

static void meta_gemm(const struct backend *be, const struct gemm *p)
{
}

static void meta_column_sum(const struct backend *be, float *dst, const void *src,
                            accel_dtype_t type, int64_t rows, int64_t cols)
{
}

static void meta_act(const struct backend *be, void *y, const void *x,
                     accel_dtype_t type, int64_t n, accel_activation_t act)
{
}

static void meta_act_grad(const struct backend *be, void *dx, bool add, const void *dy,
                          const void *pre, accel_dtype_t type, int64_t n,
                          accel_activation_t act)
{
}

static void meta_gated(const struct backend *be, void *y, const void *gate,
                       const void *up, accel_dtype_t type, int64_t n,
                       accel_activation_t act)
{
}

static void meta_gated_grad(const struct backend *be, void *dgate, bool add_gate,
                            void *dup, bool add_up, const void *dy, const void *gate,
                            const void *up, accel_dtype_t type, int64_t n,
                            accel_activation_t act)
{
}

static void meta_dropout(const struct backend *be, void *y, bool add, const void *x,
                         accel_dtype_t type, int64_t n, const struct mask *mask)
{
}

static void meta_copy_rows(const struct backend *be, void *dst, int64_t dst_stride,
                           bool add, const void *src, int64_t src_stride,
                           accel_dtype_t type, int64_t rows, int64_t cols)
{
}

static void meta_transpose(const struct backend *be, void *dst, bool add,
                           const void *src, accel_dtype_t type, const int64_t dim[5])
{
}

static void meta_cast(const struct backend *be, void *dst, accel_dtype_t dst_type,
                      bool add, const void *src, accel_dtype_t src_type, int64_t n)
{
}

static void meta_softmax(const struct backend *be, void *y, const void *x,
                         accel_dtype_t type, int64_t rows, int64_t cols)
{
}

static void meta_softmax_grad(const struct backend *be, void *dx, bool add,
                              const void *dy, const void *y, accel_dtype_t type,
                              int64_t rows, int64_t cols)
{
}

static void meta_reduce(const struct backend *be, void *y, accel_dtype_t y_type,
                        const void *x, accel_dtype_t type, const int64_t dim[3],
                        float scale)
{
}

static void meta_reduce_grad(const struct backend *be, void *dx, accel_dtype_t type,
                             bool add, const void *dy, accel_dtype_t dy_type,
                             const int64_t dim[3], float scale)
{
}

static void meta_mse(const struct backend *be, float *mean, const void *x,
                     accel_dtype_t x_type, const void *y, accel_dtype_t y_type,
                     int64_t n)
{
}

static void meta_mse_grad(const struct backend *be, void *dx, bool add, const void *x,
                          accel_dtype_t x_type, const void *y, accel_dtype_t y_type,
                          const float *dmean, int64_t n)
{
}

/* Scratch comes out of the arena, so the sizes must be those of the real device. */
static size_t meta_conv_scratch(const struct backend *be, const struct conv *p,
                                bool backward)
{
    const struct backend *like = like_of(be);

    return like->conv_scratch(like, p, backward);
}

static void meta_conv(const struct backend *be, const struct conv *p,
                      const struct conv_forward *f, void *scratch)
{
}

static void meta_conv_grad(const struct backend *be, const struct conv *p,
                           const struct conv_backward *b, void *scratch)
{
}

static void meta_maxpool(const struct backend *be, const struct pool *p, void *y,
                         int32_t *where, const void *x)
{
}

/* As meta_conv_scratch. */
static size_t meta_maxpool_scratch(const struct backend *be, const struct pool *p)
{
    const struct backend *like = like_of(be);

    return like->maxpool_scratch(like, p);
}

static void meta_maxpool_grad(const struct backend *be, const struct pool *p, void *dx,
                              bool add, const void *dy, const int32_t *where,
                              void *scratch)
{
}

/* -1: no id is out of range. The ids are not read; there may be no memory behind them.
 */
static int64_t meta_embed(const struct backend *be, void *out, const int32_t *ids,
                          const void *table, const void *positions, accel_dtype_t type,
                          int64_t rows, int64_t time, int64_t vocab, int64_t cols)
{
    return -1;
}

static void meta_embed_grad(const struct backend *be, float *dtable, float *dpositions,
                            const int32_t *ids, const void *dy, accel_dtype_t type,
                            int64_t rows, int64_t time, int64_t cols)
{
}

static void meta_norm(const struct backend *be, const struct norm *p, void *y,
                      float *stats, const void *x, const void *gain, const void *bias)
{
}

static void meta_norm_grad(const struct backend *be, const struct norm *p, void *dx,
                           bool add, const void *dy, const void *x, const float *stats,
                           const void *gain)
{
}

static void meta_norm_param_grad(const struct backend *be, const struct norm *p,
                                 float *dgain, float *dbias, const void *dy,
                                 const void *x, const float *stats)
{
}

static void meta_rope(const struct backend *be, void *dst, const void *src,
                      const struct rope *p, bool back, bool add)
{
}

static void meta_copy_heads(const struct backend *be, struct heads_out to,
                            struct heads from, accel_dtype_t type, int64_t batch,
                            int64_t rows, int64_t count, int64_t width)
{
}

static size_t meta_attention_scratch(const struct backend *be,
                                     const struct attention *p, bool backward)
{
    const struct backend *like = like_of(be);

    return like->attention_scratch(like, p, backward);
}

static void meta_attention(const struct backend *be, const struct attention *p,
                           void *out, float *lse, void *scratch)
{
}

static void meta_attention_grad(const struct backend *be, const struct attention *p,
                                const struct attention_grads *grads, void *scratch)
{
}

static void meta_widen(const struct backend *be, float *dst, const void *src, int64_t n)
{
}

static void meta_narrow(const struct backend *be, void *dst, const float *src,
                        int64_t n)
{
}

static int64_t meta_xent(const struct backend *be, const struct xent *o, float *lse,
                         float *loss, const float *logits, const int32_t *targets,
                         int64_t rows, int64_t vocab)
{
    return -1;
}

static void meta_xent_mean(const struct backend *be, const struct xent *o, float *mean,
                           float *count, const float *loss, const int32_t *targets,
                           int64_t rows)
{
}

static void meta_xent_grad(const struct backend *be, const struct xent *o,
                           float *logits, accel_dtype_t type, const float *lse,
                           const float *count, const float *dmean,
                           const int32_t *targets, int64_t rows, int64_t vocab)
{
}

/* A template: backend_meta_open copies it and adds what depends on `like`. */
static const struct backend kernels = {
    .name = "meta",
    .shapes_only = true,
    .isa = "none",
    .close = meta_close,
    .fill = meta_fill,
    .copy = meta_copy,
    .to_host = meta_to_host,
    .to_host_bytes = meta_to_host_bytes,
    .from_host = meta_from_host,
    .add = meta_add,
    .gemm = meta_gemm,
    .column_sum = meta_column_sum,
    .act = meta_act,
    .act_grad = meta_act_grad,
    .gated = meta_gated,
    .gated_grad = meta_gated_grad,
    .dropout = meta_dropout,
    .copy_rows = meta_copy_rows,
    .transpose = meta_transpose,
    .cast = meta_cast,
    .softmax = meta_softmax,
    .softmax_grad = meta_softmax_grad,
    .reduce = meta_reduce,
    .reduce_grad = meta_reduce_grad,
    .mse = meta_mse,
    .mse_grad = meta_mse_grad,
    .conv_scratch = meta_conv_scratch,
    .conv = meta_conv,
    .conv_grad = meta_conv_grad,
    .maxpool = meta_maxpool,
    .maxpool_scratch = meta_maxpool_scratch,
    .maxpool_grad = meta_maxpool_grad,
    .embed = meta_embed,
    .embed_grad = meta_embed_grad,
    .norm = meta_norm,
    .norm_grad = meta_norm_grad,
    .norm_param_grad = meta_norm_param_grad,
    .rope = meta_rope,
    .copy_heads = meta_copy_heads,
    .attention_scratch = meta_attention_scratch,
    .attention = meta_attention,
    .attention_grad = meta_attention_grad,
    .widen = meta_widen,
    .narrow = meta_narrow,
    .xent = meta_xent,
    .xent_mean = meta_xent_mean,
    .xent_grad = meta_xent_grad,
};

accel_status_t backend_meta_open(struct backend **backend_out,
                                 const struct backend *like, accel_error_t *err)
{
    struct meta *m = malloc(sizeof(*m));

    if (!m)
        return accel_fail_nomem(err, "the meta backend", sizeof(*m));
    *m = (struct meta){ .be = kernels, .like = like };
    backend_no_queues(&m->be);
    m->be.threads = like->threads;
    m->be.fixed_bytes = like->fixed_bytes;
    m->be.state = m;
    *backend_out = &m->be;
    return ACCEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of the CUDA backend's vtable, grouped by file; backend.h has their
 * contracts. table.cu puts them in.
 */
#ifndef ACCEL_BACKEND_CUDA_ENTRIES_H
#define ACCEL_BACKEND_CUDA_ENTRIES_H

#include "backend/backend.h"

/* core.cu, queues.cu, memory.cu, ranges.cu, copies.cu */
void cuda_close(struct backend *be);
void cuda_use(const struct backend *be, enum backend_queue q);
enum backend_queue cuda_queue(const struct backend *be);
struct backend_event *cuda_event_new(const struct backend *be);
void cuda_event_free(const struct backend *be, struct backend_event *e);
void cuda_record(const struct backend *be, struct backend_event *e,
                 enum backend_queue q);
void cuda_wait(const struct backend *be, enum backend_queue q, struct backend_event *e);
void *cuda_native(const struct backend *be, enum backend_queue q);
accel_status_t cuda_check(const struct backend *be, accel_error_t *err);
accel_status_t cuda_sync(const struct backend *be, accel_error_t *err);
accel_status_t cuda_alloc(const struct backend *be, enum backend_memory kind,
                          size_t bytes, void **out, accel_error_t *err);
void cuda_free(const struct backend *be, void *p);
void cuda_count(const struct backend *be, enum backend_memory kind, int64_t bytes);
accel_status_t cuda_reserve_workspace(const struct backend *be, accel_error_t *err);
void cuda_usage(const struct backend *be, struct backend_usage *out);
void *cuda_reserve(const struct backend *be, size_t bytes);
bool cuda_commit(const struct backend *be, void *base, size_t from, size_t to);
void cuda_release(const struct backend *be, void *base, size_t reserved,
                  size_t committed);
void *cuda_host_alloc(const struct backend *be, size_t bytes);
void cuda_host_free(const struct backend *be, void *p, size_t bytes);
void cuda_copy(const struct backend *be, void *dst, const void *src, size_t bytes);
void cuda_to_host(const struct backend *be, float *host, const void *src,
                  accel_dtype_t type, int64_t n);
void cuda_to_host_bytes(const struct backend *be, void *host, const void *src,
                        size_t bytes);
void cuda_from_host(const struct backend *be, void *dst, const void *host,
                    size_t bytes);
void cuda_zero(const struct backend *be, void *dst, size_t bytes);

/* graph.cu */
void cuda_step_begin(const struct backend *be);
void cuda_step_end(const struct backend *be);
void cuda_mark(const struct backend *be, const struct backend_mark *mark);

/* element-wise, moves, rows, reductions, optimizers */
void cuda_fill(const struct backend *be, void *dst, accel_dtype_t type, int64_t n,
               float value);
void cuda_narrow(const struct backend *be, void *dst, const float *src, int64_t n);
void cuda_narrow_parts(const struct backend *be, void *dst, accel_dtype_t type,
                       const float *src, int count, int64_t n);
void cuda_widen(const struct backend *be, float *dst, const void *src, int64_t n);
void cuda_scale(const struct backend *be, float *x, int64_t n, float by);
double cuda_sumsq(const struct backend *be, const struct span *x, int count);
void cuda_sum_parts(const struct backend *be, float *out, bool accumulate,
                    const void *parts, accel_dtype_t type, int count, int64_t n,
                    float scale);
/* wire.cu: cuda_sum_parts for scaled wire types; at least one part. */
void cuda_sum_blocks(const struct backend *be, float *out, bool accumulate,
                     const void *parts, accel_dtype_t type, int count, int64_t n,
                     float scale);
void cuda_adamw(const struct backend *be, float *p, float *m, float *v, float *g,
                int64_t n, const struct adamw_step *k);
void cuda_sgd(const struct backend *be, float *p, float *m, float *g, int64_t n,
              const struct sgd_step *k);
void cuda_lion(const struct backend *be, float *p, float *m, float *g, int64_t n,
               const struct lion_step *k);
void cuda_add(const struct backend *be, void *dst, const void *a, const void *b,
              accel_dtype_t type, int64_t n);
void cuda_column_sum(const struct backend *be, float *dst, const void *src,
                     accel_dtype_t type, int64_t rows, int64_t cols);
void cuda_act(const struct backend *be, void *y, const void *x, accel_dtype_t type,
              int64_t n, accel_activation_t act);
void cuda_act_grad(const struct backend *be, void *dx, bool add, const void *dy,
                   const void *pre, accel_dtype_t type, int64_t n,
                   accel_activation_t act);
void cuda_gated(const struct backend *be, void *y, const void *gate, const void *up,
                accel_dtype_t type, int64_t n, accel_activation_t act);
void cuda_gated_grad(const struct backend *be, void *dgate, bool add_gate, void *dup,
                     bool add_up, const void *dy, const void *gate, const void *up,
                     accel_dtype_t type, int64_t n, accel_activation_t act);
void cuda_dropout(const struct backend *be, void *y, bool add, const void *x,
                  accel_dtype_t type, int64_t n, const struct mask *mask);
void cuda_copy_rows(const struct backend *be, void *dst, int64_t dst_stride, bool add,
                    const void *src, int64_t src_stride, accel_dtype_t type,
                    int64_t rows, int64_t cols);
void cuda_transpose(const struct backend *be, void *dst, bool add, const void *src,
                    accel_dtype_t type, const int64_t dim[5]);
void cuda_cast(const struct backend *be, void *dst, accel_dtype_t dst_type, bool add,
               const void *src, accel_dtype_t src_type, int64_t n);
void cuda_softmax(const struct backend *be, void *y, const void *x, accel_dtype_t type,
                  int64_t rows, int64_t cols);
void cuda_softmax_grad(const struct backend *be, void *dx, bool add, const void *dy,
                       const void *y, accel_dtype_t type, int64_t rows, int64_t cols);
void cuda_reduce(const struct backend *be, void *y, accel_dtype_t y_type, const void *x,
                 accel_dtype_t type, const int64_t dim[3], float scale);
/* columns.cu: cuda_reduce for dim[2] other than 1. */
void cuda_reduce_columns(const struct backend *be, void *y, accel_dtype_t y_type,
                         const void *x, accel_dtype_t type, const int64_t dim[3],
                         float scale);
void cuda_reduce_grad(const struct backend *be, void *dx, accel_dtype_t type, bool add,
                      const void *dy, accel_dtype_t dy_type, const int64_t dim[3],
                      float scale);
void cuda_mse(const struct backend *be, float *mean, const void *x,
              accel_dtype_t x_type, const void *y, accel_dtype_t y_type, int64_t n);
void cuda_mse_grad(const struct backend *be, void *dx, bool add, const void *x,
                   accel_dtype_t x_type, const void *y, accel_dtype_t y_type,
                   const float *dmean, int64_t n);
int64_t cuda_embed(const struct backend *be, void *out, const int32_t *ids,
                   const void *table, const void *positions, accel_dtype_t type,
                   int64_t rows, int64_t time, int64_t vocab, int64_t cols);
void cuda_embed_grad(const struct backend *be, float *dtable, float *dpositions,
                     const int32_t *ids, const void *dy, accel_dtype_t type,
                     int64_t rows, int64_t time, int64_t cols);
void cuda_norm(const struct backend *be, const struct norm *p, void *y, float *stats,
               const void *x, const void *gain, const void *bias);
void cuda_norm_grad(const struct backend *be, const struct norm *p, void *dx, bool add,
                    const void *dy, const void *x, const float *stats,
                    const void *gain);
void cuda_norm_param_grad(const struct backend *be, const struct norm *p, float *dgain,
                          float *dbias, const void *dy, const void *x,
                          const float *stats);
void cuda_rope(const struct backend *be, void *dst, const void *src,
               const struct rope *p, bool back, bool add);
void cuda_copy_heads(const struct backend *be, struct heads_out to, struct heads from,
                     accel_dtype_t type, int64_t batch, int64_t rows, int64_t count,
                     int64_t width);
int64_t cuda_xent(const struct backend *be, const struct xent *o, float *lse,
                  float *loss, const float *logits, const int32_t *targets,
                  int64_t rows, int64_t vocab);
void cuda_xent_mean(const struct backend *be, const struct xent *o, float *mean,
                    float *count, const float *loss, const int32_t *targets,
                    int64_t rows);
void cuda_xent_grad(const struct backend *be, const struct xent *o, float *logits,
                    accel_dtype_t type, const float *lse, const float *count,
                    const float *dmean, const int32_t *targets, int64_t rows,
                    int64_t vocab);

/* gemm.cu, conv.cu, maxpool.cu */
void cuda_gemm(const struct backend *be, const struct gemm *p);
size_t cuda_conv_scratch(const struct backend *be, const struct conv *p, bool backward);
void cuda_conv(const struct backend *be, const struct conv *p,
               const struct conv_forward *f, void *scratch);
void cuda_conv_grad(const struct backend *be, const struct conv *p,
                    const struct conv_backward *b, void *scratch);
void cuda_maxpool(const struct backend *be, const struct pool *p, void *y,
                  int32_t *where, const void *x);
size_t cuda_maxpool_scratch(const struct backend *be, const struct pool *p);
void cuda_maxpool_grad(const struct backend *be, const struct pool *p, void *dx,
                       bool add, const void *dy, const int32_t *where, void *scratch);

/* attention */
size_t cuda_attention_scratch(const struct backend *be, const struct attention *p,
                              bool backward);
void cuda_attention(const struct backend *be, const struct attention *p, void *out,
                    float *lse, void *scratch);
void cuda_attention_grad(const struct backend *be, const struct attention *p,
                         const struct attention_grads *grads, void *scratch);

#endif

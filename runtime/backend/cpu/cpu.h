/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the CPU backend, one file per family; cpu.c puts them into the vtable.
 * Pointers and contracts are those of backend.h, in host memory.
 */
#ifndef ACCEL_BACKEND_CPU_CPU_H
#define ACCEL_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "common/bf16.h"

/* Rows or columns that one thread takes at a time where a kernel cuts its work itself.
 * They are constants, so that sums do not depend on the number of threads. */
#define CPU_ROW_BLOCK   8
#define CPU_COLUMN_SLAB 64
#define CPU_ELEM_BLOCK  16384
/* Elements that a kernel widens into a stack buffer at a time; divides
 * CPU_ELEM_BLOCK. */
#define CPU_PIECE        1024
#define ATTN_QUERY_BLOCK 64

/* Up to this much work stays on the calling thread. Starting a team costs 1 us when
 * all cores are free but 10 ms when one is taken, and this much takes one core some 5
 * us. */
/* elements of one pass that reads and writes */
#define CPU_ALONE_ELEMS    32768
#define CPU_ALONE_PRODUCTS (1 << 19) /* multiply-adds of a matrix product */

/* Length of the block, or of the piece, that starts at `at` of n elements. */
static inline int64_t cpu_block(int64_t n, int64_t at)
{
    return n - at < CPU_ELEM_BLOCK ? n - at : CPU_ELEM_BLOCK;
}

static inline int64_t cpu_piece(int64_t n, int64_t at)
{
    return n - at < CPU_PIECE ? n - at : CPU_PIECE;
}

struct cpu_state {
    float *panels; /* [threads][gemm_panel_floats()] */
    /* bfloat16 products use the processor's own instruction */
    bool bf16_products;
};

/* The compiler can build the kernel. Whether the processor can run it is asked at run
 * time. */
#if defined(__x86_64__) && (__GNUC__ >= 10 || __clang_major__ >= 9)
#define CPU_BF16_PRODUCTS
#endif
bool cpu_has_bf16_products(void);
/* The tile [i0, i0 + m) x [j0, j0 + n) of a product of bfloat16 operands: written, or
 * added, to c[m, n], float32. The panels are the calling thread's. */
void cpu_bf16_tile(const struct gemm *p, int64_t i0, int64_t j0, int64_t m, int64_t n,
                   float *c, int64_t ldc, bool add, float *a_panel, float *b_panel);

/* Packing space of one thread, in floats. */
size_t gemm_panel_floats(void);
void cpu_gemm(const struct backend *be, const struct gemm *p);
/* Rows of a weight up to this many bytes are best read one after the other. */
#define CPU_SHORT_ROW 4096
/* Dot products of m rows of a, `lda` apart, with `rows` rows of b, `ldb` apart, all of
 * k elements: out[r * stride + j]. Only where cpu_has_bf16_products(). */
void cpu_bf16_dots(float *out, int64_t stride, const bf16_t *a, int64_t lda, int64_t m,
                   const bf16_t *b, int64_t ldb, int64_t rows, int64_t k);

/* gemv.c: a few rows of a times a transposed b. cpu_gemm hands such products over. */
bool cpu_gemv_fits(const struct gemm *p);
void cpu_gemv(const struct backend *be, const struct gemm *p);
/* One BLAS call on the calling thread, inside or outside of a parallel region. */
void cpu_sgemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
               const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
               float *c, int64_t ldc);

/* Widens or rounds `n` elements; `add`: dst += src. */
void cpu_load_row(float *dst, const void *src, accel_dtype_t type, int64_t n);
void cpu_store_row(void *dst, const float *src, accel_dtype_t type, int64_t n,
                   bool add);
/* Elements [at, at + n), n <= CPU_PIECE, as float32: in place, or widened into
 * `room`. */
const float *cpu_get(const void *p, int64_t at, accel_dtype_t type, int64_t n,
                     float *room);
/* The buffer whose contents cpu_put stores afterwards: the place itself, or `room`. */
float *cpu_room(void *p, int64_t at, accel_dtype_t type, bool add, float *room);
void cpu_put(void *p, int64_t at, accel_dtype_t type, bool add, const float *v,
             int64_t n);
void cpu_fill(const struct backend *be, void *dst, accel_dtype_t type, int64_t n,
              float value);
void cpu_add(const struct backend *be, void *dst, const void *a, const void *b,
             accel_dtype_t type, int64_t n);
void cpu_column_sum(const struct backend *be, float *dst, const void *src,
                    accel_dtype_t type, int64_t rows, int64_t cols);
/* v = c + bias (NULL: none); pre = v (NULL: not wanted); out = act(v) rounded. `out`
 * may be c itself. */
void cpu_epilogue_row(void *out, void *pre, accel_dtype_t type, const float *c,
                      const float *bias, int64_t n, accel_activation_t act, bool add);

/* out = c, rounded, * act'(pre), rounded: the same bits as act_grad on a stored result.
 * `out` may be c itself. */
void cpu_slope_row(void *out, const void *pre, accel_dtype_t type, const float *c,
                   int64_t n, accel_activation_t act);

/* y = act(x); y may be x. */
void cpu_act_piece(float *y, const float *x, int64_t n, accel_activation_t act);
void cpu_act(const struct backend *be, void *y, const void *x, accel_dtype_t type,
             int64_t n, accel_activation_t act);
void cpu_act_grad(const struct backend *be, void *dx, bool add, const void *dy,
                  const void *pre, accel_dtype_t type, int64_t n,
                  accel_activation_t act);
void cpu_gated(const struct backend *be, void *y, const void *gate, const void *up,
               accel_dtype_t type, int64_t n, accel_activation_t act);
void cpu_gated_grad(const struct backend *be, void *dgate, bool add_gate, void *dup,
                    bool add_up, const void *dy, const void *gate, const void *up,
                    accel_dtype_t type, int64_t n, accel_activation_t act);
void cpu_dropout(const struct backend *be, void *y, bool add, const void *x,
                 accel_dtype_t type, int64_t n, const struct mask *mask);
void cpu_copy_rows(const struct backend *be, void *dst, int64_t dst_stride, bool add,
                   const void *src, int64_t src_stride, accel_dtype_t type,
                   int64_t rows, int64_t cols);
void cpu_transpose(const struct backend *be, void *dst, bool add, const void *src,
                   accel_dtype_t type, const int64_t dim[5]);
void cpu_cast(const struct backend *be, void *dst, accel_dtype_t dst_type, bool add,
              const void *src, accel_dtype_t src_type, int64_t n);

/* cpu_reduce.c: every sum has an order that depends on shapes only. */
void cpu_softmax(const struct backend *be, void *y, const void *x, accel_dtype_t type,
                 int64_t rows, int64_t cols);
void cpu_softmax_grad(const struct backend *be, void *dx, bool add, const void *dy,
                      const void *y, accel_dtype_t type, int64_t rows, int64_t cols);
void cpu_reduce(const struct backend *be, void *y, accel_dtype_t y_type, const void *x,
                accel_dtype_t type, const int64_t dim[3], float scale);
void cpu_reduce_grad(const struct backend *be, void *dx, accel_dtype_t type, bool add,
                     const void *dy, accel_dtype_t dy_type, const int64_t dim[3],
                     float scale);
void cpu_mse(const struct backend *be, float *mean, const void *x, accel_dtype_t x_type,
             const void *y, accel_dtype_t y_type, int64_t n);
void cpu_mse_grad(const struct backend *be, void *dx, bool add, const void *x,
                  accel_dtype_t x_type, const void *y, accel_dtype_t y_type,
                  const float *dmean, int64_t n);

/* conv.c and pool.c: the scratch comes from the caller, conv_plan says how it is
 * used. */
size_t cpu_conv_scratch(const struct backend *be, const struct conv *p, bool backward);
void cpu_conv(const struct backend *be, const struct conv *p,
              const struct conv_forward *f, void *scratch);
void cpu_conv_grad(const struct backend *be, const struct conv *p,
                   const struct conv_backward *b, void *scratch);
void cpu_maxpool(const struct backend *be, const struct pool *p, void *y,
                 int32_t *where, const void *x);
size_t cpu_maxpool_scratch(const struct backend *be, const struct pool *p);
void cpu_maxpool_grad(const struct backend *be, const struct pool *p, void *dx,
                      bool add, const void *dy, const int32_t *where, void *scratch);

/* memory.c: memory, copies and the queue functions. The calling thread is the only
 * queue. */
void cpu_memory_functions(struct backend *be);
void cpu_zero(const struct backend *be, void *dst, size_t bytes);
void cpu_widen(const struct backend *be, float *dst, const void *src, int64_t n);
void cpu_narrow(const struct backend *be, void *dst, const float *src, int64_t n);
void cpu_narrow_parts(const struct backend *be, void *dst, accel_dtype_t type,
                      const float *src, int count, int64_t n);
void cpu_scale(const struct backend *be, float *x, int64_t n, float by);
double cpu_sumsq(const struct backend *be, const struct span *x, int count);
void cpu_sum_parts(const struct backend *be, float *out, bool accumulate,
                   const void *parts, accel_dtype_t type, int count, int64_t n,
                   float scale);
void cpu_adamw(const struct backend *be, float *p, float *m, float *v, float *g,
               int64_t n, const struct adamw_step *k);
void cpu_sgd(const struct backend *be, float *p, float *m, float *g, int64_t n,
             const struct sgd_step *k);
void cpu_lion(const struct backend *be, float *p, float *m, float *g, int64_t n,
              const struct lion_step *k);

/* embed.c: ids are checked at once, so that a bad one fails its own op. */
int64_t cpu_embed(const struct backend *be, void *out, const int32_t *ids,
                  const void *table, const void *positions, accel_dtype_t type,
                  int64_t rows, int64_t time, int64_t vocab, int64_t cols);
void cpu_embed_grad(const struct backend *be, float *dtable, float *dpositions,
                    const int32_t *ids, const void *dy, accel_dtype_t type,
                    int64_t rows, int64_t time, int64_t cols);

/* cpu_norm.c: rows over threads; the parameters' gradients columns over threads. */
void cpu_norm(const struct backend *be, const struct norm *p, void *y, float *stats,
              const void *x, const void *gain, const void *bias);
void cpu_norm_grad(const struct backend *be, const struct norm *p, void *dx, bool add,
                   const void *dy, const void *x, const float *stats, const void *gain);
void cpu_norm_param_grad(const struct backend *be, const struct norm *p, float *dgain,
                         float *dbias, const void *dy, const void *x,
                         const float *stats);

/* cpu_rope.c, and attention_decode.c, where the cache is filled. */
void cpu_rope(const struct backend *be, void *dst, const void *src,
              const struct rope *p, bool back, bool add);
void cpu_copy_heads(const struct backend *be, struct heads_out to, struct heads from,
                    accel_dtype_t type, int64_t batch, int64_t rows, int64_t count,
                    int64_t width);
/* Scratch of one thread, in floats. */
size_t attention_thread_floats(const struct attention *p, int threads, bool backward);
size_t cpu_attention_scratch(const struct backend *be, const struct attention *p,
                             bool backward);
void cpu_attention(const struct backend *be, const struct attention *p, void *out,
                   float *lse, void *scratch);
void cpu_attention_grad(const struct backend *be, const struct attention *p,
                        const struct attention_grads *grads, void *scratch);

/* xent.c: in place over the logits of one chunk. */
int64_t cpu_xent(const struct backend *be, const struct xent *o, float *lse,
                 float *loss, const float *logits, const int32_t *targets, int64_t rows,
                 int64_t vocab);
void cpu_xent_mean(const struct backend *be, const struct xent *o, float *mean,
                   float *count, const float *loss, const int32_t *targets,
                   int64_t rows);
void cpu_xent_grad(const struct backend *be, const struct xent *o, float *logits,
                   accel_dtype_t type, const float *lse, const float *count,
                   const float *dmean, const int32_t *targets, int64_t rows,
                   int64_t vocab);

#endif

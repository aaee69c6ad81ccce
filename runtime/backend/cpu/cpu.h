/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the CPU backend, one file per family, and the pieces that families
 * share. Contracts are those of kernels.h; all pointers are host memory.
 */
#ifndef ACCEL_BACKEND_CPU_CPU_H
#define ACCEL_BACKEND_CPU_CPU_H

#include "backend/device.h"
#include "numbers/bf16.h"
#include "numbers/f16.h"

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

struct panel_kernel;

struct cpu_state {
    float *panels;                     /* [threads][panel_floats] */
    size_t panel_floats;               /* gemm_panel_floats() */
    const struct panel_kernel *kernel; /* of float32 products */
    /* bfloat16 products use the processor's own instruction */
    bool bf16_products;
};

/* The compiler can build the kernel. Whether the processor can run it is asked at run
 * time. */
#if defined(__x86_64__) && !defined(ACCEL_NO_MULTIVERSION) &&                          \
    (__GNUC__ >= 10 || __clang_major__ >= 9)
#define CPU_BF16_PRODUCTS
#endif
bool cpu_has_bf16_products(void);

/* Packing space of one thread, in floats. */
size_t gemm_panel_floats(void);
/* Rows of a weight up to this many bytes are best read one after the other. */
#define CPU_SHORT_ROW 4096
/* Dot products of m rows of a, `lda` apart, with `rows` rows of b, `ldb` apart, all of
 * k elements: out[r * stride + j]. Only where cpu_has_bf16_products(). */
void cpu_bf16_dots(float *out, int64_t stride, const bf16_t *a, int64_t lda, int64_t m,
                   const bf16_t *b, int64_t ldb, int64_t rows, int64_t k);

/* The same with float16 and float32 rows of a, sums in the order of gemv.c. Only where
 * cpu_has_f16_dots(). */
bool cpu_has_f16_dots(void);
void cpu_f16_dots(float *out, int64_t stride, const float *a, int64_t lda, int64_t m,
                  const f16_t *b, int64_t ldb, int64_t rows, int64_t k);

/* Rows of a up to which cpu_gemm_alone keeps them packed. */
#define CPU_KEPT_ROWS 352
/* gemm.c: a product without row_sums, m, n and k above 0, on the calling thread, of a
 * team of be->threads at most. same_a: the thread's last product had the same a. */
void cpu_gemm_alone(const struct backend *be, const struct gemm *p, bool same_a);
/* gemv.c: a few rows of a times a transposed b. cpu_gemm hands such products over. */
bool cpu_gemv_fits(const struct gemm *p);
void cpu_gemv(const struct backend *be, const struct gemm *p);
/* gemm_skinny.c: few rows of a, or few k, with a b that is not transposed. The same. */
bool cpu_thin_fits(const struct backend *be, const struct gemm *p);
void cpu_thin(const struct backend *be, const struct gemm *p);

/* elementwise.c: dst = a + b, on the calling thread; dst may be either. */
void cpu_add_block(void *dst, const void *a, const void *b, accel_dtype_t type,
                   int64_t n);
/* sum[c] += column first + c of x [rows], rows `ld` apart, for c < n, at most
 * CPU_COLUMN_SLAB, on the calling thread. Adds 64 rows at a time and then those sums,
 * which keeps the rounding error of a long batch that of a short one. */
void cpu_sum_slab(float *sum, const void *x, int64_t rows, int64_t ld, int64_t first,
                  int64_t n, accel_dtype_t type);

/* load_store.c: elements of any storage type as float32, and back; int8 only to it.
 * Widens or rounds `n` elements; `add`: dst += src. */
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

/* activation.c: y = act(x), y may be x; dx = dy * act'(x), dx may be dy. Both in
 * float32, on the calling thread. */
void cpu_act_piece(float *y, const float *x, int64_t n, accel_activation_t act);
void cpu_act_grad_piece(float *dx, const float *dy, const float *x, int64_t n,
                        accel_activation_t act);

/* epilogue.c: what one row of a product goes through before it is stored.
 * v = c + bias (NULL: none); pre = v (NULL: not wanted); out = act(v) rounded. `out`
 * may be c itself. */
void cpu_epilogue_row(void *out, void *pre, accel_dtype_t type, const float *c,
                      const float *bias, int64_t n, accel_activation_t act, bool add);
/* Rows [i0, i0 + m), columns [j0, j0 + n) of a product. */
struct cpu_part {
    int64_t i0, m, j0, n;
};
/* Bias, activation and rounding of the finished sums of a part, rows `ld` apart, into
 * its place, which may be where they are. */
void cpu_epilogue_tile(const struct gemm *p, const struct cpu_part *at,
                       const float *sums, int64_t ld);

/* cpu_moments.c: cpu_update for one range with 8-bit moments. */
void cpu_update_moments(const struct backend *be, const struct update_span *x,
                        const struct optim_step *k);
/* cpu_masters.c: cpu_update for one range with anything narrow that has a form of
 * float32, piece by piece of that, which `update`, cpu_update itself, gets. */
typedef void update_fn(const struct backend *be, const struct update_span *x, int count,
                       const struct optim_step *k);
void cpu_update_narrow(const struct backend *be, const struct update_span *x,
                       const struct optim_step *k, update_fn *update);
/* memory.c: memory, copies and the queue functions. The calling thread is the only
 * queue. */
void cpu_memory_functions(struct backend *be);
/* quantize.c: for kernels that make 8-bit copies of their result y. Elements
 * [at, at + n) of y, which are written: their codes, but no transposed ones. Returns
 * the larger one of `most` and of their magnitudes, as bits of float32, from 0 on. to
 * NULL: nothing. */
uint32_t cpu_narrow_piece(const struct narrow_copy *to, const void *y,
                          accel_dtype_t type, int64_t at, int64_t n, uint32_t most);
/* All of y is written, and `most` is of all pieces. */
void cpu_narrow_end(const struct narrow_copy *to, const void *y, accel_dtype_t type,
                    uint32_t most);
/* Scratch of one thread in the attention, in floats. */
size_t attention_thread_floats(const struct attention *p, int threads, bool backward);

/* cpu_gemm and all other kernels, a family per file:
 *   elementwise, activation, move  no sums; the caller's pieces stay in L1
 *   cpu_update, _moments, _masters an element, or a block, is computed alone
 *   cpu_reduce                     every sum has an order that depends on shapes only
 *   gemm, gemv, conv, pool         scratch comes from the caller; conv_plan divides it
 *   cpu_norm                       rows over threads, parameters' gradients by columns
 *   embed, xent                    ids are checked at once: a bad one fails its own op
 *   cpu_attention, attention_*     and cpu_rope; the cache is filled in _decode */
#define KERNEL(type, name, ...) type cpu_##name(const struct backend *be, __VA_ARGS__);
#include "backend/kernels.h"
#define SCRATCH(name, ...) size_t cpu_##name(const struct backend *be, __VA_ARGS__);
#include "backend/sizes.h"

#endif

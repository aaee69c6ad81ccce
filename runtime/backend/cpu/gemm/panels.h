/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed operands of a matrix product and the micro-kernels that multiply them, one
 * table per instruction set. Slivers of a and panels of b are packed [k][width], so
 * that a micro-kernel reads both in order. Every element of the result is one chain of
 * fused multiply-adds per block of PANEL_DEPTH of k, in the order of k, and the blocks
 * are added in order: its bits depend neither on the instruction set nor on how the
 * product is cut.
 */
#ifndef ACCEL_BACKEND_CPU_PANELS_H
#define ACCEL_BACKEND_CPU_PANELS_H

#include "backend/cpu/gemm/tile.h"
#include "backend/operands.h"
#include "common/common.h"

/* k of one packed block. Every instruction set adds blocks of this many, because that
 * is in the bits. With more, c is passed through less often, but a panel leaves the
 * cache that it is read from, and long chains are less exact. */
#define PANEL_DEPTH 512
/* The largest of all kernels. */
#define PANEL_ROWS  14
#define PANEL_LANES 32
/* Packing stores whole vectors: this many floats behind a sliver may be written. */
#define PANEL_SLACK 16
/* Rows of a and of b that one call of a streaming kernel takes. */
#define PANEL_FEW 4

/* Memory to bring nearer while a kernel multiplies: `runs` of `run` bytes, the start of
 * one `stride` bytes after that of the last. The kernel moves `at` on. */
struct panel_ahead {
    const char *at, *end; /* in the current run */
    int64_t run, stride, runs;
};

/* One call of a micro-kernel: c[rows][lanes] (+)= a sliver times a panel. */
struct panel_step {
    const float *a; /* [k][rows], rows <= the kernel's */
    const float *b; /* [k][lanes], rows b_step apart */
    int64_t b_step;
    int64_t rows, k;
    float *c;
    int64_t ldc;
    bool add;      /* to what is in c */
    float *next_c; /* c of the next step */
    struct panel_ahead *ahead;
};

/* What a product of few rows or few k does with FEW rows of b, which it reads from end
 * to end: the chains in c begin, go on, or begin and are then added to c. */
enum panel_chain { CHAIN_BEGIN, CHAIN_GO_ON, CHAIN_ADD /* b as packed */ };

struct panel_stream {
    enum panel_chain chain;
    const float *a; /* [k], of `rows` adjacent numbers, a_step apart */
    /* [k], of n numbers, b_step apart: as packed, which is b_type float32, or as they
     * are stored, where the kernel is direct */
    const void *b;
    accel_dtype_t b_type;
    int64_t a_step, b_step;
    int64_t rows, k; /* <= PANEL_FEW */
    int64_t n;       /* a multiple of the kernel's lanes */
    float *c;        /* [rows][n] */
    int64_t ldc;
    bool ahead; /* the next rows of b are read next */
};

/* The stored rows of an operand run along k, or across it. */
struct panel_operand {
    const void *data;
    accel_dtype_t type;
    int64_t ld;
    bool k_rows; /* a stored row holds all k of one row of a or one column of b */
    struct block_scales blocks;
};

/* Stored rows that a kernel packs, `ld` numbers apart. */
struct panel_source {
    const void *at;
    accel_dtype_t type;
    int64_t ld;
};

struct panel_kernel {
    int64_t rows, lanes;
    /* It multiplies pairs of bfloat16 along k: packed [k / 2][width] of 32 bits, k
     * padded with 0. All others multiply float32. */
    bool pairs;
    /* A k takes it long enough to read rows of b that lie far apart: for it they are
     * not packed. */
    bool strided;
    /* It packs stored numbers of any dtype, and streams float32, bfloat16 and float16;
     * pairs only bfloat16. A kernel that is not direct takes only float32. */
    bool direct;
    /* Packs [k][width] from n <= width stored rows of k numbers (turn), or from k
     * stored rows of n numbers (copy); lanes beyond n become 0. */
    void (*turn)(float *to, const struct panel_source *from, int64_t n, int64_t k,
                 int64_t width);
    void (*copy)(float *to, const struct panel_source *from, int64_t n, int64_t k,
                 int64_t width);
    void (*multiply)(const struct panel_step *s);
    void (*stream)(const struct panel_stream *s);
};

extern const struct panel_kernel panels_plain;
/* `isa` must be one that this CPU has. */
const struct panel_kernel *panel_kernel_of(enum tile_isa isa);
/* The kernel of pairs of bfloat16. Only where cpu_has_bf16_products(). */
const struct panel_kernel *panel_kernel_of_pairs(void);

struct cpu_state;
struct gemm;
/* The kernel that multiplies the operands of p. */
const struct panel_kernel *panel_kernel_for(const struct cpu_state *state,
                                            const struct gemm *p);

/* Floats of a packed [k][width]. */
static inline int64_t panel_floats(const struct panel_kernel *kernel, int64_t k,
                                   int64_t width)
{
    return (kernel->pairs ? (k + 1) / 2 : k) * width;
}

/* Packs rows of op(a), or columns of op(b), [at, at + n), of k numbers from k0, k <=
 * PANEL_DEPTH. Numbers narrower than float32 are widened on the way, and multiplied by
 * the inverse scales of their blocks. */
void panel_pack(const struct panel_kernel *kernel, float *to,
                const struct panel_operand *from, int64_t at, int64_t n, int64_t k0,
                int64_t k, int64_t width);
/* The same from an operand whose stored rows run across k, into rows of any width:
 * numbers beyond the nth are not written. */
void panel_rows(const struct panel_kernel *kernel, float *to,
                const struct panel_operand *from, int64_t at, int64_t n, int64_t k0,
                int64_t k, int64_t width);
/* The memory that panel_pack will read. */
struct panel_ahead panel_ahead(const struct panel_operand *from, int64_t at, int64_t n,
                               int64_t k0, int64_t k);

#endif

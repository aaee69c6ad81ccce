/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of bfloat16 tiles on tensor cores for the attention: 16 x 8 results per
 * warp, summed in float32 over 16 columns at a time. In the stand-in build, where
 * kernels run on the CPU, the same products are made through shuffles, element for
 * element.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_MMA_H
#define ACCEL_BACKEND_CUDA_ATTENTION_MMA_H

#include "backend/cuda/cuda_attention.h"

#define MMA_THREADS 128
#define MMA_ROWS    16 /* rows of a tile per warp */
#define MMA_WIDEST  128
/* padding after a row in shared memory, against bank conflicts */
#define MMA_PAD 8

/* Lane l of a result owns row l / 4, columns 2 (l % 4) and the next in c[0..1], and the
 * same columns of row l / 4 + 8 in c[2..3]. */
static __device__ __forceinline__ int mma_row(void)
{
    return (int)threadIdx.x % WARP / 4;
}

static __device__ __forceinline__ int mma_col(void)
{
    return (int)threadIdx.x % 4 * 2;
}

/* The warp's first row within the tile. */
static __device__ __forceinline__ int mma_first(void)
{
    return (int)threadIdx.x / WARP * MMA_ROWS;
}

/* Two floats rounded to bfloat16 in one register, `low` in the lower half. */
static __device__ __forceinline__ uint32_t mma_pack(float low, float high)
{
#ifdef __CUDACC__
    uint32_t both;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
#else
    return (uint32_t)f32_to_bf16(low) | (uint32_t)f32_to_bf16(high) << 16;
#endif
}

#ifndef __CUDACC__
/* The low (half 0) or high bfloat16 of a register. */
static inline float mma_half(uint32_t both, int half)
{
    return bf16_to_f32((bf16_t)(both >> 16 * half));
}
#endif

/* c += a b: a 16 x 16, b 16 x 8. */
static __device__ __forceinline__ void mma(float c[4], const uint32_t a[4], uint32_t b0,
                                           uint32_t b1)
{
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    const int lane = (int)threadIdx.x % WARP;

    /* Four lanes share a row of a, or a column of b, and each holds four of its
     * elements. */
    for (int from = 0; from < 4; from++) {
        uint32_t row[4], col[2][2];

        for (int i = 0; i < 2; i++) {
            uint64_t two = a[2 * i] | (uint64_t)a[2 * i + 1] << 32;

            two = __shfl_sync(WARP_MASK, two, lane / 4 * 4 + from);
            row[2 * i] = (uint32_t)two;
            row[2 * i + 1] = (uint32_t)(two >> 32);
        }
        for (int n = 0; n < 2; n++) {
            uint64_t two = b0 | (uint64_t)b1 << 32;

            two = __shfl_sync(WARP_MASK, two, (mma_col() + n) * 4 + from);
            col[n][0] = (uint32_t)two;
            col[n][1] = (uint32_t)(two >> 32);
        }
        for (int i = 0; i < 4; i++) /* c[i] is row i / 2, column i % 2 of this lane */
            for (int half = 0; half < 4; half++)
                c[i] += mma_half(row[i / 2 + half / 2 * 2], half % 2) *
                        mma_half(col[i % 2][half / 2], half % 2);
    }
#endif
}

/* Loads four 8 x 8 matrices: rows [0, 8) and [8, 16) at columns [0, 8) of `at`, then
 * the same rows at columns [8, 16). Lane l gets row l / 4, columns 2 (l % 4) and the
 * next of each. They serve as a in the order {0, 1, 2, 3}, or as b of the rows'
 * transpose in {0, 2} and {1, 3}. */
static __device__ __forceinline__ void mma_load(uint32_t r[4], const bf16_t *at, int ld)
{
    const int lane = (int)threadIdx.x % WARP;
    const bf16_t *row = at + lane % 16 * ld + lane / 16 * 8;

#ifdef __CUDACC__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row)));
#else
    (void)row;
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], at + (i % 2 * 8 + mma_row()) * ld + i / 2 * 8 + mma_col(), 4);
#endif
}

/* The same matrices, each transposed: lane l gets column l / 4, rows 2 (l % 4) and the
 * next. They serve as b in {0, 1} and {2, 3}. */
static __device__ __forceinline__ void mma_load_turned(uint32_t r[4], const bf16_t *at,
                                                       int ld)
{
    const int lane = (int)threadIdx.x % WARP;
    const bf16_t *row = at + lane % 16 * ld + lane / 16 * 8;

#ifdef __CUDACC__
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
        : "r"((uint32_t)__cvta_generic_to_shared(row)));
#else
    (void)row;
    for (int i = 0; i < 4; i++) {
        const bf16_t *from = at + (i % 2 * 8 + mma_col()) * ld + i / 2 * 8 + mma_row();

        r[i] = (uint32_t)from[0] | (uint32_t)from[ld] << 16;
    }
#endif
}

/* Copies rows of a head to shared memory, zeros where there are none. Rows and widths
 * allow reads of 8 elements (attn_mma_fits). */
template <int WIDTH>
static __device__ __forceinline__ void mma_stage(bf16_t *dst,
                                                 const struct attn_rows<bf16_t> &from,
                                                 int64_t width)
{
    struct alignas(16) eight {
        uint32_t w[4];
    };

#pragma unroll 2
    /* 8 elements, 16 bytes, per thread and access */
    for (int i = (int)threadIdx.x; i < ATTN_TILE * WIDTH / 8; i += MMA_THREADS) {
        int r = i / (WIDTH / 8), c = i % (WIDTH / 8) * 8;
        struct eight v = { { 0, 0, 0, 0 } };

        if (r < from.count && c < width)
            v = *(const struct eight *)(from.at + r * from.stride + c);
        *(struct eight *)(dst + r * (WIDTH + MMA_PAD) + c) = v;
    }
}

/* c = rows [0, 16) of a times the transpose of the first 8 N rows of b. */
template <int WIDTH, int N>
static __device__ __forceinline__ void mma_scores(float c[N][4], const bf16_t *a,
                                                  const bf16_t *b)
{
    const int ld = WIDTH + MMA_PAD;

#pragma unroll
    for (int n = 0; n < N; n++)
        for (int i = 0; i < 4; i++)
            c[n][i] = 0.0f;
#pragma unroll
    for (int k = 0; k < WIDTH; k += 16) {
        uint32_t left[4], right[4];

        /* the result is [16, 8 N], a row of N tiles; k goes in steps of 16 */
        mma_load(left, a + k, ld);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            mma_load(right, b + n * 8 * ld + k, ld);
            mma(c[n], left, right[0], right[2]);
            mma(c[n + 1], left, right[1], right[3]);
        }
    }
}

/* acc += c, rounded to bfloat16, times the first 8 N rows of b. The layout of a result
 * is that of an operand a, so c needs no trip through shared memory. */
template <int WIDTH, int N>
static __device__ __forceinline__ void mma_gather(float acc[WIDTH / 8][4],
                                                  const float c[N][4], const bf16_t *b)
{
    const int ld = WIDTH + MMA_PAD;

#pragma unroll
    for (int k = 0; k < N; k += 2) {
        uint32_t left[4], right[4];

        left[0] = mma_pack(c[k][0], c[k][1]);
        left[1] = mma_pack(c[k][2], c[k][3]);
        left[2] = mma_pack(c[k + 1][0], c[k + 1][1]);
        left[3] = mma_pack(c[k + 1][2], c[k + 1][3]);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            mma_load_turned(right, b + k * 8 * ld + n * 8, ld);
            mma(acc[n], left, right[0], right[1]);
            mma(acc[n + 1], left, right[2], right[3]);
        }
    }
}

/* Stores the warp's rows of a finished tile; `upper` and `lower` are the factors of
 * this lane's two rows. */
template <int WIDTH>
static __device__ __forceinline__ void mma_store(const struct heads_out &to, int64_t b,
                                                 int64_t h, int64_t first, int rows,
                                                 const float acc[WIDTH / 8][4],
                                                 float upper, float lower,
                                                 int64_t width)
{
    const int row = mma_first() + mma_row();
    bf16_t *at = (bf16_t *)to.data + b * to.sample + h * to.head +
                 (first + row) * to.row + mma_col();
    bf16_t *below = at + 8 * to.row;

#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (row < rows && n * 8 < width)
                store_float(at, n * 8 + i, to.add, acc[n][i] * upper);
            if (row + 8 < rows && n * 8 < width)
                store_float(below, n * 8 + i, to.add, acc[n][2 + i] * lower);
        }
}

void attn_mma_forward(const struct backend *be, const struct attention *p, void *out,
                      float *lse);
void attn_mma_backward(const struct backend *be, const struct attention *p,
                       const struct attention_grads *g, const float *delta);

#endif

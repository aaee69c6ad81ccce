/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of tiles of T, bfloat16 or float16, on tensor cores for the attention: 16 x
 * 8 results per warp, summed in float32 over 16 columns at a time (ptx.h).
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_MMA_H
#define ACCEL_BACKEND_CUDA_ATTENTION_MMA_H

#include "backend/cuda/attention/cuda_attention.h"
#include "backend/cuda/ptx.h"
#include "backend/cuda/vector.h"

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

/* The address that this lane hands in for 8 x 8 matrices of `at`: rows [0, 8) and
 * [8, 16) at columns [0, 8), then the same rows at columns [8, 16). */
template <typename T>
static __device__ __forceinline__ const T *mma_matrix_row(const T *at, int ld)
{
    const int lane = (int)threadIdx.x % WARP;

    return at + lane % 16 * ld + lane / 16 * 8;
}

/* These four matrices serve as a in the order {0, 1, 2, 3}, or as b of the rows'
 * transpose in {0, 2} and {1, 3}. */
template <typename T>
static __device__ __forceinline__ void mma_load(uint32_t r[4], const T *at, int ld)
{
    ptx_load(r, mma_matrix_row(at, ld));
}

/* The same matrices, each transposed. They serve as b in {0, 1} and {2, 3}. */
template <typename T>
static __device__ __forceinline__ void mma_load_transposed(uint32_t r[4], const T *at,
                                                           int ld)
{
    ptx_load_transposed(r, mma_matrix_row(at, ld));
}

/* Starts to copy ROWS rows of a head to shared memory, zeros where there are none. Rows
 * and widths allow reads of 8 elements (attn_mma_fits). They are there after
 * mma_staged. */
template <int WIDTH, int ROWS, typename T>
static __device__ __forceinline__ void mma_stage(T *dst,
                                                 const struct attn_rows<T> &from,
                                                 int64_t width)
{
    /* 8 elements, 16 bytes, per thread and copy */
    for (int i = (int)threadIdx.x; i < ROWS * WIDTH / 8; i += MMA_THREADS) {
        int r = i / (WIDTH / 8), c = i % (WIDTH / 8) * 8;

        ptx_copy(dst + r * (WIDTH + MMA_PAD) + c, from.at + r * from.stride + c,
                 r < from.count && c < width);
    }
    ptx_copy_commit();
}

/* Waits for all that the block has begun to stage. All its threads must call; what they
 * read before may be staged again. */
static __device__ __forceinline__ void mma_staged(void)
{
    ptx_copy_wait<0>();
    __syncthreads();
}

/* c = rows [0, 16) of a times the transpose of the first 8 N rows of b. */
template <int WIDTH, int N, typename T>
static __device__ __forceinline__ void mma_scores(float c[N][4], const T *a, const T *b)
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
            ptx_mma<T>(c[n], left, right[0], right[2]);
            ptx_mma<T>(c[n + 1], left, right[1], right[3]);
        }
    }
}

/* acc += c, rounded to T, times the first 8 N rows of b. The layout of a result
 * is that of an operand a, so c needs no trip through shared memory. */
template <int WIDTH, int N, typename T>
static __device__ __forceinline__ void mma_gather(float acc[WIDTH / 8][4],
                                                  const float c[N][4], const T *b)
{
    const int ld = WIDTH + MMA_PAD;

#pragma unroll
    for (int k = 0; k < N; k += 2) {
        uint32_t left[4], right[4];

        left[0] = ptx_pack<T>(c[k][0], c[k][1]);
        left[1] = ptx_pack<T>(c[k][2], c[k][3]);
        left[2] = ptx_pack<T>(c[k + 1][0], c[k + 1][1]);
        left[3] = ptx_pack<T>(c[k + 1][2], c[k + 1][3]);
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n += 2) {
            mma_load_transposed(right, b + k * 8 * ld + n * 8, ld);
            ptx_mma<T>(acc[n], left, right[0], right[1]);
            ptx_mma<T>(acc[n + 1], left, right[2], right[3]);
        }
    }
}

/* What exponents of two, instead of e, are made of. */
#define MMA_LOG2E 1.44269504f

static __device__ __forceinline__ float mma_log2_scale(const struct attention &p)
{
    return p.scale * MMA_LOG2E;
}

/* Rows of scores are queries: puts `hidden` where a query does not see a key. Columns
 * are the tile's keys from `first` on; `row`: the upper of this lane's two. A tile that
 * all see whole is left alone, by one branch that the warp takes together. */
template <int N>
static __device__ __forceinline__ void mma_hide_keys(const struct attn_view &view,
                                                     int row, int first, float hidden,
                                                     float s[N][4])
{
    int end[2];

    if (view.all)
        return;
    for (int half = 0; half < 2; half++) {
        const int q = row + half * 8, last = q + view.ahead + 1;

        end[half] = q >= view.queries ? 0 : last < view.keys ? last : view.keys;
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int k = first + n * 8 + mma_col() + i % 2;

            s[n][i] = k < end[i / 2] ? s[n][i] : hidden;
        }
    if (!view.mask)
        return;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int k = first + n * 8 + mma_col() + i;

            if (k < view.keys && !view.mask[k])
                s[n][i] = s[n][i + 2] = hidden;
        }
}

/* The same where rows are keys, and columns the tile's queries from `first` on. */
template <int N>
static __device__ __forceinline__ void mma_hide_queries(const struct attn_view &view,
                                                        int row, int first,
                                                        float hidden, float s[N][4])
{
    int begin[2];

    if (view.all)
        return;
    for (int half = 0; half < 2; half++) {
        const int k = row + half * 8;

        begin[half] =
            k < view.keys && !(view.mask && !view.mask[k]) ? k - view.ahead : ATTN_TILE;
    }
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int q = first + n * 8 + mma_col() + i % 2;

            s[n][i] = q >= begin[i / 2] && q < view.queries ? s[n][i] : hidden;
        }
}

/* Where the two rows of this lane lie within a finished tile, and their factors. */
struct mma_rows {
    int upper, lower;
    float upper_by, lower_by;
};

/* The rows of a tile in order. */
static __device__ __forceinline__ struct mma_rows mma_rows_by(float upper, float lower)
{
    const int row = mma_first() + mma_row();
    const struct mma_rows r = { row, row + 8, upper, lower };

    return r;
}

/* Stores the warp's rows of a finished tile, two elements at once where they lie so. */
template <typename T, int WIDTH>
static __device__ __forceinline__ void mma_store(const struct heads_out &to, int64_t b,
                                                 int64_t h, int64_t first, int rows,
                                                 const float acc[WIDTH / 8][4],
                                                 const struct mma_rows &r,
                                                 int64_t width)
{
    T *tile = (T *)to.data + b * to.sample + h * to.head + first * to.row + mma_col();
    const bool pairs =
        ((uintptr_t)to.data / sizeof(T) | to.sample | to.head | to.row) % 2 == 0;

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = half ? r.lower : r.upper;
        const float by = half ? r.lower_by : r.upper_by;
        T *at = tile + row * to.row;

        if (row >= rows)
            continue;
#pragma unroll
        for (int n = 0; n < WIDTH / 8; n++) {
            const float two[2] = { acc[n][2 * half] * by, acc[n][2 * half + 1] * by };

            if (n * 8 >= width)
                break;
            if (pairs) {
                store<2>(at + n * 8, to.add, two);
            } else {
                store_float(at, n * 8, to.add, two[0]);
                store_float(at, n * 8 + 1, to.add, two[1]);
            }
        }
    }
}

template <int WIDTH>
static __device__ __forceinline__ void mma_clear(float acc[WIDTH / 8][4])
{
#pragma unroll
    for (int n = 0; n < WIDTH / 8; n++)
        for (int i = 0; i < 4; i++)
            acc[n][i] = 0.0f;
}

/* A backward: what it reads beside struct attention, and the heads that one launch
 * takes. */
struct mma_task {
    const void *dout;
    const float *lse, *delta;
    int64_t sample, samples, kv_head, kv_heads;
    /* Five products: gradients of the part's scores, a tile of 64 queries and 64 keys
     * after the other [samples, heads, query tiles, key tiles]; else NULL. A tile has a
     * row per key; its columns are the queries in the order of mma_query. Of the call's
     * type. */
    void *ds;
};

/* Which query of a tile column `at` of its stored gradients is: a lane's queries of 32
 * lie side by side, so that it writes 16 bytes at once. */
static __device__ __forceinline__ int mma_query(int at)
{
    return at / 32 * 32 + at % 8 / 2 * 8 + at / 8 % 4 * 2 + at % 2;
}

/* The stored gradients of a tile's scores. */
template <typename T>
static __device__ __forceinline__ T *mma_ds_of(const struct attention &p,
                                               const struct mma_task &w,
                                               const struct attn_tile &t)
{
    const int64_t group = p.heads / p.kv_heads;
    const int64_t head =
        (t.b - w.sample) * w.kv_heads * group + t.h - w.kv_head * group;
    const int64_t down = (p.queries + ATTN_TILE - 1) / ATTN_TILE;
    const int64_t across = (p.keys + ATTN_TILE - 1) / ATTN_TILE;

    return (T *)w.ds + ((head * down + t.q0 / ATTN_TILE) * across + t.k0 / ATTN_TILE) *
                           (ATTN_TILE * ATTN_TILE);
}

/* exp(scale s - lse); lse is in units of log2, as MMA_LOG2E makes it; by: scale
 * log2(e). */
static __device__ __forceinline__ float mma_probability(float s, float by, float lse)
{
    return ptx_exp2(fmaf(s, by, -lse));
}

/* One element: dp becomes ds = p (dp * keep - delta), as in the plain backward, and the
 * probability p then p * keep. */
static __device__ __forceinline__ void mma_score_grad(float &p, float &dp, float delta,
                                                      float keep)
{
    dp = p * (dp * keep - delta);
    p *= keep;
}

/* Results, rounded to T, as operands a of products over 16 of their columns. */
template <typename T, int N>
static __device__ __forceinline__ void mma_pack(uint32_t a[N / 2][4],
                                                const float c[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        a[n / 2][n % 2 * 2] = ptx_pack<T>(c[n][0], c[n][1]);
        a[n / 2][n % 2 * 2 + 1] = ptx_pack<T>(c[n][2], c[n][3]);
    }
}

/* Keeps the packed gradients of the scores of a tile's keys and 32 queries from `half`
 * on for dq; `row`: the upper of this lane's two keys. */
template <typename T>
static __device__ __forceinline__ void mma_keep_ds(T *ds, int row, int half,
                                                   const uint32_t a[2][4])
{
    T *at = ds + row * ATTN_TILE + half + mma_col() * 4;
    pack<uint32_t, 4> upper, lower;

#pragma unroll
    for (int n = 0; n < 4; n++) {
        upper.v[n] = a[n / 2][n % 2 * 2];
        lower.v[n] = a[n / 2][n % 2 * 2 + 1];
    }
    *reinterpret_cast<pack<uint32_t, 4> *>(at) = upper;
    *reinterpret_cast<pack<uint32_t, 4> *>(at + 8 * ATTN_TILE) = lower;
}

/* Runs the statements with T and WIDTH as the call has them. Two widths are compiled;
 * narrower heads are padded with zeros. */
#define BY_TILE(p, T, WIDTH, ...)                                                      \
    do {                                                                               \
        if ((p)->type == ACCEL_F16 && (p)->head_width <= 64) {                         \
            using T = half_t;                                                          \
            constexpr int WIDTH = 64;                                                  \
            __VA_ARGS__;                                                               \
        } else if ((p)->type == ACCEL_F16) {                                           \
            using T = half_t;                                                          \
            constexpr int WIDTH = 128;                                                 \
            __VA_ARGS__;                                                               \
        } else if ((p)->head_width <= 64) {                                            \
            using T = bf16_t;                                                          \
            constexpr int WIDTH = 64;                                                  \
            __VA_ARGS__;                                                               \
        } else {                                                                       \
            using T = bf16_t;                                                          \
            constexpr int WIDTH = 128;                                                 \
            __VA_ARGS__;                                                               \
        }                                                                              \
    } while (0)

void attn_mma_forward(const struct backend *be, const struct attention *p, void *out,
                      float *lse);
/* Is there code with wgmma for this device and this call, and is it wanted? */
bool attn_has_wgmma(struct cuda_state *s, const struct attention *p);
/* Does the driver make tensor maps of q, k and v? */
bool attn_wgmma_maps(struct cuda_state *s, const struct attention *p);
void attn_wgmma_forward(const struct backend *be, const struct attention *p, void *out,
                        float *lse);
void attn_mma_backward(const struct backend *be, const struct attention *p,
                       const struct attention_grads *g, const float *delta);
/* dk and dv of a part, and dq of seven products, for calls that attn_wgmma_fits. */
void attn_wgmma_dkv(struct cuda_state *s, const struct attention *p,
                    const struct mma_task *w, const struct attention_grads *g);
void attn_wgmma_dq(struct cuda_state *s, const struct attention *p,
                   const struct mma_task *w, const struct heads_out *dq);
/* dq of a part from the gradients of its scores. */
void attn_mma_dq(struct cuda_state *s, const struct attention *p,
                 const struct mma_task *w, const struct heads_out *dq);

#endif

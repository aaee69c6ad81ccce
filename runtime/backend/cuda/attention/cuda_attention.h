/* SPDX-License-Identifier: Apache-2.0
 *
 * Internals of the CUDA attention: tiles of 64 queries x 64 keys, one per thread block
 * at a time, 4 x 4 elements per thread. Operands pass through shared memory; scores
 * never leave the chip. Every sum has a fixed order, so two runs give the same bits.
 */
#ifndef ACCEL_BACKEND_CUDA_ATTENTION_H
#define ACCEL_BACKEND_CUDA_ATTENTION_H

#include "backend/cuda/attention/attention_path.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda_sizes.h"
#include "backend/maths.h"

#define ATTN_CHUNK   32 /* columns of both operands that are staged at a time */
#define ATTN_THREADS 256
#define ATTN_EACH    4 /* rows, and columns, of a tile per thread */
#define ATTN_LANES   (ATTN_TILE / ATTN_EACH)
/* one more than a power of two avoids bank conflicts */
#define ATTN_S_ROW (ATTN_TILE + 1)
/* four keys share a block of random words */
#define ATTN_QUADS (ATTN_TILE / 4)

/* Thread (x, y) of a block owns rows 4 y + i and columns x + 16 j of a tile, i, j <
 * 4. */
struct attn_shared {
    float stage[2 * ATTN_TILE * (ATTN_CHUNK + 1)]; /* or [64][65] */
    float s[ATTN_TILE * ATTN_S_ROW];
    uint8_t kept[ATTN_TILE * ATTN_QUADS];
};

/* Rows of one head, from a first position on. */
template <typename T> struct attn_rows {
    const T *at;
    int64_t stride;
    int count; /* valid rows, at most ATTN_TILE; the others read as zero */
    float scale;
};

/* A tile's place and its valid size. */
struct attn_tile {
    int64_t b, h, kv_head;
    int64_t q0, k0;
    int queries, keys;
    int64_t limit; /* keys of this sample before the padding */
};

NUMBERS_INLINE int64_t attn_clamp(int64_t v, int64_t low, int64_t high)
{
    return v < low ? low : v > high ? high : v;
}

/* The tile of queries from q0 and keys from k0 of one head, clipped at both ends. */
static __device__ __forceinline__ struct attn_tile attn_tile_at(
    const struct attention &p, int64_t b, int64_t h, int64_t q0, int64_t k0)
{
    struct attn_tile t;

    t.b = b;
    t.h = h;
    t.kv_head = h / (p.heads / p.kv_heads);
    t.q0 = q0;
    t.k0 = k0;
    t.queries = (int)attn_clamp(p.queries - q0, 0, ATTN_TILE);
    t.keys = (int)attn_clamp(p.keys - k0, 0, ATTN_TILE);
    t.limit = p.lengths ? attn_clamp(p.lengths[b], 0, p.keys) : p.keys;
    return t;
}

/* Number of leading keys that some query of the tile may see. */
static __device__ __forceinline__ int64_t attn_key_end(const struct attention &p,
                                                       const struct attn_tile &t)
{
    return p.causal ? attn_clamp(p.offset + t.q0 + t.queries, 0, t.limit) : t.limit;
}

/* Which query sees which key within a tile, in small numbers that fit registers. */
struct attn_view {
    int queries, keys;   /* valid ones, without padding */
    int ahead;           /* query q sees the keys up to q + ahead */
    const int32_t *mask; /* of the first key */
    bool all;            /* every query sees every key */
};

/* Worked out once per tile of KEYS keys, in 32 bits: the test per element is then a
 * comparison or two. t.keys is not used. */
template <int KEYS = ATTN_TILE>
static __device__ __forceinline__ struct attn_view attn_view_of(
    const struct attention &p, const struct attn_tile &t)
{
    struct attn_view v;

    v.queries = t.queries;
    v.keys = (int)attn_clamp(t.limit - t.k0, 0, KEYS);
    v.ahead =
        p.causal ? (int)attn_clamp(p.offset + t.q0 - t.k0, -ATTN_TILE, KEYS) : KEYS;
    v.mask = p.mask ? p.mask + t.b * p.keys + t.k0 : NULL;
    v.all = v.queries == ATTN_TILE && v.keys == KEYS && v.ahead >= KEYS - 1 && !v.mask;
    return v;
}

static __device__ __forceinline__ bool attn_sees(const struct attn_view &v, int q,
                                                 int k)
{
    return v.all ||
           (q < v.queries && k < v.keys && k <= q + v.ahead && !(v.mask && !v.mask[k]));
}

template <typename T>
static __device__ __forceinline__ struct attn_rows<T> attn_rows_of(
    const struct heads &from, int64_t b, int64_t h, int64_t first, int count,
    float scale) {
    struct attn_rows<T> r;

    r.at = (const T *)from.data + b * from.sample + h * from.head + first * from.row;
    r.stride = from.row;
    r.count = count;
    r.scale = scale;
    return r;
}

/* Rows of out or dout, which are [batch, queries, heads * head_width]. */
template <typename T>
static __device__ __forceinline__ struct attn_rows<T> attn_out_rows(
    const struct attention &p, const void *data, const struct attn_tile &t) {
    int64_t cols = p.heads * p.head_width;
    struct heads h = { data, p.queries *cols, cols, p.head_width };

    return attn_rows_of<T>(h, t.b, t.h, t.q0, t.queries, 1.0f);
}

/* Copies columns [c0, c0 + cols) of the rows to dst[64][ld], zeros where there are
 * none. All threads of the block take part; the caller synchronizes. */
template <typename T>
static __device__ __forceinline__ void attn_stage(float *dst, int ld, int cols,
                                                  const struct attn_rows<T> &from,
                                                  int64_t c0, int64_t width)
{
    for (int i = (int)threadIdx.x; i < ATTN_TILE * cols; i += ATTN_THREADS) {
        int r = i / cols, c = i % cols;
        /* zeros add nothing to a product, so edges need no code of their own */
        bool there = r < from.count && c0 + c < width;

        dst[r * ld + c] =
            there ? load_float(from.at, r * from.stride + c0 + c) * from.scale : 0.0f;
    }
}

/* acc = a b^T for two tiles of rows, summed from the first column to the last. */
template <typename T>
static __device__ __forceinline__ void attn_dot(float acc[ATTN_EACH][ATTN_EACH],
                                                struct attn_shared &sh,
                                                const struct attn_rows<T> &a,
                                                const struct attn_rows<T> &b,
                                                int64_t width)
{
    /* 4 x 4 sums per thread: 8 reads of shared memory for 16 multiply-adds */
    const int ld = ATTN_CHUNK + 1, x = (int)threadIdx.x % ATTN_LANES,
              y = (int)threadIdx.x / ATTN_LANES;
    float *left = sh.stage, *right = sh.stage + ATTN_TILE * ld;

    for (int i = 0; i < ATTN_EACH; i++)
        for (int j = 0; j < ATTN_EACH; j++)
            acc[i][j] = 0.0f;
    for (int64_t c0 = 0; c0 < width; c0 += ATTN_CHUNK) {
        __syncthreads();
        attn_stage(left, ld, ATTN_CHUNK, a, c0, width);
        attn_stage(right, ld, ATTN_CHUNK, b, c0, width);
        __syncthreads();
#pragma unroll 8
        for (int c = 0; c < ATTN_CHUNK; c++)
#pragma unroll
            for (int i = 0; i < ATTN_EACH; i++)
#pragma unroll
                for (int j = 0; j < ATTN_EACH; j++)
                    acc[i][j] = fmaf(left[(ATTN_EACH * y + i) * ld + c],
                                     right[(x + ATTN_LANES * j) * ld + c], acc[i][j]);
    }
}

/* acc[i][4 n + j] += row 4 y + i of sh.s times column c0 + 64 n + x + 16 j of the rows.
 * Synchronizes before it reads sh.s and again before it returns. */
template <typename T, int CHUNKS>
static __device__ __forceinline__ void attn_gather(
    float acc[ATTN_EACH][ATTN_EACH * CHUNKS], struct attn_shared &sh,
    const struct attn_rows<T> &rows, int64_t c0, int64_t width)
{
    const int x = (int)threadIdx.x % ATTN_LANES, y = (int)threadIdx.x / ATTN_LANES;

#pragma unroll
    for (int n = 0; n < CHUNKS; n++) {
        __syncthreads();
        attn_stage(sh.stage, ATTN_S_ROW, ATTN_TILE, rows, c0 + n * ATTN_TILE, width);
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < ATTN_TILE; k++)
#pragma unroll
            for (int i = 0; i < ATTN_EACH; i++)
#pragma unroll
                for (int j = 0; j < ATTN_EACH; j++)
                    acc[i][ATTN_EACH * n + j] =
                        fmaf(sh.s[(ATTN_EACH * y + i) * ATTN_S_ROW + k],
                             sh.stage[k * ATTN_S_ROW + x + ATTN_LANES * j],
                             acc[i][ATTN_EACH * n + j]);
    }
    __syncthreads();
}

/* A tile's random words, as struct attention counts them: row * quads + key / 4. */
struct attn_draws {
    uint64_t first, quads; /* first: of the tile's first query and key */
    uint32_t below;        /* words below it drop their key */
};

static __device__ __forceinline__ struct attn_draws attn_draws_of(
    const struct attention &p, const struct attn_tile &t)
{
    const uint64_t row =
        ((uint64_t)(p.first_sample + t.b) * (uint64_t)p.heads + (uint64_t)t.h) *
            (uint64_t)p.queries +
        (uint64_t)t.q0;
    struct attn_draws d;

    d.quads = ((uint64_t)p.keys + 3) / 4;
    d.first = row * d.quads + (uint64_t)t.k0 / 4;
    d.below = (uint32_t)((double)p.dropout * 4294967296.0);
    return d;
}

/* Bit i: does dropout keep key 4 quad + i of query q of the tile? */
static __device__ __forceinline__ uint32_t attn_kept_quad(const struct attention &p,
                                                          const struct attn_draws &d,
                                                          int q, int quad)
{
    uint32_t word[4];

    rng_block(p.seed, p.stream, d.first + (uint64_t)q * d.quads + (uint64_t)quad, word);
    return (uint32_t)(word[0] >= d.below) | (uint32_t)(word[1] >= d.below) << 1 |
           (uint32_t)(word[2] >= d.below) << 2 | (uint32_t)(word[3] >= d.below) << 3;
}

/* Sets bit k % 4 of kept[q][k / 4] if dropout keeps key k of query q. Readers
 * synchronize. */
static __device__ __forceinline__ void attn_stage_kept(const struct attention &p,
                                                       const struct attn_tile &t,
                                                       uint8_t *kept)
{
    const struct attn_draws d = attn_draws_of(p, t);

    BLOCK_STRIDE(i, ATTN_TILE * ATTN_QUADS)
    kept[i] =
        (uint8_t)attn_kept_quad(p, d, (int)(i / ATTN_QUADS), (int)(i % ATTN_QUADS));
}

/* The dropout factor of one element. scale: 1 / (1 - dropout), or 0 without dropout. */
static __device__ __forceinline__ float attn_keep(const uint8_t *kept, float scale,
                                                  int q, int k)
{
    /* without dropout `kept` was never written */
    return scale == 0.0f                               ? 1.0f
           : kept[q * ATTN_QUADS + k / 4] >> k % 4 & 1 ? scale
                                                       : 0.0f;
}

static __device__ __forceinline__ float attn_keep_scale(const struct attention &p)
{
    return p.dropout > 0.0f ? 1.0f / (1.0f - p.dropout) : 0.0f;
}

/* Writes this thread's elements to sh.s. Readers synchronize. */
static __device__ __forceinline__ void attn_share(struct attn_shared &sh,
                                                  const float e[ATTN_EACH][ATTN_EACH])
{
    const int x = (int)threadIdx.x % ATTN_LANES, y = (int)threadIdx.x / ATTN_LANES;

    for (int i = 0; i < ATTN_EACH; i++)
        for (int j = 0; j < ATTN_EACH; j++)
            sh.s[(ATTN_EACH * y + i) * ATTN_S_ROW + x + ATTN_LANES * j] = e[i][j];
}

/* Stores rows 4 y + i of a finished tile, times `scale`, to the head at `to`. */
template <typename T, int CHUNKS>
static __device__ __forceinline__ void attn_store(
    const struct heads_out &to, int64_t b, int64_t h, int64_t first, int rows,
    const float acc[ATTN_EACH][ATTN_EACH * CHUNKS], float scale, int64_t c0,
    int64_t width)
{
    const int x = (int)threadIdx.x % ATTN_LANES, y = (int)threadIdx.x / ATTN_LANES;
    T *at = (T *)to.data + b * to.sample + h * to.head + first * to.row;

#pragma unroll
    for (int i = 0; i < ATTN_EACH; i++)
#pragma unroll
        for (int n = 0; n < ATTN_EACH * CHUNKS; n++) {
            int row = ATTN_EACH * y + i;
            int64_t col =
                c0 + n / ATTN_EACH * ATTN_TILE + x + n % ATTN_EACH * ATTN_LANES;

            if (row < rows && col < width)
                store_float(at, row * to.row + col, to.add, acc[i][n] * scale);
        }
}

/* Column blocks of 64 that a launch needs: 1, 2 or 4, as few as cover the width,
 * because registers hold them all. Wider heads take several passes. */
static inline int attn_chunks(int64_t width)
{
    return width <= ATTN_TILE ? 1 : width <= 2 * ATTN_TILE ? 2 : 4;
}

void attn_forward(const struct backend *be, const struct attention *p, void *out,
                  float *lse);
void attn_decode(const struct backend *be, const struct attention *p, void *out,
                 float *lse, float *scratch);
/* cuDNN's version; 0: not available. The forward and backward return false if cuDNN
 * refuses the call; then nothing has been done. */
size_t attn_dnn_version(const struct backend *be);
bool attn_dnn_open(struct cuda_state *s);
bool attn_dnn_forward(const struct backend *be, const struct attention *p, void *out,
                      float *lse);
bool attn_dnn_backward(const struct backend *be, const struct attention *p,
                       const struct attention_grads *g, float *delta);
/* Notes as the backend's advice that a call would have gone to cuDNN. */
void attn_dnn_missed(const struct backend *be);

/* Says (cuda_say) how our kernels make the first attention, or its gradient. */
void attn_tell(struct cuda_state *s, bool backward, const char *format, long long n);

/* delta[batch, heads, queries] = sum of dout * out, which both our backwards read. */
void attn_delta(const struct backend *be, const struct attention *p,
                const struct attention_grads *g, float *delta);
void attn_backward(const struct backend *be, const struct attention *p,
                   const struct attention_grads *g, const float *delta);

#endif

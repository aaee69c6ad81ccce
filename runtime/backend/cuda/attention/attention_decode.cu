/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of one query per sample: generation. Reading keys and values is the
 * bottleneck, so a block reads its split of them once, for the query heads that share
 * them, up to eight. A second kernel combines the splits in order. Splitting the keys
 * fills the device when there are few heads and samples (Flash-Decoding, Dao et al.
 * 2023). Where addresses and strides allow it, a thread reads packs of 16 bytes, of
 * four keys at a time.
 */
#include "backend/cuda/attention/cuda_attention.h"
#include "backend/cuda/vector.h"

#define DECODE_THREADS 128
#define DECODE_WARPS   (DECODE_THREADS / WARP)
#define DECODE_HEADS   8  /* query heads per block, at most */
#define DECODE_KEYS    64 /* keys per pass */
#define DECODE_ROWS    4  /* adjacent keys that a thread reads at once */

struct decode_task {
    /* splits of the keys; parts of the query heads that share a key head */
    int64_t splits, parts;
    int64_t heads; /* query heads per part; the last part may have fewer */
    int64_t step;  /* keys per split */
    int packs;     /* per row: head_width / V */
    int lines;     /* threads that share a pack's column, each with keys of its own */
    /* [batch * heads][splits][head_width], not yet divided by the sum */
    float *out;
    float *max, *sum; /* [batch * heads][splits] */
};

/* Scores of one pass, and the running state of each head. HEADS, the query heads of a
 * block, is a constant, so that no block computes heads that are not there. 8 heads x
 * 64 keys: 2 KiB, small enough for several blocks on a multiprocessor. */
template <int HEADS> struct decode_shared {
    alignas(16) float s[HEADS][DECODE_KEYS];
    float max[HEADS], sum[HEADS], factor[HEADS];
};

/* Where element e of pack i is, of n packs of V floats per head g. Groups of four
 * floats of adjacent packs are side by side: threads that read them as 16 bytes meet no
 * bank conflicts. */
template <int V> NUMBERS_INLINE int decode_at(int n, int g, int i, int e)
{
    constexpr int FOUR = V < 4 ? V : 4;

    return ((g * V + e) / FOUR * n + i) * FOUR + e % FOUR;
}

/* The V floats of pack i of head g. */
template <int V>
static __device__ __forceinline__ void decode_load(float *to, const float *from, int n,
                                                   int g, int i)
{
    constexpr int FOUR = V < 4 ? V : 4;

#pragma unroll
    for (int e = 0; e < V; e += FOUR)
        load<FOUR>(to + e, from + decode_at<V>(n, g, i, e));
}

/* Packs of row j and those after it. There is no test around a load, so that all are
 * on their way before the first is used: instead of rows from `end` on the last one is
 * read. */
template <int V, typename T>
static __device__ __forceinline__ void decode_rows(pack<T, V> *rows, const T *from,
                                                   int64_t stride, int j, int end)
{
#pragma unroll
    for (int r = 0; r < DECODE_ROWS; r++)
        rows[r] = pack_at<V>(from + least(j + r, end - 1) * stride);
}

/* s[g][j] = q[g] . key k0 + j, minus infinity if the key is hidden. LANES threads share
 * four keys: they read adjacent packs of a row, 128 bytes if the row has as many, and
 * each value of q serves four keys. */
template <typename T, int HEADS, int V>
static __device__ __forceinline__ void decode_scores(const struct attention &p,
                                                     const struct decode_task &w,
                                                     struct decode_shared<HEADS> &sh,
                                                     const float *q, int heads,
                                                     int64_t b, int64_t kv_head,
                                                     int64_t k0, int keys)
{
    constexpr int LANES = V > 1 ? 8 : WARP, TEAMS = DECODE_THREADS / LANES;
    const int lane = (int)threadIdx.x % LANES, team = (int)threadIdx.x / LANES;
    const T *k =
        (const T *)p.k.data + b * p.k.sample + kv_head * p.k.head + k0 * p.k.row;

    /* every thread does as many turns, so the sums over lanes do not diverge */
    for (int j = team * DECODE_ROWS; j < DECODE_KEYS; j += TEAMS * DECODE_ROWS) {
        float acc[HEADS][DECODE_ROWS] = {};
        bool seen[DECODE_ROWS];

#pragma unroll
        for (int r = 0; r < DECODE_ROWS; r++)
            seen[r] = j + r < keys && !(p.mask && !p.mask[b * p.keys + k0 + j + r]);
        for (int i = lane; i < w.packs; i += LANES) {
            pack<T, V> rows[DECODE_ROWS];

            decode_rows<V>(rows, k + i * V, p.k.row, j, keys);
#pragma unroll
            for (int g = 0; g < HEADS; g++) {
                float of[V];

                decode_load<V>(of, q, w.packs, g, i);
#pragma unroll
                for (int r = 0; r < DECODE_ROWS; r++)
#pragma unroll
                    for (int e = 0; e < V; e++)
                        acc[g][r] = fmaf(of[e], load_float(rows[r].v, e), acc[g][r]);
            }
        }
#pragma unroll
        for (int g = 0; g < HEADS; g++)
#pragma unroll
            for (int r = 0; r < DECODE_ROWS; r++) {
                float sum = acc[g][r];

                for (int apart = LANES / 2; apart; apart /= 2)
                    sum += __shfl_xor_sync(WARP_MASK, sum, apart);
                if (lane == 0 && g < heads)
                    sh.s[g][j + r] = seen[r] ? sum : -INFINITY;
            }
    }
}

/* Turns scores into exp(score - max), with the running maximum and sum: a warp per
 * head, two keys per lane. */
template <int HEADS>
static __device__ __forceinline__ void decode_soften(struct decode_shared<HEADS> &sh,
                                                     int heads)
{
    const int lane = (int)threadIdx.x % WARP;

    for (int g = (int)threadIdx.x / WARP; g < heads; g += DECODE_WARPS) {
        /* 64 keys: lane l has key l and key l + 32 */
        float past = sh.max[g], first = sh.s[g][lane], second = sh.s[g][lane + WARP];
        float next = warp_max(first > second ? first : second), base, sum;

        /* online softmax (Milakov and Gimelshein 2018): what was summed so far shrinks
         * by exp(old maximum - new maximum) */
        next = next > past ? next : past;
        base = next == -INFINITY ? 0.0f : next;
        first = first == -INFINITY ? 0.0f : maths_exp(first - base);
        second = second == -INFINITY ? 0.0f : maths_exp(second - base);
        sum = warp_sum(first + second);
        /* all lanes have read their two scores */
        __syncwarp();
        sh.s[g][lane] = first;
        sh.s[g][lane + WARP] = second;
        if (lane == 0) {
            float factor = past == -INFINITY ? 0.0f : maths_exp(past - base);

            sh.factor[g] = factor;
            sh.sum[g] = sh.sum[g] * factor + sum;
            sh.max[g] = next;
        }
    }
}

/* acc[g] = acc[g] * factor + sum over keys of s[g][j] v[j]. A place holds the sums of a
 * pack's column over every lines-th four keys; a thread reads four keys of it at a time
 * for all heads. */
template <typename T, int HEADS, int V>
static __device__ __forceinline__ void decode_gather(
    const struct attention &p, const struct decode_task &w,
    const struct decode_shared<HEADS> &sh, float *acc, int64_t b, int64_t kv_head,
    int64_t k0, int keys)
{
    const int places = w.packs * w.lines;
    const T *v =
        (const T *)p.v.data + b * p.v.sample + kv_head * p.v.head + k0 * p.v.row;

    for (int at = (int)threadIdx.x; at < places; at += DECODE_THREADS) {
        const T *from = v + at % w.packs * V;
        float sum[HEADS][V];

#pragma unroll
        for (int g = 0; g < HEADS; g++) {
            decode_load<V>(sum[g], acc, places, g, at);
#pragma unroll
            for (int e = 0; e < V; e++)
                sum[g][e] *= sh.factor[g];
        }
        for (int j = at / w.packs * DECODE_ROWS; j < keys; j += w.lines * DECODE_ROWS) {
            pack<T, V> rows[DECODE_ROWS];

            decode_rows<V>(rows, from, p.v.row, j, keys);
            /* row by row: widened all at once they would take the registers of loads
             * in flight. s is zero where there is no key. */
#pragma unroll
            for (int r = 0; r < DECODE_ROWS; r++)
#pragma unroll
                for (int g = 0; g < HEADS; g++)
#pragma unroll
                    for (int e = 0; e < V; e++)
                        sum[g][e] =
                            fmaf(sh.s[g][j + r], load_float(rows[r].v, e), sum[g][e]);
        }
#pragma unroll
        for (int g = 0; g < HEADS; g++)
#pragma unroll
            for (int e = 0; e < V; e++)
                acc[decode_at<V>(places, g, at, e)] = sum[g][e];
    }
}

/* Loads the queries of `heads` heads from h on, scaled, and initializes all else.
 * Heads that the last part lacks are zero, so that the loops need no test. */
template <typename T, int HEADS, int V>
static __device__ __forceinline__ void decode_start(const struct attention &p,
                                                    const struct decode_task &w,
                                                    struct decode_shared<HEADS> &sh,
                                                    float *q, float *acc, int64_t b,
                                                    int64_t h, int heads)
{
    const int64_t d = p.head_width;
    const T *from = (const T *)p.q.data + b * p.q.sample + h * p.q.head;

    __syncthreads();
    BLOCK_STRIDE(i, HEADS * d)
    {
        int64_t g = i / d, c = i % d;

        q[decode_at<V>(w.packs, (int)g, (int)(c / V), (int)(c % V))] =
            g < heads ? load_float(from, g * p.q.head + c) * p.scale : 0.0f;
    }
    BLOCK_STRIDE(i, HEADS * d * w.lines)
    acc[i] = 0.0f;
    /* scores of missing heads stay 0, and so does what they add */
    BLOCK_STRIDE(i, HEADS * DECODE_KEYS)
    sh.s[i / DECODE_KEYS][i % DECODE_KEYS] = 0.0f;
    BLOCK_STRIDE(g, HEADS)
    {
        sh.max[g] = -INFINITY;
        sh.sum[g] = 0.0f;
        sh.factor[g] = 0.0f;
    }
    __syncthreads();
}

/* One split of the keys for one part of a group's query heads. */
template <typename T, int HEADS, int V>
static __global__ void __launch_bounds__(DECODE_THREADS)
    attention_split(struct attention p, struct decode_task w)
{
    __shared__ struct decode_shared<HEADS> sh;
    DYNAMIC_SHARED(float, q);
    /* shared memory: q[HEADS][d], then acc[HEADS][lines][d], both by decode_at */
    const int64_t d = p.head_width, group = p.heads / p.kv_heads;
    float *acc = q + HEADS * d;

    ROW_STRIDE(i, p.batch * p.kv_heads * w.parts * w.splits)
    {
        /* splits vary fastest: blocks side by side read neighbouring keys of one head
         */
        int64_t split = i % w.splits, part = i / w.splits % w.parts;
        int64_t kv_head = i / w.splits / w.parts % p.kv_heads;
        int64_t b = i / w.splits / w.parts / p.kv_heads;
        int64_t h = kv_head * group + part * HEADS;
        /* the last part of a group may have fewer */
        int heads = (int)attn_clamp(group - part * HEADS, 0, HEADS);
        struct attn_tile t = attn_tile_at(p, b, h, 0, 0);
        int64_t end = attn_clamp((split + 1) * w.step, 0, attn_key_end(p, t));

        decode_start<T, HEADS, V>(p, w, sh, q, acc, b, h, heads);
        /* three phases per pass, each after all threads have finished the one before */
        for (int64_t k0 = split * w.step; k0 < end; k0 += DECODE_KEYS) {
            int keys = (int)attn_clamp(end - k0, 0, DECODE_KEYS);

            decode_scores<T, HEADS, V>(p, w, sh, q, heads, b, kv_head, k0, keys);
            __syncthreads();
            decode_soften(sh, heads);
            __syncthreads();
            decode_gather<T, HEADS, V>(p, w, sh, acc, b, kv_head, k0, keys);
            __syncthreads();
        }
        BLOCK_STRIDE(i, heads * d)
        {
            int g = (int)(i / d), c = (int)(i % d);
            float sum = 0.0f;

            for (int line = 0; line < w.lines; line++)
                sum += acc[decode_at<V>(w.packs * w.lines, g, line * w.packs + c / V,
                                        c % V)];
            w.out[((b * p.heads + h + g) * w.splits + split) * d + c] = sum;
        }
        BLOCK_STRIDE(g, heads)
        {
            w.max[(b * p.heads + h + g) * w.splits + split] = sh.max[g];
            w.sum[(b * p.heads + h + g) * w.splits + split] = sh.sum[g];
        }
    }
}

/* Combines the splits of each head in order. Every thread computes the same factors. A
 * split without visible keys has maximum -inf and is left out. */
template <typename T>
static __global__ void __launch_bounds__(DECODE_THREADS)
    attention_combine(struct attention p, struct decode_task w, T *out, float *lse)
{
    ROW_STRIDE(r, p.batch * p.heads)
    {
        /* r = b heads + h */
        const float *max = w.max + r * w.splits, *sum = w.sum + r * w.splits;
        float most = -INFINITY, all = 0.0f, inverse;

        for (int64_t s = 0; s < w.splits; s++)
            most = max[s] > most ? max[s] : most;
        for (int64_t s = 0; s < w.splits; s++)
            if (max[s] != -INFINITY)
                all += sum[s] * maths_exp(max[s] - most);
        /* a query that sees no key: output 0, lse infinity */
        inverse = all == 0.0f ? 0.0f : 1.0f / all;
        BLOCK_STRIDE(c, p.head_width)
        {
            float value = 0.0f;

            for (int64_t s = 0; s < w.splits; s++)
                if (max[s] != -INFINITY)
                    value = fmaf(w.out[(r * w.splits + s) * p.head_width + c],
                                 maths_exp(max[s] - most), value);
            store_float(out, r * p.head_width + c, value * inverse);
        }
        if (threadIdx.x == 0)
            /* in double: max and log(sum) may differ by orders of magnitude */
            lse[r] = all > 0.0f ? (float)((double)most + log((double)all)) : INFINITY;
    }
}

template <typename T, int HEADS, int V>
static void launch_split(struct cuda_state *s, const struct attention &a,
                         struct decode_task w)
{
    size_t bytes;

    /* as many threads per column as leave each one a turn's keys */
    w.packs = (int)a.head_width / V;
    w.lines = (int)attn_clamp(DECODE_THREADS / w.packs, 1, DECODE_KEYS / DECODE_ROWS);
    bytes = (size_t)(HEADS * a.head_width * (1 + w.lines)) * sizeof(float);
    /* above 48 KiB a kernel must ask for shared memory */
    if (bytes + sizeof(struct decode_shared<HEADS>) > 48 << 10 &&
        !ALLOW_SHARED((attention_split<T, HEADS, V>), bytes, s))
        return;
    LAUNCH((attention_split<T, HEADS, V>),
           rows_grid(a.batch * a.kv_heads * w.parts * w.splits), DECODE_THREADS, bytes,
           s, a, w);
}

/* `heads`, the query heads per block, is the template's constant. */
template <typename T, int HEADS>
static void split_by_heads(struct cuda_state *s, const struct attention &a,
                           const struct decode_task &w, int64_t heads)
{
    if constexpr (HEADS > 1)
        if (heads < HEADS) {
            split_by_heads<T, HEADS - 1>(s, a, w, heads);
            return;
        }
    /* rows of packs; q is read once, by element */
    if (a.head_width % 8 == 0 &&
        attn_aligned(a.k.data, a.k.sample, a.k.row, a.k.head) &&
        attn_aligned(a.v.data, a.v.sample, a.v.row, a.v.head))
        launch_split<T, HEADS, pack_size<T>>(s, a, w);
    else
        launch_split<T, HEADS, 1>(s, a, w);
}

template <typename T>
static void decode(struct cuda_state *s, const struct attention *p,
                   const struct decode_task *w, T *out, float *lse)
{
    struct attention a = *p;
    struct decode_task task = *w;

    split_by_heads<T, DECODE_HEADS>(s, a, task, w->heads);
    LAUNCH(attention_combine<T>, rows_grid(a.batch * a.heads), DECODE_THREADS, 0, s, a,
           task, out, lse);
}

/* No more splits than passes; the scratch was sized for cuda_attention_splits, the
 * most. */
void attn_decode(const struct backend *be, const struct attention *p, void *out,
                 float *lse, float *scratch)
{
    int64_t rows = p->batch * p->heads, group = p->heads / p->kv_heads;
    int64_t blocks = (p->keys + DECODE_KEYS - 1) / DECODE_KEYS;
    struct decode_task w;

    /* scratch: out, then max, then sum; the layout of cuda_attention_bytes */
    w.splits = attn_clamp(cuda_attention_splits(p), 1, blocks > 0 ? blocks : 1);
    w.step = (blocks + w.splits - 1) / w.splits * DECODE_KEYS;
    /* parts of equal size: 12 heads are 6 and 6 */
    w.parts = (group + DECODE_HEADS - 1) / DECODE_HEADS;
    w.heads = (group + w.parts - 1) / w.parts;
    w.out = scratch;
    w.max = w.out + rows * w.splits * p->head_width;
    w.sum = w.max + rows * w.splits;
    BY_TYPE(p->type, T, decode(cuda_state_of(be), p, &w, (T *)out, lse));
}

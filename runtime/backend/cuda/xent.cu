/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy over rows of float32 logits on a CUDA device: one block per
 * row, which reads it once for maximum and sum together. Rows that start at 16 bytes,
 * as those of the head do, are read and written in packs; others, which a program's own
 * logits may have, element by element.
 */
#include "backend/cuda/vector.h"

enum {
    XENT_BLOCK = 512,
    FORWARD_PACK = 4,
    FORWARD_ELEMS = 16, /* in flight per thread */
    /* 16 bytes of bfloat16 */
    BACKWARD_PACK = 8,
    BACKWARD_ELEMS = 16,
    MEAN_BLOCK = 1024
};

/* Does the target of a row count in the loss? */
static __device__ inline bool counts(const struct xent &o, int32_t target)
{
    return target >= 0 && target != o.ignore;
}

/* Do all rows start at 16 bytes? */
static bool rows_packed(const float *logits, int64_t ld)
{
    return on_16(logits) && ld % FORWARD_PACK == 0;
}

/* ---- forward --------------------------------------------------------------------- */

/* Over part of a row: the maximum, the sum of exp(x - max), and the plain sum of x,
 * which label smoothing needs. */
struct partial {
    float max, sum, plain;
};

/* Adds V elements; rescales the sum if the maximum grows. */
template <int V> static __device__ inline void take(struct partial *p, const float *x)
{
    /* online softmax: one read of the row serves the maximum and the sum */
    float top = x[0];

    for (int i = 1; i < V; i++)
        top = x[i] > top ? x[i] : top;
    if (top > p->max) {
        p->sum = p->sum * maths_exp(p->max - top);
        p->max = top;
    }
    for (int i = 0; i < V; i++) {
        p->sum += maths_exp(x[i] - p->max);
        p->plain += x[i];
    }
}

/* This thread's part of a row, in packs of V: groups of packs, single packs, a tail. */
template <int V>
static __device__ inline struct partial take_row(const float *x, int64_t n)
{
    enum { PACKS = FORWARD_ELEMS / V };
    const int64_t step = XENT_BLOCK * V, tail = n / V * V, me = threadIdx.x;
    /* the lowest finite number, not -inf: inf - inf would be NaN */
    struct partial p = { -3.402823466e38f, 0.0f, 0.0f };
    int64_t at = V * me;

    for (; at + (PACKS - 1) * step < tail; at += PACKS * step) {
        /* all loads before the first use: one alone would wait for memory each time */
        float v[FORWARD_ELEMS];

        for (int k = 0; k < PACKS; k++)
            load<V>(v + k * V, x + at + k * step);
        take<FORWARD_ELEMS>(&p, v);
    }
    for (; at < tail; at += step) {
        float v[V];

        load<V>(v, x + at);
        take<V>(&p, v);
    }
    if (tail + me < n)
        take<1>(&p, x + tail + me);
    return p;
}

/* lse, loss [rows] of logits [rows, vocab]: a block per row. */
template <int V>
static __global__ void __launch_bounds__(XENT_BLOCK)
    xent_kernel(struct xent o, float *lse, float *loss, const float *logits,
                const int32_t *targets, int64_t rows, int64_t vocab, int64_t ld,
                struct cuda_fault *fault, uint32_t mark)
{
    __shared__ float room[WARP];

    ROW_STRIDE(r, rows)
    {
        const float *x = logits + r * ld;
        const struct partial own = take_row<V>(x, vocab);
        /* each thread's sum refers to its own maximum; bring all to the row's */
        const float max = block_max(own.max, room);
        const float sum = block_sum(own.sum * maths_exp(own.max - max), room);
        const float plain = o.smoothing > 0.0f ? block_sum(own.plain, room) : 0.0f;
        const int32_t target = targets[r];
        const bool bad = target >= vocab && counts(o, target);

        if (threadIdx.x != 0)
            continue;
        lse[r] = max + logf(sum);
        loss[r] = 0.0f;
        /* the CPU refuses before it writes; here the loss of the row is 0 and sync
         * tells */
        if (bad)
            note_bad_row(&fault->target, o.first + r, mark);
        else if (counts(o, target)) {
            loss[r] = lse[r] - x[target];
            if (o.smoothing > 0.0f)
                loss[r] += o.smoothing * (x[target] - plain / (float)vocab);
        }
    }
}

int64_t cuda_xent(const struct backend *be, const struct xent *o, float *lse,
                  float *loss, const float *logits, const int32_t *targets,
                  int64_t rows, int64_t vocab, int64_t ld)
{
    struct cuda_state *s = cuda_state_of(be);
    const uint32_t mark = cuda_mark_ids(s, vocab, o->time);

    if (rows_packed(logits, ld))
        LAUNCH(xent_kernel<FORWARD_PACK>, rows_grid(rows), XENT_BLOCK, 0, s, *o, lse,
               loss, logits, targets, rows, vocab, ld, s->fault, mark);
    else
        LAUNCH(xent_kernel<1>, rows_grid(rows), XENT_BLOCK, 0, s, *o, lse, loss, logits,
               targets, rows, vocab, ld, s->fault, mark);
    return -1;
}

/* mean[0], count[0] of loss [rows], by one block: thread t adds rows t, t + 1024, ...
 */
static __global__ void __launch_bounds__(MEAN_BLOCK)
    xent_mean_kernel(struct xent o, float *mean, float *count, const float *loss,
                     const int32_t *targets, int64_t rows)
{
    __shared__ double room[WARP];
    double sum = 0.0, n = 0.0;

    BLOCK_STRIDE(r, rows)
    {
        /* in double: a mean over 10^5 rows keeps its digits */
        sum += loss[r];
        n += counts(o, targets[r]) ? 1.0 : 0.0;
    }
    sum = block_sum(sum, room);
    n = block_sum(n, room);
    if (threadIdx.x == 0) {
        count[0] = (float)n;
        mean[0] = n > 0.0 ? (float)(sum / n) : 0.0f;
    }
}

void cuda_xent_mean(const struct backend *be, const struct xent *o, float *mean,
                    float *count, const float *loss, const int32_t *targets,
                    int64_t rows)
{
    LAUNCH(xent_mean_kernel, 1, MEAN_BLOCK, 0, cuda_state_of(be), *o, mean, count, loss,
           targets, rows);
}

/* ---- backward -------------------------------------------------------------------- */

/* What the gradient of a row needs. */
struct xent_row {
    float lse, scale, spread, own; /* own: subtracted at the target */
    int64_t target;                /* -1: the row does not count */
};

/* d(mean)/d(logit) of element `at`, as on the CPU. */
static __device__ inline float gradient(const struct xent_row &k, float x, int64_t at)
{
    const float g = maths_exp(x - k.lse) * k.scale - k.spread;

    return at == k.target ? g - k.own : g;
}

/* Where element i of a thread's BACKWARD_ELEMS lies in a piece of a row: in packs of V,
 * so that a warp reads and writes adjacent memory. */
template <int V> static __device__ inline int64_t place(int i)
{
    return (int64_t)(i / V * XENT_BLOCK + (int)threadIdx.x) * V + i % V;
}

/* Loads this thread's elements of the piece that begins at `begin`; zeros after the
 * row. */
template <int V>
static __device__ inline void load_piece(float *v, const float *x, int64_t begin,
                                         int64_t n)
{
    for (int k = 0; k < BACKWARD_ELEMS; k += V) {
        const int64_t at = begin + place<V>(k);

        if (at + V <= n)
            load<V>(v + k, x + at);
        else
            for (int i = 0; i < V; i++)
                v[k + i] = at + i < n ? x[at + i] : 0.0f;
    }
}

/* Writes the gradients of the piece, rounded to T. */
template <int V, typename T>
static __device__ inline void put_piece(T *to, float *v, int64_t begin, int64_t n,
                                        const struct xent_row &row)
{
    for (int k = 0; k < BACKWARD_ELEMS; k += V) {
        const int64_t at = begin + place<V>(k);

        for (int i = 0; i < V; i++)
            v[k + i] = gradient(row, v[k + i], at + i);
        if (at + V <= n)
            store<V>(to + at, v + k);
        else
            for (int i = 0; at + i < n; i++)
                store_float(to, at + i, v[k + i]);
    }
}

/* The row of a target that does not count has no gradient. */
template <int V, typename T> static __device__ inline void zero_row(T *x, int64_t n)
{
    const int64_t tail = n / V * V, me = threadIdx.x;
    const float zeros[V] = {};

    for (int64_t at = V * me; at < tail; at += XENT_BLOCK * V)
        store<V>(x + at, zeros);
    if (tail + me < n)
        store_float(x, tail + me, 0.0f);
}

/* In place, float32 to T. The next piece is read before this one is written, which
 * keeps loads in flight. */
template <int V, typename T>
static __device__ inline void grad_row(float *x, int64_t n, const struct xent_row &row)
{
    const int64_t piece = BACKWARD_ELEMS * XENT_BLOCK;
    T *const to = reinterpret_cast<T *>(x);
    float v[BACKWARD_ELEMS], next[BACKWARD_ELEMS];

    load_piece<V>(v, x, 0, n);
    for (int64_t begin = 0; begin < n; begin += piece) {
        load_piece<V>(next, x, begin + piece, n);
        /* Narrower results land on what other threads have to read: nobody writes
         * before all have read. At 2 bytes per element writing never overtakes reading
         * at 4, piece by piece. */
        if (sizeof(T) < sizeof(float))
            __syncthreads();
        put_piece<V>(to, v, begin, n, row);
        for (int i = 0; i < BACKWARD_ELEMS; i++)
            v[i] = next[i];
    }
}

/* logits [rows, vocab] in place; each row of T starts where its float32 row did. */
template <int V, typename T>
static __global__ void __launch_bounds__(XENT_BLOCK)
    xent_grad_kernel(struct xent o, float *logits, const float *lse, const float *count,
                     const float *dmean, const int32_t *targets, int64_t rows,
                     int64_t vocab, int64_t ld)
{
    const float scale = count[0] > 0.0f ? dmean[0] / count[0] : 0.0f;

    ROW_STRIDE(r, rows)
    {
        /* d(mean)/d(x_i) = scale (softmax_i - (1 - s) [i is the target] - s / vocab) */
        const struct xent_row k = { lse[r], scale, scale * o.smoothing / (float)vocab,
                                    scale * (1.0f - o.smoothing), targets[r] };
        float *x = logits + r * ld;

        if (counts(o, targets[r]))
            grad_row<V, T>(x, vocab, k);
        else
            zero_row<V>(reinterpret_cast<T *>(x), vocab);
        if (sizeof(T) == sizeof(float))
            for (int64_t at = vocab + threadIdx.x; at < ld; at += XENT_BLOCK)
                x[at] = 0.0f;
    }
}

void cuda_xent_grad(const struct backend *be, const struct xent *o, float *logits,
                    accel_dtype_t type, const float *lse, const float *count,
                    const float *dmean, const int32_t *targets, int64_t rows,
                    int64_t vocab, int64_t ld)
{
    struct cuda_state *s = cuda_state_of(be);

    if (rows_packed(logits, ld))
        BY_TYPE(type, T,
                LAUNCH((xent_grad_kernel<BACKWARD_PACK, T>), rows_grid(rows),
                       XENT_BLOCK, 0, s, *o, logits, lse, count, dmean, targets, rows,
                       vocab, ld));
    else
        BY_TYPE(type, T,
                LAUNCH((xent_grad_kernel<1, T>), rows_grid(rows), XENT_BLOCK, 0, s, *o,
                       logits, lse, count, dmean, targets, rows, vocab, ld));
}

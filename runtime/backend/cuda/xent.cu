/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy over rows of float32 logits on a CUDA device: one block per
 * row, which reads it once for maximum and sum together. Rows start at any multiple of
 * 4 bytes, so packs start where addresses allow.
 */
#include "backend/cuda/vector.h"

enum {
    XENT_BLOCK = 512,
    XENT_PACK = 4,
    XENT_STEP = XENT_BLOCK * XENT_PACK,
    FORWARD_PACKS = 4, /* packs in flight per thread */
    BACKWARD_PACKS = 2,
    MEAN_BLOCK = 1024
};

/* Does the target of a row count in the loss? */
static __device__ inline bool counts(const struct xent &o, int32_t target)
{
    return target >= 0 && target != o.ignore;
}

/* Elements before the first 16-byte boundary. */
static __device__ inline int64_t lead_of(const float *x, int64_t n)
{
    const int64_t lead = (int64_t)((16 - (uintptr_t)x % 16) / 4 % 4);

    return lead < n ? lead : n;
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

/* This thread's part of a row: an unaligned head, groups of packs, single packs, a
 * tail. */
static __device__ inline struct partial take_row(const float *x, int64_t n)
{
    const int64_t lead = lead_of(x, n);
    const int64_t tail = lead + (n - lead) / XENT_PACK * XENT_PACK;
    const int64_t me = threadIdx.x;
    /* the lowest finite number, not -inf: inf - inf would be NaN */
    struct partial p = { -3.402823466e38f, 0.0f, 0.0f };

    int64_t at = lead + XENT_PACK * me;

    if (me < lead)
        take<1>(&p, x + me);
    for (; at + (FORWARD_PACKS - 1) * XENT_STEP < tail;
         at += FORWARD_PACKS * XENT_STEP) {
        /* four loads before the first use: one alone would wait for memory each time */
        float v[FORWARD_PACKS * XENT_PACK];

        for (int k = 0; k < FORWARD_PACKS; k++)
            load<XENT_PACK>(v + k * XENT_PACK, x + at + k * XENT_STEP);
        take<FORWARD_PACKS * XENT_PACK>(&p, v);
    }
    for (; at < tail; at += XENT_STEP) {
        float v[XENT_PACK];

        load<XENT_PACK>(v, x + at);
        take<XENT_PACK>(&p, v);
    }
    if (tail + me < n)
        take<1>(&p, x + tail + me);
    return p;
}

/* lse, loss [rows] of logits [rows, vocab]: a block per row. */
static __global__ void __launch_bounds__(XENT_BLOCK)
    xent_kernel(struct xent o, float *lse, float *loss, const float *logits,
                const int32_t *targets, int64_t rows, int64_t vocab,
                struct cuda_fault *fault, int mark)
{
    __shared__ float room[WARP];

    ROW_STRIDE(r, rows)
    {
        const float *x = logits + r * vocab;
        const struct partial own = take_row(x, vocab);
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
            note_bad_row(&fault->target, r, vocab, mark);
        else if (counts(o, target)) {
            loss[r] = lse[r] - x[target];
            if (o.smoothing > 0.0f)
                loss[r] += o.smoothing * (x[target] - plain / (float)vocab);
        }
    }
}

int64_t cuda_xent(const struct backend *be, const struct xent *o, float *lse,
                  float *loss, const float *logits, const int32_t *targets,
                  int64_t rows, int64_t vocab)
{
    struct cuda_state *s = cuda_state_of(be);

    LAUNCH(xent_kernel, rows_grid(rows), XENT_BLOCK, 0, s, *o, lse, loss, logits,
           targets, rows, vocab, s->fault, cuda_mark_now(s));
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

/* The row of a target that does not count has no gradient. */
static __device__ inline void zero_row(float *x, int64_t n)
{
    const int64_t lead = lead_of(x, n);
    const int64_t tail = lead + (n - lead) / XENT_PACK * XENT_PACK, me = threadIdx.x;
    const float zeros[XENT_PACK] = { 0 };

    if (me < lead)
        x[me] = 0.0f;
    for (int64_t at = lead + XENT_PACK * me; at < tail; at += XENT_STEP)
        store<XENT_PACK>(x + at, zeros);
    if (tail + me < n)
        x[tail + me] = 0.0f;
}

/* In place, each element by the thread that read it. */
static __device__ inline void float_row(float *x, int64_t n, const struct xent_row &k)
{
    const int64_t lead = lead_of(x, n);
    const int64_t tail = lead + (n - lead) / XENT_PACK * XENT_PACK, me = threadIdx.x;

    if (me < lead)
        x[me] = gradient(k, x[me], me);
#pragma unroll 2
    for (int64_t at = lead + XENT_PACK * me; at < tail; at += XENT_STEP) {
        float v[XENT_PACK];

        load<XENT_PACK>(v, x + at);
        for (int i = 0; i < XENT_PACK; i++)
            v[i] = gradient(k, v[i], at + i);
        store<XENT_PACK>(x + at, v);
    }
    if (tail + me < n)
        x[tail + me] = gradient(k, x[tail + me], tail + me);
}

/* Loads packs of x from `at` on, zeros outside the row. Packs lie at multiples of 16
 * bytes; `at` may be up to 3 before the row. */
static __device__ inline void load_piece(float (*v)[XENT_PACK], const float *x,
                                         int64_t at, int64_t n)
{
    for (int k = 0; k < BACKWARD_PACKS; k++, at += XENT_STEP)
        if (at >= 0 && at + XENT_PACK <= n)
            load<XENT_PACK>(v[k], x + at);
        else
            for (int i = 0; i < XENT_PACK; i++)
                v[k][i] = at + i >= 0 && at + i < n ? x[at + i] : 0.0f;
}

/* Writes the gradients as bfloat16 and moves the next piece up. */
static __device__ inline void put_piece(bf16_t *to, float (*v)[XENT_PACK],
                                        float (*next)[XENT_PACK], int64_t at, int64_t n,
                                        const struct xent_row &row)
{
    for (int k = 0; k < BACKWARD_PACKS; k++, at += XENT_STEP)
        for (int i = 0; i < XENT_PACK; i++) {
            if (at + i >= 0 && at + i < n)
                to[at + i] = f32_to_bf16(gradient(row, v[k][i], at + i));
            v[k][i] = next[k][i];
        }
}

/* In place: what a thread writes lands on what others have to read. So the next piece
 * is read before this one is written, and no thread writes before all have read. */
static __device__ inline void bf16_row(float *x, int64_t n, const struct xent_row &row)
{
    /* writing at 2 bytes per element never overtakes reading at 4, piece by piece */
    const int64_t piece = BACKWARD_PACKS * XENT_STEP;
    const int64_t lead = lead_of(x, n), first = lead ? lead - XENT_PACK : 0;
    bf16_t *const to = reinterpret_cast<bf16_t *>(x);
    int64_t at = first + XENT_PACK * (int64_t)threadIdx.x;
    float v[BACKWARD_PACKS][XENT_PACK], next[BACKWARD_PACKS][XENT_PACK];

    load_piece(v, x, at, n);
    for (int64_t begin = first; begin < n; begin += piece, at += piece) {
        load_piece(next, x, at + piece, n);
        __syncthreads();
        put_piece(to, v, next, at, n, row);
    }
}

/* logits [rows, vocab] in place; as bfloat16 each row keeps the distance of its float32
 * row. */
static __global__ void __launch_bounds__(XENT_BLOCK)
    xent_grad_kernel(struct xent o, float *logits, bool bf16, const float *lse,
                     const float *count, const float *dmean, const int32_t *targets,
                     int64_t rows, int64_t vocab)
{
    const float scale = count[0] > 0.0f ? dmean[0] / count[0] : 0.0f;

    ROW_STRIDE(r, rows)
    {
        /* d(mean)/d(x_i) = scale (softmax_i - (1 - s) [i is the target] - s / vocab) */
        const struct xent_row k = { lse[r], scale, scale * o.smoothing / (float)vocab,
                                    scale * (1.0f - o.smoothing), targets[r] };
        float *x = logits + r * vocab;

        if (!counts(o, targets[r]))
            zero_row(x, vocab);
        else if (bf16)
            bf16_row(x, vocab, k);
        else
            float_row(x, vocab, k);
    }
}

void cuda_xent_grad(const struct backend *be, const struct xent *o, float *logits,
                    accel_dtype_t type, const float *lse, const float *count,
                    const float *dmean, const int32_t *targets, int64_t rows,
                    int64_t vocab)
{
    LAUNCH(xent_grad_kernel, rows_grid(rows), XENT_BLOCK, 0, cuda_state_of(be), *o,
           logits, type == ACCEL_BF16, lse, count, dmean, targets, rows, vocab);
}

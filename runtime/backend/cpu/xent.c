/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax cross-entropy on the CPU over rows of float32 logits: rows spread over
 * threads, sums within a row over 16 fixed lanes, the mean over rows in order and in
 * double.
 */
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

VM_INLINE float row_max(const float *x, int64_t n)
{
    float max = x[0];

    /* a maximum is the same in any order */
#pragma omp simd reduction(max : max)
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

ACCEL_MULTIVERSION
static void row_max_sum(const float *x, int64_t n, float *max_out, float *sum_out)
{
    float max = row_max(x, n), sum;

    /* exp(x - max) <= 1: no overflow */
    VM_SUM(sum, n, maths_exp(x[i] - max));
    *max_out = max;
    *sum_out = sum;
}

/* Of the logits, for label smoothing. */
ACCEL_MULTIVERSION
static float row_mean(const float *x, int64_t n)
{
    float sum;

    VM_SUM(sum, n, x[i]);
    return sum / (float)n;
}

/* Does the target of a row count in the loss? */
static bool counts(const struct xent *o, int32_t target)
{
    return target >= 0 && target != o->ignore;
}

/* Targets are checked before anything is written. With smoothing s the loss is lse - (1
 * - s) x[target] - s mean(x). */
int64_t cpu_xent(const struct backend *be, const struct xent *o, float *lse,
                 float *loss, const float *logits, const int32_t *targets, int64_t rows,
                 int64_t vocab, int64_t ld)
{
    for (int64_t r = 0; r < rows; r++)
        if (targets[r] >= vocab && counts(o, targets[r]))
            return r;
#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(static, CPU_ROW_BLOCK) if (rows * vocab > CPU_ALONE_ELEMS / 4)
    for (int64_t r = 0; r < rows; r++) {
        const float *x = logits + r * ld;
        float max, sum;

        row_max_sum(x, vocab, &max, &sum);
        lse[r] = max + logf(sum);
        loss[r] = counts(o, targets[r]) ? lse[r] - x[targets[r]] : 0.0f;
        if (o->smoothing > 0.0f && counts(o, targets[r]))
            loss[r] += o->smoothing * (x[targets[r]] - row_mean(x, vocab));
    }
    return -1;
}

void cpu_xent_mean(const struct backend *be, const struct xent *o, float *mean,
                   float *count, const float *loss, const int32_t *targets,
                   int64_t rows)
{
    double sum = 0.0;
    int64_t n = 0;

    (void)be;
    for (int64_t r = 0; r < rows; r++) {
        /* rows that do not count have loss 0 */
        sum += loss[r];
        n += counts(o, targets[r]);
    }
    count[0] = (float)n;
    mean[0] = n ? (float)(sum / (double)n) : 0.0f;
}

/* The gradient of all classes but the target's own term, which the caller subtracts. */
ACCEL_MULTIVERSION
static void grad_row(float *x, int64_t n, float lse, float scale, float spread)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] = maths_exp(x[i] - lse) * scale - spread;
}

/* Narrows n numbers in place, through a block buffer: the results land where the next
 * block has still to be read. */
static void narrow_row(float *x, accel_dtype_t type, int64_t n)
{
    float block[1024];

    for (int64_t i = 0; i < n; i += 1024) {
        int64_t len = n - i < 1024 ? n - i : 1024;

        memcpy(block, x + i, (size_t)len * sizeof(*block));
        cpu_store_row(vm_to(x, i, type), block, type, len, false);
    }
}

/* In place: nobody needs the logits afterwards. */
void cpu_xent_grad(const struct backend *be, const struct xent *o, float *logits,
                   accel_dtype_t type, const float *lse, const float *count,
                   const float *dmean, const int32_t *targets, int64_t rows,
                   int64_t vocab, int64_t ld)
{
    /* d(mean)/d(x_i) = scale (softmax_i - (1 - s) [i is the target] - s / vocab) */
    float scale = count[0] > 0.0f ? dmean[0] / count[0] : 0.0f;
    float spread = scale * o->smoothing / (float)vocab;

#pragma omp parallel for num_threads(be->threads)                                      \
    schedule(static, CPU_ROW_BLOCK) if (rows * vocab > CPU_ALONE_ELEMS / 4)
    for (int64_t r = 0; r < rows; r++) {
        float *x = logits + r * ld;

        if (type == ACCEL_F32)
            memset(x + vocab, 0, (size_t)(ld - vocab) * sizeof(*x));
        if (!counts(o, targets[r])) {
            memset(x, 0, (size_t)vocab * sizeof(*x));
            continue;
        }
        grad_row(x, vocab, lse[r], scale, spread);
        x[targets[r]] -= scale * (1.0f - o->smoothing);
        if (type != ACCEL_F32)
            narrow_row(x, type, vocab);
    }
}

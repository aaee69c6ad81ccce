/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing and multiplying in plain C, for every processor: the sums are those of the
 * vector instructions, since fmaf is exact everywhere, if slow where it is a call.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/gemm/panels.h"

enum { ROWS = 4, LANES = 16 };

/* One fused multiply-add in each lane: sum += a b, rounded once. */
#ifdef __FP_FAST_FMAF
static inline void multiply_add(float sum[LANES], float a, const float *b)
{
    for (int i = 0; i < LANES; i++)
        sum[i] = fmaf(a, b[i], sum[i]);
}
#else
/* Where the processor has no such instruction fmaf is a slow call. In double the
 * product is exact, and so is the error of the sum. A sum that is not exact is made
 * odd, towards its error, so that the rounding to float32 that follows sees on which
 * side of a tie it lies. Infinities have no error that is a number. */
static inline void multiply_add(float sum[LANES], float a, const float *b)
{
#pragma omp simd
    for (int i = 0; i < LANES; i++) {
        double x = (double)a * b[i], y = sum[i], total = x + y;
        double part = total - x, error = (x - (total - part)) + (y - part);
        int64_t bits, inexact, up;

        memcpy(&bits, &total, sizeof(bits));
        inexact = (error < 0.0) | (error > 0.0);
        up = (error > 0.0) == (total > 0.0);
        bits += inexact & ~bits & 1 ? 2 * up - 1 : 0;
        memcpy(&total, &bits, sizeof(total));
        sum[i] = (float)total;
    }
}
#endif

static void multiply_plain(const struct panel_step *s)
{
    for (int64_t r = 0; r < s->rows; r++) {
        float sum[LANES] = { 0 }, *c = s->c + r * s->ldc;

        for (int64_t k = 0; k < s->k; k++)
            multiply_add(sum, s->a[k * s->rows + r], s->b + k * s->b_step);
        for (int i = 0; i < LANES; i++)
            c[i] = s->add ? c[i] + sum[i] : sum[i];
    }
}

static void stream_plain(const struct panel_stream *s)
{
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t j = 0; j < s->n; j += LANES) {
            float sum[LANES] = { 0 }, *c = s->c + r * s->ldc + j;

            if (s->chain == CHAIN_GO_ON)
                memcpy(sum, c, sizeof(sum));
            for (int64_t k = 0; k < s->k; k++)
                multiply_add(sum, s->a[k * s->a_step + r],
                             (const float *)s->b + k * s->b_step + j);
            for (int i = 0; i < LANES; i++)
                c[i] = s->chain == CHAIN_ADD ? c[i] + sum[i] : sum[i];
        }
}

static void turn_plain(float *to, const struct panel_source *from, int64_t n, int64_t k,
                       int64_t width)
{
    const float *at = from->at;

    for (int64_t p = 0; p < k; p++, to += width)
        for (int64_t i = 0; i < width; i++)
            to[i] = i < n ? at[i * from->ld + p] : 0.0f;
}

static void copy_plain(float *to, const struct panel_source *from, int64_t n, int64_t k,
                       int64_t width)
{
    const float *at = from->at;

    for (int64_t p = 0; p < k; p++, to += width)
        for (int64_t i = 0; i < width; i++)
            to[i] = i < n ? at[p * from->ld + i] : 0.0f;
}

const struct panel_kernel panels_plain = { .rows = ROWS,
                                           .lanes = LANES,
                                           .turn = turn_plain,
                                           .copy = copy_plain,
                                           .multiply = multiply_plain,
                                           .stream = stream_plain };

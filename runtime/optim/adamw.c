/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW and the sum of squares over flat float32 ranges. In: parameters, moments,
 * gradients, one step's constants. Out: the same arrays, updated. Never allocates.
 * Every element is computed alone and every operation is correctly rounded, so neither the
 * split over threads nor the vector width can change a bit.
 * `omp simd`: -O2 alone vectorises no loop whose trip count is unknown.
 */
#include "optim/optim.h"

#include <math.h>

#include "common/bf16.h"

#define BLOCK 16384 /* elements one thread takes at a time: 4 arrays = 256 KiB, in L2 */

accel_adamw_t optim_adamw_defaults(accel_adamw_t o)
{
    if (o.lr == 0)
        o.lr = 3e-4f;
    if (o.beta1 == 0)
        o.beta1 = 0.9f;
    if (o.beta2 == 0)
        o.beta2 = 0.95f;
    if (o.eps == 0)
        o.eps = 1e-8f;
    return o;
}

struct adamw_step adamw_step_of(const accel_adamw_t *options, float lr, int64_t t,
                                float grad_scale)
{
    accel_adamw_t o = optim_adamw_defaults(*options);
    double b1 = o.beta1, b2 = o.beta2;

    return (struct adamw_step){
        .beta1 = o.beta1,
        .beta2 = o.beta2,
        .one_minus_beta1 = (float)(1.0 - b1),
        .one_minus_beta2 = (float)(1.0 - b2),
        .rate = (float)(lr / (1.0 - pow(b1, (double)t))),
        .root_scale = (float)(1.0 / sqrt(1.0 - pow(b2, (double)t))),
        .eps = o.eps,
        .decay = (float)(1.0 - (double)lr * o.weight_decay),
        .grad_scale = grad_scale,
    };
}

ACCEL_MULTIVERSION
static void adamw_block(float *restrict p, float *restrict m, float *restrict v,
                        const float *restrict g, size_t n, float decay,
                        const struct adamw_step *restrict step)
{
    const struct adamw_step k = *step;

#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float gi = g[i] * k.grad_scale;
        float mi = m[i] * k.beta1 + gi * k.one_minus_beta1;
        float vi = v[i] * k.beta2 + gi * gi * k.one_minus_beta2;

        m[i] = mi;
        v[i] = vi;
        p[i] = p[i] * decay - k.rate * mi / (sqrtf(vi) * k.root_scale + k.eps);
    }
}

void adamw_update(float *p, float *m, float *v, const float *g, size_t n, bool decayed,
                  const struct adamw_step *k)
{
    const float decay = decayed ? k->decay : 1.0f;
    const size_t blocks = (n + BLOCK - 1) / BLOCK;

#pragma omp parallel for schedule(static) if (blocks > 1)
    for (size_t b = 0; b < blocks; b++) {
        size_t at = b * BLOCK, len = n - at < BLOCK ? n - at : BLOCK;

        adamw_block(p + at, m + at, v + at, g + at, len, decay, k);
    }
}

#define LANES 8

/* Eight running sums by index mod 8, added pairwise at the end: written out so that the
 * order is the same for every vector width. */
ACCEL_MULTIVERSION
static double sumsq_block(const float *restrict g, size_t n)
{
    double lane[LANES] = { 0 };
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)g[i + l] * (double)g[i + l];
    }
    for (int l = 0; i < n; i++, l++)
        lane[l] += (double)g[i] * (double)g[i];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
           ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

double optim_sumsq(const float *g, size_t n)
{
    enum {
        PARTS = 64
    }; /* parts of the range, each whole blocks; n decides, not threads */
    double part[PARTS] = { 0 }, sum = 0;
    const size_t blocks = (n + BLOCK - 1) / BLOCK;
    const size_t each = (blocks + PARTS - 1) / PARTS;

#pragma omp parallel for schedule(static) if (blocks > 1)
    for (size_t t = 0; t < PARTS; t++) {
        for (size_t b = t * each; b < (t + 1) * each && b < blocks; b++) {
            size_t at = b * BLOCK, len = n - at < BLOCK ? n - at : BLOCK;

            part[t] += sumsq_block(g + at, len);
        }
    }
    for (int t = 0; t < PARTS; t++)
        sum += part[t];
    return sum;
}

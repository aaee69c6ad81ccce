/* SPDX-License-Identifier: Apache-2.0
 *
 * Row kernels of the attention: softmax along lanes, its gradient, counter-based
 * dropout, transposition. In and out: blocks in a thread's own workspace. The order of
 * operations is fixed per lane, so every instruction set gives the same bits.
 */
#include <math.h>

#include "backend/cpu/attention/cpu_attention.h"
#include "backend/cpu/vmath.h"

#define LD ATTN_BLOCK

/* The four words of rng_block(key, stream, index) in numbers/rng.h, written so that
 * lanes vectorize. Both must stay the same generator (Philox 4x32-10). */
VM_INLINE void philox(uint32_t c[4], uint32_t k0, uint32_t k1)
{
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t c1 = c[1], c3 = c[3];

        c[0] = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c[3] = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* Dropout factors of four keys for every lane. The block index of lane q is first + q *
 * step; its four words belong to four consecutive keys. */
ACCEL_MULTIVERSION
static void keep_rows(float *keep, uint64_t seed, uint64_t stream, uint64_t first,
                      uint64_t step, int64_t lanes, uint32_t below, float kept)
{
#pragma omp simd
    for (int64_t q = 0; q < lanes; q++) {
        uint64_t index = first + (uint64_t)q * step;
        uint32_t c[4] = { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                          (uint32_t)(stream >> 32) };

        philox(c, (uint32_t)seed, (uint32_t)(seed >> 32));
        keep[q] = c[0] < below ? 0.0f : kept;
        keep[q + LD] = c[1] < below ? 0.0f : kept;
        keep[q + 2 * LD] = c[2] < below ? 0.0f : kept;
        keep[q + 3 * LD] = c[3] < below ? 0.0f : kept;
    }
}

/* `row` counts over all samples of the run, so the mask does not depend on the rank. */
void attn_keep(const struct attn_pair *t, float *keep)
{
    const struct attention *p = t->p;
    /* the numbering of struct attention: four keys share a block of random words */
    uint64_t quads = ((uint64_t)p->keys + 3) / 4;
    uint64_t row =
        ((uint64_t)(p->first_sample + t->b) * (uint64_t)p->heads + (uint64_t)t->h) *
            (uint64_t)p->queries +
        (uint64_t)t->q0;
    uint32_t below = (uint32_t)((double)p->dropout * 0x1p32);
    float kept = 1.0f / (1.0f - p->dropout);

    for (int64_t k = 0; k < t->keys; k += 4)
        keep_rows(keep + k * LD, p->seed, p->stream,
                  row * quads + (uint64_t)(t->k0 + k) / 4, quads, t->lanes, below,
                  kept);
}

/* Online softmax: the new maximum may exceed the old one; then earlier sums, and by
 * `factor` earlier outputs, shrink accordingly. Three passes over the block, all in
 * L1. */
ACCEL_MULTIVERSION
void attn_softmax(float *s, int64_t keys, int64_t lanes, float *max, float *sum,
                  float *factor)
{
    float next[LD];

    for (int64_t q = 0; q < lanes; q++)
        next[q] = max[q];
    for (int64_t k = 0; k < keys; k++)
#pragma omp simd
        for (int64_t q = 0; q < lanes; q++)
            next[q] = s[k * LD + q] > next[q] ? s[k * LD + q] : next[q];
#pragma omp simd
    for (int64_t q = 0; q < lanes; q++) {
        /* No key seen yet: any finite number will do, and avoids inf - inf. */
        float base = next[q] == -INFINITY ? 0.0f : next[q];
        float f = maths_exp(max[q] - base);

        factor[q] = max[q] == -INFINITY ? 0.0f : f;
        sum[q] *= factor[q];
        max[q] = next[q];
        next[q] = base;
    }
    for (int64_t k = 0; k < keys; k++)
#pragma omp simd
        for (int64_t q = 0; q < lanes; q++) {
            float v = s[k * LD + q], e = maths_exp(v - next[q]);

            /* maths_exp clamps at -87, which is not 0 */
            e = v == -INFINITY ? 0.0f : e;
            sum[q] += e;
            s[k * LD + q] = e;
        }
}

ACCEL_MULTIVERSION
void attn_scale_rows(float *x, int64_t rows, int64_t lanes, const float *factor)
{
    for (int64_t r = 0; r < rows; r++)
#pragma omp simd
        for (int64_t q = 0; q < lanes; q++)
            x[r * LD + q] *= factor[q];
}

/* Recomputes the probabilities from lse. A hidden key gives 0 even where lse is
 * infinite. */
ACCEL_MULTIVERSION
void attn_probabilities(float *s, int64_t keys, int64_t lanes, const float *lse)
{
    for (int64_t k = 0; k < keys; k++)
#pragma omp simd
        for (int64_t q = 0; q < lanes; q++) {
            float v = s[k * LD + q], e = maths_exp(v - lse[q]);

            s[k * LD + q] = v == -INFINITY ? 0.0f : e;
        }
}

ACCEL_MULTIVERSION
void attn_multiply(float *p, const float *keep, int64_t keys, int64_t lanes)
{
    for (int64_t k = 0; k < keys; k++)
#pragma omp simd
        for (int64_t q = 0; q < lanes; q++)
            p[k * LD + q] *= keep[k * LD + q];
}

ACCEL_MULTIVERSION
void attn_score_grad(float *p, float *ds, const float *keep, int64_t keys,
                     int64_t lanes, const float *delta)
{
    for (int64_t k = 0; k < keys; k++) {
        float *pk = p + k * LD, *dk = ds + k * LD;
        const float *keep_k = keep ? keep + k * LD : NULL;

        /* Where nothing is seen, ds was never computed and may hold anything, NaN
         * included: it is replaced, not multiplied. */
        if (keep_k) {
#pragma omp simd
            for (int64_t q = 0; q < lanes; q++) {
                float d = pk[q] * (dk[q] * keep_k[q] - delta[q]);

                dk[q] = pk[q] == 0.0f ? 0.0f : d;
                pk[q] *= keep_k[q];
            }
            continue;
        }
#pragma omp simd
        for (int64_t q = 0; q < lanes; q++) {
            float d = pk[q] * (dk[q] - delta[q]);

            dk[q] = pk[q] == 0.0f ? 0.0f : d;
        }
    }
}

typedef float four __attribute__((vector_size(16)));
typedef int32_t four_int __attribute__((vector_size(16)));

VM_INLINE four row_of(const float *p)
{
    four v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* Picks four of the eight elements of a and b; clang has no __builtin_shuffle. */
VM_INLINE four mix(four a, four b, four_int order)
{
#ifdef __clang__
    four v;

    for (int i = 0; i < 4; i++)
        v[i] = order[i] < 4 ? a[order[i]] : b[order[i] - 4];
    return v;
#else
    return __builtin_shuffle(a, b, order);
#endif
}

/* A 4 x 4 block by two rounds of interleaving. */
VM_INLINE void transpose4(float *dst, int64_t ldd, const float *src, int64_t lds)
{
    const four_int low = { 0, 4, 1, 5 }, high = { 2, 6, 3, 7 };
    const four_int even = { 0, 1, 4, 5 }, odd = { 2, 3, 6, 7 };
    /* rows a, b, c, d; out[0] is a0 b0 c0 d0, and so on */
    four a = row_of(src), b = row_of(src + lds), c = row_of(src + 2 * lds);
    four d = row_of(src + 3 * lds), ab = mix(a, b, low), cd = mix(c, d, low), out[4];

    out[0] = mix(ab, cd, even);
    out[1] = mix(ab, cd, odd);
    ab = mix(a, b, high);
    cd = mix(c, d, high);
    out[2] = mix(ab, cd, even);
    out[3] = mix(ab, cd, odd);
    for (int i = 0; i < 4; i++)
        memcpy(dst + i * ldd, &out[i], sizeof(out[i]));
}

/* 4 x 4 blocks first, the right and lower edge one element at a time. */
void attn_transpose(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t m,
                    int64_t n)
{
    int64_t m4 = m / 4 * 4, n4 = n / 4 * 4;

    for (int64_t j = 0; j < n4; j += 4)
        for (int64_t i = 0; i < m4; i += 4)
            transpose4(dst + j * ldd + i, ldd, src + i * lds + j, lds);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = j < n4 ? m4 : 0; i < m; i++)
            dst[j * ldd + i] = src[i * lds + j];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of one query per sample, and filling the cache that it reads: generation.
 * Reading keys and values is the bottleneck, so they are read once, in their own type,
 * for all query heads that share them.
 */
#include <math.h>
#include <omp.h>

#include "backend/cpu/attention/cpu_attention.h"
#include "backend/cpu/vmath.h"

/* s[j] = q . row of key j. The lanes of VM_SUM fix the order, as everywhere. */
VM_INLINE void scores(float *s, const float *q, const void *k, int64_t row,
                      int64_t keys, int64_t d, const accel_dtype_t t)
{
    for (int64_t j = 0; j < keys; j++) {
        int64_t at = j * row;

        VM_SUM(s[j], d, q[i] * vm_load(k, at + i, t));
    }
}

/* acc += s[j] * row of value j */
VM_INLINE void gather(float *acc, const float *s, const void *v, int64_t row,
                      int64_t keys, int64_t d, const accel_dtype_t t)
{
    for (int64_t j = 0; j < keys; j++) {
        int64_t at = j * row;

#pragma omp simd
        for (int64_t i = 0; i < d; i++)
            acc[i] += s[j] * vm_load(v, at + i, t);
    }
}

/* Fixes the type before the loops, so that each is compiled without the branch. */
ACCEL_MULTIVERSION
static void scores_any(float *s, const float *q, const void *k, int64_t row,
                       int64_t keys, int64_t d, accel_dtype_t type)
{
    VM_BY_TYPE(type, scores, s, q, k, row, keys, d);
}

/* acc = acc * factor + sum of s[j] * value j. */
ACCEL_MULTIVERSION
static void gather_any(float *acc, const float *s, const void *v, int64_t row,
                       int64_t keys, int64_t d, float factor, accel_dtype_t type)
{
    for (int64_t i = 0; i < d; i++)
        acc[i] *= factor;
    VM_BY_TYPE(type, gather, acc, s, v, row, keys, d);
}

/* s -> exp(s - max), updating the running maximum and sum; returns the factor for
 * earlier results. */
ACCEL_MULTIVERSION
static float soften(float *s, int64_t keys, float *max, float *sum)
{
    float next = *max, base, factor, add;

    for (int64_t j = 0; j < keys; j++)
        next = s[j] > next ? s[j] : next;
    /* no key seen yet: any finite number will do, and avoids inf - inf */
    base = next == -INFINITY ? 0.0f : next;
    factor = *max == -INFINITY ? 0.0f : maths_exp(*max - base);
#pragma omp simd
    for (int64_t j = 0; j < keys; j++) {
        float e = maths_exp(s[j] - base);

        s[j] = s[j] == -INFINITY ? 0.0f : e;
    }
    VM_SUM(add, keys, s[i]);
    *sum = *sum * factor + add;
    *max = next;
    return factor;
}

/* Up to ATTN_BLOCK query heads of one key head: m->q holds their queries, m->k their
 * outputs until they are stored. A block of keys stays in cache for all heads. */
static void key_head(const struct attention *p, const struct attn_mem *m, int64_t b,
                     int64_t first, int64_t heads, void *out, float *lse)
{
    int64_t d = p->head_width, dp = attn_padded(d);
    /* grouped heads: `first` is a query head, all of the call share its key head */
    int64_t kv_head = first / (p->heads / p->kv_heads);
    int64_t limit = attn_key_limit(p, b, 1);
    const int32_t *mask = p->mask ? p->mask + b * p->keys : NULL;
    float *s = m->factor;

    for (int64_t h = 0; h < heads; h++) {
        attn_load(p, m->q + h * dp, &p->q, b, first + h, 0, 1, 1, p->scale);
        m->max[h] = -INFINITY;
        m->sum[h] = 0.0f;
    }
    /* outputs start at zero; scores need only one row, for which m->factor is free */
    for (int64_t i = 0; i < heads * dp; i++)
        m->k[i] = 0.0f;
    for (int64_t k0 = 0; k0 < limit; k0 += ATTN_BLOCK) {
        int64_t keys = limit - k0 < ATTN_BLOCK ? limit - k0 : ATTN_BLOCK;
        const void *k = vm_at(
            p->k.data, b * p->k.sample + kv_head * p->k.head + k0 * p->k.row, p->type);
        const void *v = vm_at(
            p->v.data, b * p->v.sample + kv_head * p->v.head + k0 * p->v.row, p->type);

        for (int64_t h = 0; h < heads; h++) {
            float factor;

            /* q was scaled when it was loaded */
            scores_any(s, m->q + h * dp, k, p->k.row, keys, d, p->type);
            for (int64_t j = 0; mask && j < keys; j++)
                s[j] = mask[k0 + j] ? s[j] : -INFINITY;
            factor = soften(s, keys, &m->max[h], &m->sum[h]);
            gather_any(m->k + h * dp, s, v, p->v.row, keys, d, factor, p->type);
        }
    }
    for (int64_t h = 0; h < heads; h++) {
        int64_t at = (b * p->heads + first + h) * d;
        float sum = m->sum[h], inverse = sum == 0.0f ? 0.0f : 1.0f / sum;

        /* [batch, heads, 1 query]; in double, as max and log(sum) may differ by much */
        lse[b * p->heads + first + h] =
            sum > 0.0f ? (float)((double)m->max[h] + log((double)sum)) : INFINITY;
        for (int64_t i = 0; i < d; i++)
            m->k[h * dp + i] *= inverse;
        cpu_store_row(vm_to(out, at, p->type), m->k + h * dp, p->type, d, false);
    }
}

/* Are there enough keys and values for more than one thread? */
static bool reads_much(const struct attention *p)
{
    return p->batch * p->kv_heads * p->keys * p->head_width > CPU_ALONE_ELEMS;
}

void attn_decode(const struct backend *be, const struct attention *p, void *out,
                 float *lse, void *scratch)
{
    size_t floats = attention_thread_floats(p, be->threads, false);
    int64_t group = p->heads / p->kv_heads;
    /* a group of more than 64 query heads is several tasks */
    int64_t parts = (group + ATTN_BLOCK - 1) / ATTN_BLOCK;

#pragma omp parallel num_threads(be->threads) if (reads_much(p))
    {
        struct attn_mem m = attn_mem(
            p, (float *)scratch + floats * (size_t)omp_get_thread_num(), false, false);

#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < p->batch * p->kv_heads * parts; i++) {
            int64_t from = i % parts * ATTN_BLOCK, head = i / parts;
            int64_t heads = group - from < ATTN_BLOCK ? group - from : ATTN_BLOCK;

            key_head(p, &m, head / p->kv_heads, head % p->kv_heads * group + from,
                     heads, out, lse);
        }
    }
}

void cpu_copy_heads(const struct backend *be, const struct heads_out to[2],
                    const struct heads from[2], accel_dtype_t type, int64_t batch,
                    int64_t rows, int64_t count, int64_t width)
{
    size_t bytes = (size_t)width * accel_dtype_bytes(type);

#pragma omp parallel for num_threads(be->threads) if (batch * count * rows * width >   \
                                                      CPU_ALONE_ELEMS / 2)
    for (int64_t i = 0; i < 2 * batch * count; i++) {
        const struct heads_out *o = &to[i % 2];
        const struct heads *f = &from[i % 2];
        int64_t b = i / 2 / count, h = i / 2 % count;
        int64_t dst = b * o->sample + h * o->head, src = b * f->sample + h * f->head;

        for (int64_t r = 0; r < rows; r++)
            /* bits are copied, nothing is rounded */
            memcpy(vm_to(o->data, dst + r * o->row, type),
                   vm_at(f->data, src + r * f->row, type), bytes);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward on the CPU: each thread takes one block of queries of one head over
 * the key blocks that it sees, with a running maximum and sum. Scores exist for 64 x 64
 * at a time. Out: the output and one log-sum-exp per query.
 */
#include <math.h>
#include <omp.h>

#include "backend/cpu/attention/cpu_attention.h"
#include "backend/cpu/vmath.h"

/* Divides by the sums, turns the output back to rows and stores it with lse. A query
 * that saw no key has sum 0: output 0, lse infinity. */
static void attention_finish(const struct attn_pair *t, const struct attn_mem *m,
                             void *out, float *lse)
{
    const struct attention *p = t->p;
    int64_t d = p->head_width, dp = attn_padded(d), cols = p->heads * d;

    for (int64_t q = 0; q < t->rows; q++)
        lse[q] = m->sum[q] > 0.0f ? (float)((double)m->max[q] + log((double)m->sum[q]))
                                  : INFINITY;
    for (int64_t q = 0; q < t->lanes; q++)
        m->factor[q] = m->sum[q] == 0.0f ? 0.0f : 1.0f / m->sum[q];
    attn_scale_rows(m->acc, d, t->lanes, m->factor);
    attn_transpose(m->q, dp, m->acc, ATTN_BLOCK, d, t->rows);
    for (int64_t q = 0; q < t->rows; q++) {
        /* out is [batch, queries, heads * width] */
        int64_t at = (t->b * p->queries + t->q0 + q) * cols + t->h * d;

        cpu_store_row(vm_to(out, at, p->type), m->q + q * dp, p->type, d, false);
    }
}

/* One block of queries of one head, from loading to storing. */
static void forward_block(const struct attention *p, const struct attn_mem *m,
                          int64_t b, int64_t h, int64_t q0, void *out, float *lse)
{
    struct attn_pair t = attn_pair(p, b, h, q0, 0);
    int64_t d = p->head_width, dp = attn_padded(d);
    int64_t kv_head = h / (p->heads / p->kv_heads);
    int64_t limit = attn_key_limit(p, b, q0 + t.rows);

    /* scaled once here instead of every score */
    attn_load(p, m->q, &p->q, b, h, q0, t.rows, t.lanes, p->scale);
    attn_transpose(m->qt, ATTN_BLOCK, m->q, dp, t.lanes, d);
    for (int64_t i = 0; i < t.lanes; i++) {
        m->max[i] = -INFINITY;
        m->sum[i] = 0.0f;
    }
    for (int64_t i = 0; i < d * ATTN_BLOCK; i++)
        m->acc[i] = 0.0f;
    for (int64_t k0 = 0; k0 < limit; k0 += ATTN_BLOCK) {
        t = attn_pair(p, b, h, q0, k0);
        attn_load(p, m->k, &p->k, b, kv_head, k0, t.keys, t.keys, 1.0f);
        attn_load(p, m->v, &p->v, b, kv_head, k0, t.keys, t.keys, 1.0f);
        attn_scores(&t, m);
        /* online softmax (Milakov and Gimelshein 2018), block by block */
        attn_softmax(m->s, t.keys, t.lanes, m->max, m->sum, m->factor);
        /* what was summed so far shrinks where the maximum has grown; the first block
         * has no past */
        if (k0 > 0)
            attn_scale_rows(m->acc, d, t.lanes, m->factor);
        /* after the sum: dropped keys still count in the softmax */
        if (p->dropout > 0) {
            attn_keep(&t, m->keep);
            attn_multiply(m->s, m->keep, t.keys, t.lanes);
        }
        attn_gather(&t, m, m->v, m->s, m->acc);
    }
    attention_finish(&t, m, out, lse + (b * p->heads + h) * p->queries + q0);
}

void cpu_attention(const struct backend *be, const struct attention *p, void *out,
                   float *lse, void *scratch)
{
    int64_t blocks = (p->queries + ATTN_BLOCK - 1) / ATTN_BLOCK;
    int64_t tasks = p->batch * p->heads * blocks;
    size_t floats = attention_thread_floats(p, be->threads, false);

    if (p->queries == 1 && p->dropout == 0.0f) {
        attn_decode(be, p, out, lse, scratch);
        return;
    }
#pragma omp parallel num_threads(be->threads) if (attn_is_large(p))
    {
        struct attn_mem m = attn_mem(
            p, (float *)scratch + floats * (size_t)omp_get_thread_num(), false, false);

        /* Later blocks of a causal attention have more work, so they start first. */
#pragma omp for schedule(dynamic)
        for (int64_t i = tasks - 1; i >= 0; i--) {
            int64_t block = i / (p->batch * p->heads), bh = i % (p->batch * p->heads);

            forward_block(p, &m, bh / p->heads, bh % p->heads, block * ATTN_BLOCK, out,
                          lse);
        }
    }
}

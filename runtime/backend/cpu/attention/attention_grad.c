/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention backward on the CPU. Probabilities are recomputed, block by block, from the
 * log-sum-exp of the forward. Sums run over key blocks (dq), and over heads and then
 * query blocks (dk, dv), in this order whichever thread computes them.
 */
#include <omp.h>
#include <string.h>

#include "backend/cpu/attention/cpu_attention.h"
#include "backend/cpu/vmath.h"

/* What every function below needs: the call, its gradients, this thread's workspace. */
struct grad_task {
    const struct attention *p;
    const struct attention_grads *g;
    const struct attn_mem *m;
};

/* Which gradients a pass over a pair of blocks makes. */
enum { WANT_Q = 1, WANT_KV = 2 };

/* Rounds `rows` rows of a [..][dp] buffer into one head of a gradient. */
static void store(const struct attention *p, const struct heads_out *to, int64_t b,
                  int64_t h, int64_t first, int64_t rows, const float *from)
{
    int64_t at = b * to->sample + h * to->head + first * to->row;

    for (int64_t r = 0; r < rows; r++, at += to->row)
        cpu_store_row(vm_to(to->data, at, p->type),
                      from + r * attn_padded(p->head_width), p->type, p->head_width,
                      to->add);
}

/* a . b, in the lanes of VM_SUM: delta has the same bits on every instruction set. */
ACCEL_MULTIVERSION
static float dot(const float *a, const float *b, int64_t n)
{
    float sum;

    VM_SUM(sum, n, a[i] * b[i]);
    return sum;
}

/* Loads a query block: q, dout, their transposes, log-sum-exp and delta = sum of dout *
 * out; clears dq. m->k is borrowed for `out`; keys are loaded later. */
static void load_queries(const struct grad_task *w, const struct attn_pair *t)
{
    const struct attention *p = w->p;
    const struct attn_mem *m = w->m;
    int64_t d = p->head_width, dp = attn_padded(d), cols = p->heads * d;
    struct heads out = { w->g->out, p->queries * cols, cols, d }, dout = out;
    const float *lse = w->g->lse + (t->b * p->heads + t->h) * p->queries + t->q0;

    /* out and dout are [batch, queries, heads * width] */
    dout.data = w->g->dout;
    attn_load(p, m->q, &p->q, t->b, t->h, t->q0, t->rows, t->lanes, p->scale);
    attn_load(p, m->dout, &dout, t->b, t->h, t->q0, t->rows, t->lanes, 1.0f);
    attn_load(p, m->k, &out, t->b, t->h, t->q0, t->rows, t->lanes, 1.0f);
    attn_transpose(m->qt, ATTN_BLOCK, m->q, dp, t->lanes, d);
    attn_transpose(m->doutt, ATTN_BLOCK, m->dout, dp, t->lanes, d);
    for (int64_t q = 0; q < t->lanes; q++) {
        /* lanes without a query: 0, so that exp stays finite */
        m->max[q] = q < t->rows ? lse[q] : 0.0f;
        m->sum[q] = dot(m->dout + q * dp, m->k + q * dp, d);
    }
    memset(m->acc, 0, (size_t)(d * ATTN_BLOCK) * sizeof(*m->acc));
}

/* The key block; query heads of one group share a key head. */
static void load_keys(const struct grad_task *w, const struct attn_pair *t)
{
    const struct attention *p = w->p;
    int64_t kv_head = t->h / (p->heads / p->kv_heads);

    attn_load(p, w->m->k, &p->k, t->b, kv_head, t->k0, t->keys, t->keys, 1.0f);
    attn_load(p, w->m->v, &p->v, t->b, kv_head, t->k0, t->keys, t->keys, 1.0f);
}

/* Adds the contribution of this pair of blocks to dq (transposed) and to dk, dv of the
 * key block. */
static void pair(const struct grad_task *w, const struct attn_pair *t, int want,
                 float *dk, float *dv)
{
    const struct attn_mem *m = w->m;
    const float *keep = w->p->dropout > 0 ? m->keep : NULL;

    /* s = k q^T; p = exp(s - lse); dp = v dout^T; ds = p (dp keep - delta) */
    attn_scores(t, m);
    attn_probabilities(m->s, t->keys, t->lanes, m->max);
    attn_outer(t, m, m->v, m->doutt, m->ds);
    if (keep)
        attn_keep(t, m->keep);
    attn_score_grad(m->s, m->ds, keep, t->keys, t->lanes, m->sum);
    if (want & WANT_Q)
        attn_gather(t, m, m->k, m->ds, m->acc);
    if (want & WANT_KV) {
        /* dv += p dout, dk += ds q; attn_score_grad has put p keep into s */
        attn_scatter(t, m, m->s, m->dout, dv);
        attn_scatter(t, m, m->ds, m->q, dk);
    }
}

/* dq of the query block is complete but for the scale; scales, transposes and stores
 * it. */
static void store_dq(const struct grad_task *w, const struct attn_pair *t)
{
    const struct attn_mem *m = w->m;
    int64_t dp = attn_padded(w->p->head_width);

    if (!w->g->dq.data)
        return;
    for (int64_t q = 0; q < t->lanes; q++)
        m->factor[q] = w->p->scale;
    attn_scale_rows(m->acc, w->p->head_width, t->lanes, m->factor);
    attn_transpose(m->q, dp, m->acc, ATTN_BLOCK, w->p->head_width, t->rows);
    store(w->p, &w->g->dq, t->b, t->h, t->q0, t->rows, m->q);
}

/* The scale of dk is in q already (attn_load scaled it). */
static void store_dkv(const struct grad_task *w, int64_t b, int64_t kv_head,
                      int64_t first, int64_t rows)
{
    if (w->g->dk.data)
        store(w->p, &w->g->dk, b, kv_head, first, rows, w->m->dk);
    if (w->g->dv.data)
        store(w->p, &w->g->dv, b, kv_head, first, rows, w->m->dv);
}

/* dq of one query block and, with WANT_KV, its contribution to dk and dv of all
 * keys. */
static void query_block(const struct grad_task *w, int64_t b, int64_t h, int64_t q0,
                        int want)
{
    struct attn_pair t = attn_pair(w->p, b, h, q0, 0);
    int64_t limit = attn_key_limit(w->p, b, q0 + t.rows);
    int64_t dp = attn_padded(w->p->head_width);

    load_queries(w, &t);
    for (int64_t k0 = 0; k0 < limit; k0 += ATTN_BLOCK) {
        t = attn_pair(w->p, b, h, q0, k0);
        load_keys(w, &t);
        if (want & WANT_KV)
            /* the buffers hold all keys of the head, so a block has its place in them
             */
            pair(w, &t, want, w->m->dk + k0 * dp, w->m->dv + k0 * dp);
        else
            pair(w, &t, want, NULL, NULL);
    }
    store_dq(w, &t);
}

/* `rows` keys: all of them for a whole head, one block otherwise. */
static void clear_dkv(const struct grad_task *w, int64_t rows)
{
    size_t bytes = (size_t)(rows * attn_padded(w->p->head_width)) * sizeof(float);

    memset(w->m->dk, 0, bytes);
    memset(w->m->dv, 0, bytes);
}

/* All of one key head, for its whole group of query heads: every pair of blocks
 * once. */
static void whole_head(const struct grad_task *w, int64_t b, int64_t kv_head)
{
    const struct attention *p = w->p;
    int64_t group = p->heads / p->kv_heads;

    clear_dkv(w, p->keys);
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; h++)
        for (int64_t q0 = 0; q0 < p->queries; q0 += ATTN_BLOCK)
            query_block(w, b, h, q0, WANT_Q | WANT_KV);
    store_dkv(w, b, kv_head, 0, p->keys);
}

/* dk and dv of one key block. Query blocks that lie wholly before it are skipped. */
static void key_block(const struct grad_task *w, int64_t b, int64_t kv_head, int64_t k0)
{
    const struct attention *p = w->p;
    int64_t group = p->heads / p->kv_heads;
    struct attn_pair t = attn_pair(p, b, 0, 0, k0);

    clear_dkv(w, t.keys);
    for (int64_t h = kv_head * group; h < (kv_head + 1) * group; h++)
        for (int64_t q0 = 0; q0 < p->queries; q0 += ATTN_BLOCK) {
            t = attn_pair(p, b, h, q0, k0);
            if (k0 >= attn_key_limit(p, b, q0 + t.rows))
                continue;
            load_queries(w, &t);
            load_keys(w, &t);
            pair(w, &t, WANT_KV, w->m->dk, w->m->dv);
        }
    store_dkv(w, b, kv_head, k0, t.keys);
}

/* Two passes over the pairs of blocks, for fewer heads than threads: dq by query
 * blocks, dk and dv by key blocks. */
static void attention_grad_split(const struct grad_task *w)
{
    const struct attention *p = w->p;
    int64_t q_blocks = (p->queries + ATTN_BLOCK - 1) / ATTN_BLOCK;
    int64_t k_blocks = (p->keys + ATTN_BLOCK - 1) / ATTN_BLOCK;

    if (w->g->dq.data) {
#pragma omp for schedule(dynamic)
        /* from the end: later queries of a causal attention have more work */
        for (int64_t i = p->batch * p->heads * q_blocks - 1; i >= 0; i--)
            query_block(w, i / q_blocks / p->heads, i / q_blocks % p->heads,
                        i % q_blocks * ATTN_BLOCK, WANT_Q);
    }
    if (w->g->dk.data || w->g->dv.data) {
#pragma omp for schedule(dynamic)
        /* from the start: earlier keys are seen by more queries */
        for (int64_t i = 0; i < p->batch * p->kv_heads * k_blocks; i++)
            key_block(w, i / k_blocks / p->kv_heads, i / k_blocks % p->kv_heads,
                      i % k_blocks * ATTN_BLOCK);
    }
}

/* Both ways add in the same order, so the choice by threads does not show in the
 * bits. */
void cpu_attention_grad(const struct backend *be, const struct attention *p,
                        const struct attention_grads *grads, void *scratch)
{
    size_t floats = attention_thread_floats(p, be->threads, true);
    bool whole = attn_whole(p, be->threads);

#pragma omp parallel num_threads(be->threads) if (attn_is_large(p))
    {
        struct attn_mem m = attn_mem(
            p, (float *)scratch + floats * (size_t)omp_get_thread_num(), true, whole);
        struct grad_task w = { p, grads, &m };

        if (!whole) {
            attention_grad_split(&w);
        } else {
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < p->batch * p->kv_heads; i++)
                whole_head(&w, i / p->kv_heads, i % p->kv_heads);
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention on the CPU. Scores exist for 64 query rows at a time in per-thread
 * scratch, up to the diagonal only; the forward keeps one log-sum-exp per row and the
 * backward makes the probabilities again from it. Nothing of size time x time is stored.
 */
#include <math.h>
#include <omp.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"

#define BLOCK ATTN_QUERY_BLOCK

/* rows x head_width from a matrix whose rows are `ld` elements apart, widened. */
static void load_rows(const struct attention *p, float *dst, const void *src,
                      int64_t first, int64_t rows, int64_t ld)
{
    for (int64_t r = 0; r < rows; r++)
        cpu_load_row(dst + r * p->head_width, vm_at(src, first + r * ld, p->type),
                     p->type, p->head_width);
}

static void store_rows(const struct attention *p, void *dst, const float *src,
                       int64_t first, int64_t rows, int64_t ld, bool add)
{
    for (int64_t r = 0; r < rows; r++)
        cpu_store_row(vm_to(dst, first + r * ld, p->type), src + r * p->head_width,
                      p->type, p->head_width, add);
}

/* Softmax of the first n scores of a row, zero up to `width`; returns log-sum-exp. */
ACCEL_MULTIVERSION
static void softmax_row(float *s, int64_t n, int64_t width, float *lse_out)
{
    float max = s[0], sum, inverse;

#pragma omp simd reduction(max : max)
    for (int64_t j = 0; j < n; j++)
        max = s[j] > max ? s[j] : max;
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        s[j] = vm_exp(s[j] - max);
    VM_SUM(sum, n, s[i]);
    inverse = 1.0f / sum;
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        s[j] *= inverse;
    for (int64_t j = n; j < width; j++)
        s[j] = 0.0f;
    *lse_out = max + logf(sum);
}

static void forward_block(const struct attention *p, void *out, float *lse,
                          const void *qkv, int64_t bh, int64_t q0, float *mem)
{
    int64_t b = bh / p->heads, h = bh % p->heads, d = p->head_width;
    int64_t cols = p->heads * d, ld = 3 * cols, base = b * p->time * ld + h * d;
    int64_t rows = p->time - q0 < BLOCK ? p->time - q0 : BLOCK, keys = q0 + rows;
    float *k = mem, *v = k + p->time * d, *q = v + p->time * d, *o = q + BLOCK * d;
    float *s = o + BLOCK * d;

    load_rows(p, q, qkv, base + q0 * ld, rows, ld);
    load_rows(p, k, qkv, base + cols, keys, ld);
    load_rows(p, v, qkv, base + 2 * cols, keys, ld);
    cpu_sgemm(false, true, rows, keys, d, 1.0f / sqrtf((float)d), q, d, k, d, 0.0f, s,
              keys);
    for (int64_t r = 0; r < rows; r++)
        softmax_row(s + r * keys, q0 + r + 1, keys, &lse[bh * p->time + q0 + r]);
    cpu_sgemm(false, false, rows, d, keys, 1.0f, s, keys, v, d, 0.0f, o, d);
    store_rows(p, out, o, (b * p->time + q0) * cols + h * d, rows, cols, false);
}

void cpu_attention(const struct backend *be, const struct attention *p, void *out,
                   float *lse, const void *qkv, void *scratch)
{
    int64_t blocks = (p->time + BLOCK - 1) / BLOCK;
    int64_t tasks = p->batch * p->heads * blocks;
    size_t floats = attention_thread_floats(p, false);

#pragma omp parallel num_threads(be->threads)
    {
        float *mem = (float *)scratch + floats * (size_t)omp_get_thread_num();

        omp_set_num_threads(1); /* see cpu_gemm */
#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < tasks; t++)
            forward_block(p, out, lse, qkv, t / blocks, t % blocks * BLOCK, mem);
    }
}

/* s -> probabilities exp(s - lse), zero beyond the diagonal. */
ACCEL_MULTIVERSION
static void probability_row(float *s, int64_t n, int64_t width, float lse)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        s[j] = vm_exp(s[j] - lse);
    for (int64_t j = n; j < width; j++)
        s[j] = 0.0f;
}

/* ds = p (dp - sum(dout out)), in place of dp; p is zero beyond the diagonal. */
ACCEL_MULTIVERSION
static void score_grad_row(float *dp, const float *prob, int64_t width,
                           const float *dout, const float *out, int64_t d)
{
    float sum;

    VM_SUM(sum, d, dout[i] * out[i]);
#pragma omp simd
    for (int64_t j = 0; j < width; j++)
        dp[j] = prob[j] * (dp[j] - sum);
}

struct head_grad { /* one head of one sample: pointers into the thread's scratch */
    float *k, *v, *dk, *dv, *q, *o, *dout, *dq, *prob, *ds;
};

static void backward_block(const struct attention *p, const struct head_grad *m,
                           const float *lse, int64_t q0, int64_t rows)
{
    int64_t d = p->head_width, keys = q0 + rows;
    float scale = 1.0f / sqrtf((float)d);

    cpu_sgemm(false, true, rows, keys, d, scale, m->q, d, m->k, d, 0.0f, m->prob, keys);
    for (int64_t r = 0; r < rows; r++)
        probability_row(m->prob + r * keys, q0 + r + 1, keys, lse[q0 + r]);
    cpu_sgemm(true, false, keys, d, rows, 1.0f, m->prob, keys, m->dout, d, 1.0f, m->dv,
              d);
    cpu_sgemm(false, true, rows, keys, d, 1.0f, m->dout, d, m->v, d, 0.0f, m->ds, keys);
    for (int64_t r = 0; r < rows; r++)
        score_grad_row(m->ds + r * keys, m->prob + r * keys, keys, m->dout + r * d,
                       m->o + r * d, d);
    cpu_sgemm(false, false, rows, d, keys, scale, m->ds, keys, m->k, d, 0.0f, m->dq, d);
    cpu_sgemm(true, false, keys, d, rows, scale, m->ds, keys, m->q, d, 1.0f, m->dk, d);
}

static void backward_head(const struct attention *p, void *dqkv, bool add,
                          const void *dout, const void *out, const float *lse,
                          const void *qkv, int64_t bh, float *mem)
{
    int64_t b = bh / p->heads, h = bh % p->heads, d = p->head_width;
    int64_t cols = p->heads * d, ld = 3 * cols, base = b * p->time * ld + h * d;
    int64_t head = p->time * d, block = BLOCK * d;
    struct head_grad m;

    m.k = mem;
    m.v = m.k + head;
    m.dk = m.v + head;
    m.dv = m.dk + head;
    m.q = m.dv + head;
    m.o = m.q + block;
    m.dout = m.o + block;
    m.dq = m.dout + block;
    m.prob = m.dq + block;
    m.ds = m.prob + BLOCK * p->time;
    load_rows(p, m.k, qkv, base + cols, p->time, ld);
    load_rows(p, m.v, qkv, base + 2 * cols, p->time, ld);
    memset(m.dk, 0, (size_t)(2 * head) * sizeof(float));
    for (int64_t q0 = 0; q0 < p->time; q0 += BLOCK) {
        int64_t rows = p->time - q0 < BLOCK ? p->time - q0 : BLOCK;
        int64_t at = (b * p->time + q0) * cols + h * d;

        load_rows(p, m.q, qkv, base + q0 * ld, rows, ld);
        load_rows(p, m.o, out, at, rows, cols);
        load_rows(p, m.dout, dout, at, rows, cols);
        backward_block(p, &m, lse + bh * p->time, q0, rows);
        store_rows(p, dqkv, m.dq, base + q0 * ld, rows, ld, add);
    }
    store_rows(p, dqkv, m.dk, base + cols, p->time, ld, add);
    store_rows(p, dqkv, m.dv, base + 2 * cols, p->time, ld, add);
}

void cpu_attention_grad(const struct backend *be, const struct attention *p, void *dqkv,
                        bool add, const void *dout, const void *out, const float *lse,
                        const void *qkv, void *scratch)
{
    size_t floats = attention_thread_floats(p, true);

#pragma omp parallel num_threads(be->threads)
    {
        float *mem = (float *)scratch + floats * (size_t)omp_get_thread_num();

        omp_set_num_threads(1); /* see cpu_gemm */
#pragma omp for schedule(dynamic)
        for (int64_t t = 0; t < p->batch * p->heads; t++)
            backward_head(p, dqkv, add, dout, out, lse, qkv, t, mem);
    }
}

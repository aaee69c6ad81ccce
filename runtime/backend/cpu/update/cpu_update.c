/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to the shards between two steps, on flat float32 ranges: sum of squares,
 * sums over ranks, scaling, limits, narrowing, the optimizers, moving averages. Every
 * element is computed alone and every operation is correctly rounded, so neither the
 * split over threads nor the vector width can change a bit. `omp simd`, because -O2
 * alone vectorizes no loop whose trip count is unknown.
 */
#include <string.h>

#include "backend/cpu/cpu.h"
#include "backend/cpu/vmath.h"
#include "numbers/wire.h"

#define BLOCK 16384 /* elements per task: 4 arrays = 256 KiB, in L2 */

/* In parallel: one core alone cannot use the memory bandwidth of a node. */
void cpu_zero(const struct backend *be, void *dst, size_t bytes)
{
    const size_t part = BLOCK * sizeof(float);

#pragma omp parallel for schedule(static) num_threads(be->threads) if (bytes > part)
    for (size_t i = 0; i < bytes; i += part)
        memset((char *)dst + i, 0, bytes - i < part ? bytes - i : part);
}

/* Length of the block that starts at `at`. */
static int64_t block_length(int64_t n, int64_t at)
{
    return n - at < BLOCK ? n - at : BLOCK;
}

void cpu_widen(const struct backend *be, float *dst, const void *src,
               accel_dtype_t type, int64_t n)
{
#pragma omp parallel for schedule(static) num_threads(be->threads) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        cpu_load_row(dst + i, vm_at(src, i, type), type, block_length(n, i));
}

/* In place, the results land where other threads still have to read: one thread
 * then. */
void cpu_narrow(const struct backend *be, void *dst, accel_dtype_t type,
                const float *src, int64_t n)
{
    if (dst == (const void *)src) {
        cpu_store_row(dst, src, type, n, false);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(be->threads) if (n > BLOCK)
    for (int64_t i = 0; i < n; i += BLOCK)
        cpu_store_row(vm_to(dst, i, type), src + i, type, block_length(n, i), false);
}

/* In place, the output of a block may land on input not yet read. wire_reach() says how
 * far one can go from `at` before that happens; each such range is done in parallel,
 * and the barrier at its end frees the next. */
void cpu_narrow_parts(const struct backend *be, void *dst, accel_dtype_t type,
                      const float *src, int count, int64_t n)
{
    const int64_t each = wire_blocks(n), blocks = each * count;
    const size_t part = wire_bytes((size_t)n, type);

    for (int64_t at = 0, reach; at < blocks; at = reach) {
        reach = dst == (const void *)src ? wire_reach(at, n, type) : blocks;
        reach = reach < blocks ? reach : blocks;
#pragma omp parallel for schedule(static)                                              \
    num_threads(be->threads) if ((reach - at) * WIRE_BLOCK > BLOCK)
        for (int64_t b = at; b < reach; b++) {
            /* block b is block b % each of array b / each; the last one of an array may
             * be short */
            const int64_t first = b % each * WIRE_BLOCK;
            const int64_t length = n - first < WIRE_BLOCK ? n - first : WIRE_BLOCK;

            wire_narrow((char *)dst + (size_t)(b / each) * part +
                            wire_bytes((size_t)first, type),
                        src + b / each * n + first, (size_t)length, type);
        }
    }
}

void cpu_scale(const struct backend *be, float *x, int64_t n, float by)
{
#pragma omp parallel for simd schedule(static) num_threads(be->threads) if (n > BLOCK)
    for (int64_t i = 0; i < n; i++)
        x[i] *= by;
}

void cpu_clamp(const struct backend *be, float *x, int64_t n, float limit)
{
#pragma omp parallel for simd schedule(static) num_threads(be->threads) if (n > BLOCK)
    for (int64_t i = 0; i < n; i++)
        x[i] = maths_clamp(x[i], limit);
}

void cpu_blend(const struct backend *be, float *x, const float *y, int64_t n,
               float keep, float take)
{
#pragma omp parallel for simd schedule(static) num_threads(be->threads) if (n > BLOCK)
    for (int64_t i = 0; i < n; i++)
        x[i] = keep * x[i] + take * y[i];
}

/* restrict and a local copy of the constants let the loop vectorize. Gradients are
 * zeroed here, while they are in cache, rather than in a pass of their own. */
ACCEL_MULTIVERSION
static void adamw_block(float *restrict p, float *restrict m, float *restrict v,
                        float *restrict g, int64_t n,
                        const struct adamw_step *restrict step)
{
    const struct adamw_step k = *step;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        maths_adamw(&p[i], &m[i], &v[i], g[i], &k);
        g[i] = 0.0f;
    }
}

ACCEL_MULTIVERSION
static void sgd_block(float *restrict p, float *restrict g, int64_t n,
                      const struct sgd_step *restrict step)
{
    const struct sgd_step k = *step;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        maths_sgd(&p[i], g[i], &k);
        g[i] = 0.0f;
    }
}

ACCEL_MULTIVERSION
static void momentum_block(float *restrict p, float *restrict m, float *restrict g,
                           int64_t n, const struct sgd_step *restrict step)
{
    const struct sgd_step k = *step;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        maths_sgd_momentum(&p[i], &m[i], g[i], &k);
        g[i] = 0.0f;
    }
}

ACCEL_MULTIVERSION
static void lion_block(float *restrict p, float *restrict m, float *restrict g,
                       int64_t n, const struct lion_step *restrict step)
{
    const struct lion_step k = *step;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        maths_lion(&p[i], &m[i], g[i], &k);
        g[i] = 0.0f;
    }
}

/* Elements [at, at + n) of a range. */
static void update_block(const struct update_span *x, const struct optim_step *k,
                         int64_t at, int64_t n)
{
    float *p = x->p + at, *g = x->g + at;
    float *m = x->m.data ? (float *)x->m.data + at : NULL;

    if (k->kind == ACCEL_ADAMW)
        adamw_block(p, m, (float *)x->v.data + at, g, n, &k->adamw);
    else if (k->kind == ACCEL_LION)
        lion_block(p, m, g, n, &k->lion);
    else if (m)
        momentum_block(p, m, g, n, &k->sgd);
    else
        sgd_block(p, g, n, &k->sgd);
}

/* Static shares: each thread updates the pages that it has touched before. */
static void update_range(const struct backend *be, const struct update_span *x,
                         const struct optim_step *k)
{
#pragma omp parallel for schedule(static) num_threads(be->threads) if (x->n > BLOCK)
    for (int64_t i = 0; i < x->n; i += BLOCK)
        update_block(x, k, i, block_length(x->n, i));
}

/* Range by range: threads share each of them. */
void cpu_update(const struct backend *be, const struct update_span *x, int count,
                const struct optim_step *k)
{
    for (int i = 0; i < count; i++, x++) {
        if (x->step < 0)
            cpu_zero(be, x->g, (size_t)x->n * sizeof(*x->g));
        else if (x->narrow || x->scaled)
            cpu_update_narrow(be, x, k, cpu_update);
        else if (x->m.scale)
            cpu_update_moments(be, x, &k[x->step]);
        else
            update_range(be, x, &k[x->step]);
    }
}

#define LANES 8

/* Eight running sums by index mod 8, added pairwise at the end. They are written out so
 * that the order is the same for every vector width. */
ACCEL_MULTIVERSION
static double sumsq_block(const float *restrict g, int64_t n)
{
    /* in double: squares of 10^9 float32 elements would lose the small ones */
    double lane[LANES] = { 0 };
    int64_t i = 0;

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

/* Sum of squares of one span: blocks in order within a part, then parts in order. */
static double sumsq_span(const struct backend *be, const float *x, int64_t n)
{
    /* parts of whole blocks; n decides where they end, not the threads */
    enum { PARTS = 64 };
    double part[PARTS] = { 0 }, sum = 0;
    const int64_t blocks = (n + BLOCK - 1) / BLOCK;
    const int64_t each = (blocks + PARTS - 1) / PARTS;

#pragma omp parallel for schedule(static) num_threads(be->threads) if (blocks > 1)
    for (int64_t t = 0; t < PARTS; t++)
        for (int64_t b = t * each; b < (t + 1) * each && b < blocks; b++)
            part[t] += sumsq_block(x + b * BLOCK, block_length(n, b * BLOCK));
    for (int t = 0; t < PARTS; t++)
        sum += part[t];
    return sum;
}

/* Spans in the caller's order. They are few and long: threads share each of them. */
void cpu_sumsq(const struct backend *be, double *sum_out, const struct span *x,
               int count)
{
    double sum = 0;

    for (int i = 0; i < count; i++)
        sum += sumsq_span(be, x[i].x, x[i].n);
    *sum_out = sum;
}

/* Elements [at, at + n) of part r as float32. `at` is the start of a wire block, so the
 * piece can be widened alone. */
static const float *part_piece(const char *parts, accel_dtype_t type, int r,
                               int64_t whole, int64_t at, int64_t n, float *room)
{
    const char *part = parts + (size_t)r * wire_bytes((size_t)whole, type);

    if (!wire_is_scaled(type))
        return cpu_get(part, at, type, n, room);
    wire_widen(room, part + wire_bytes((size_t)at, type), (size_t)n, type);
    return room;
}

_Static_assert(CPU_PIECE % WIRE_BLOCK == 0, "pieces are whole blocks");

/* Elements [at, at + n) of all parts, added in rank order and starting from `first` or
 * part 0, not from 0: a single part keeps its bits, -0 included. */
static void sum_piece(float *out, bool accumulate, const float *first,
                      const void *parts, accel_dtype_t type, int count, int64_t whole,
                      int64_t at, int64_t n, float scale)
{
    float sum[CPU_PIECE], room[CPU_PIECE];

    if (first)
        memcpy(sum, first + at, (size_t)n * sizeof(*sum));
    for (int r = 0; r < count; r++) {
        const float *x = part_piece(parts, type, r, whole, at, n, room);

        for (int64_t i = 0; i < n; i++)
            /* rank order is what makes every rank's result the same */
            sum[i] = r == 0 && !first ? x[i] : sum[i] + x[i];
    }
    for (int64_t i = 0; i < n; i++) {
        float v = scale * sum[i];

        out[at + i] = accumulate ? out[at + i] + v : v;
    }
}

/* Pieces of all parts at a time: the sum of a piece stays in L1. */
void cpu_sum_parts(const struct backend *be, float *out, bool accumulate,
                   const float *first, const void *parts, accel_dtype_t type, int count,
                   int64_t n, float scale)
{
#pragma omp parallel for schedule(static) num_threads(be->threads) if (n > BLOCK)
    for (int64_t at = 0; at < n; at += CPU_PIECE)
        sum_piece(out, accumulate, first, parts, type, count, n, at, cpu_piece(n, at),
                  scale);
}

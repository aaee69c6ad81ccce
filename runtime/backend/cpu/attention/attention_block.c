/* SPDX-License-Identifier: Apache-2.0
 *
 * One block of 64 queries x 64 keys: visibility, loading, and the products of forward
 * and backward as tile products. On the diagonal of a causal attention only the visible
 * part is multiplied, 16 lanes at a time.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/attention/cpu_attention.h"
#include "backend/cpu/vmath.h"

/* Every [..][64] buffer has this leading dimension, however few lanes are in use. */
#define LD ATTN_BLOCK

static int64_t clamp(int64_t v, int64_t low, int64_t high)
{
    return v < low ? low : v > high ? high : v;
}

/* Clips the block at the ends of queries and keys. */
struct attn_pair attn_pair(const struct attention *p, int64_t b, int64_t h, int64_t q0,
                           int64_t k0)
{
    struct attn_pair t = { .p = p, .b = b, .h = h, .q0 = q0, .k0 = k0 };

    t.rows = clamp(p->queries - q0, 0, ATTN_BLOCK);
    t.keys = clamp(p->keys - k0, 0, ATTN_BLOCK);
    t.lanes = (t.rows + TILE_LANES - 1) / TILE_LANES * TILE_LANES;
    return t;
}

int64_t attn_key_limit(const struct attention *p, int64_t b, int64_t q_end)
{
    int64_t limit = p->lengths ? clamp(p->lengths[b], 0, p->keys) : p->keys;

    return p->causal ? clamp(p->offset + q_end, 0, limit) : limit;
}

/* The order and sizes must match attention_thread_floats() in cpu_sizes.c. */
struct attn_mem attn_mem(const struct attention *p, float *mem, bool backward,
                         bool whole)
{
    int64_t d = p->head_width, dp = attn_padded(d), tile = ATTN_BLOCK * ATTN_BLOCK;
    /* dk and dv: of all keys of a head, or of one block */
    int64_t grads = (whole ? p->keys : ATTN_BLOCK) * dp;
    struct attn_mem m = { .max = mem, .isa = tile_isa() };

    /* rows are dp floats, a multiple of the lanes; transposed tiles are [d][64] */
    m.sum = m.max + ATTN_BLOCK;
    m.factor = m.sum + ATTN_BLOCK;
    m.s = m.factor + ATTN_BLOCK;
    m.keep = m.s + tile;
    m.q = m.keep + (p->dropout > 0 ? tile : 0);
    m.k = m.q + ATTN_BLOCK * dp;
    m.v = m.k + ATTN_BLOCK * dp;
    m.qt = m.v + ATTN_BLOCK * dp;
    m.acc = m.qt + ATTN_BLOCK * d;
    if (!backward)
        return m;
    m.ds = m.acc + ATTN_BLOCK * d;
    m.dout = m.ds + tile;
    m.doutt = m.dout + ATTN_BLOCK * dp;
    m.dk = m.doutt + ATTN_BLOCK * d;
    m.dv = m.dk + grads;
    return m;
}

/* x *= scale */
ACCEL_MULTIVERSION
static void scale_row(float *x, int64_t n, float scale)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
}

void attn_load(const struct attention *p, float *dst, const struct heads *from,
               int64_t b, int64_t h, int64_t first, int64_t rows, int64_t padded,
               float scale)
{
    int64_t d = p->head_width, dp = attn_padded(d);
    /* value i of row r lies at `at` + r from->row + i */
    int64_t at = b * from->sample + h * from->head + first * from->row;

    for (int64_t r = 0; r < rows; r++, at += from->row) {
        float *to = dst + r * dp;

        cpu_load_row(to, vm_at(from->data, at, p->type), p->type, d);
        if (scale != 1.0f)
            scale_row(to, d, scale);
        /* the padding takes part in whole-vector products: zeros add nothing */
        for (int64_t i = d; i < dp; i++)
            to[i] = 0.0f;
    }
    if (padded > rows)
        /* lanes without a query compute on zeros; their results are never stored */
        memset(dst + rows * dp, 0, (size_t)((padded - rows) * dp) * sizeof(*dst));
}

/* Number of the block's keys up to the diagonal of lane q. */
static int64_t seen_by(const struct attn_pair *t, int64_t q)
{
    if (!t->p->causal)
        return t->keys;
    /* query t sees keys 0 .. offset + t, counted from this block's first key */
    return clamp(t->p->offset + t->q0 + q + 1 - t->k0, 0, t->keys);
}

/* Lanes per product: all of them, or on the diagonal 16 at a time. */
static int64_t lane_step(const struct attn_pair *t)
{
    return seen_by(t, 0) == t->keys ? t->lanes : TILE_LANES;
}

/* Writes minus infinity where a lane does not see the key. Under the causal rule key k
 * is hidden from the lanes before `first`. */
static void hide(const struct attn_pair *t, float *s)
{
    const struct attention *p = t->p;
    int64_t limit = attn_key_limit(p, t->b, p->queries);
    const int32_t *mask = p->mask ? p->mask + t->b * p->keys + t->k0 : NULL;

    /* the usual block of a long sequence: nothing to hide */
    if (seen_by(t, 0) == t->keys && !mask && t->k0 + t->keys <= limit)
        return;
    for (int64_t k = 0; k < t->keys; k++) {
        int64_t first = p->causal ? t->k0 + k - p->offset - t->q0 : 0;

        if (t->k0 + k >= limit || (mask && !mask[k]))
            first = t->lanes;
        for (int64_t q = 0; q < clamp(first, 0, t->lanes); q++)
            s[k * LD + q] = -INFINITY;
    }
}

/* Each product stops at the last key that its last lane sees. c[k][q] = sum over i of
 * rows[k][i] x[i][q]: keys by queries. */
void attn_outer(const struct attn_pair *t, const struct attn_mem *m, const float *rows,
                const float *x, float *c)
{
    int64_t d = t->p->head_width, step = lane_step(t);

    for (int64_t q = 0; q < t->lanes; q += step)
        tile_product(m->isa, &(struct tile){ .m = seen_by(t, q + step - 1),
                                             .n = step,
                                             .k = d,
                                             .a = rows,
                                             .a_row = attn_padded(d),
                                             .a_col = 1,
                                             .b = x + q,
                                             .ldb = LD,
                                             .c = c + q,
                                             .ldc = LD });
}

void attn_scores(const struct attn_pair *t, const struct attn_mem *m)
{
    /* s = k q^T; the scale is in q already */
    attn_outer(t, m, m->k, m->qt, m->s);
    hide(t, m->s);
}

/* a is read transposed (a_row 1): the rows stay as they are stored. acc[i][q] += sum
 * over k of rows[k][i] s[k][q]. */
void attn_gather(const struct attn_pair *t, const struct attn_mem *m, const float *rows,
                 const float *s, float *acc)
{
    int64_t d = t->p->head_width, step = lane_step(t);

    for (int64_t q = 0; q < t->lanes; q += step)
        tile_product(m->isa, &(struct tile){ .m = d,
                                             .n = step,
                                             .k = seen_by(t, q + step - 1),
                                             .a = rows,
                                             .a_row = 1,
                                             .a_col = attn_padded(d),
                                             .b = s + q,
                                             .ldb = LD,
                                             .c = acc + q,
                                             .ldc = LD,
                                             .add = true });
}

void attn_scatter(const struct attn_pair *t, const struct attn_mem *m, const float *s,
                  const float *rows, float *to)
{
    /* Here keys are the rows of the result, so the diagonal is cut along keys. */
    int64_t dp = attn_padded(t->p->head_width);
    int64_t step = lane_step(t) == t->lanes ? t->keys : TILE_LANES;

    for (int64_t k = 0; k < t->keys; k += step) {
        /* The first query that sees key k sees none of the block's later ones. */
        int64_t q = t->p->causal ? t->k0 + k - t->p->offset - t->q0 : 0;

        q = clamp(q, 0, t->rows);
        tile_product(m->isa,
                     &(struct tile){ .m = t->keys - k < step ? t->keys - k : step,
                                     .n = dp,
                                     .k = t->rows - q,
                                     .a = s + k * LD + q,
                                     .a_row = LD,
                                     .a_col = 1,
                                     .b = rows + q * dp,
                                     .ldb = dp,
                                     .c = to + k * dp,
                                     .ldc = dp,
                                     .add = true });
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Twins of sums over many: columns, dimensions, losses of pairs, embeddings.
 */
#include "tests/unit/twin.h"

static void column_sum(const struct backend *be, void *const *a,
                       const struct twin_call *c)
{
    be->column_sum(be, (float *)a[0], a[1], c->type, c->dim[0], c->dim[1], c->dim[2]);
}

static void reduce(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->reduce(be, a[0], c->other, a[1], c->type, c->dim, c->by);
}

static void reduce_grad(const struct backend *be, void *const *a,
                        const struct twin_call *c)
{
    be->reduce_grad(be, a[0], c->type, c->add, a[1], c->other, c->dim, c->by);
}

static void pair(const struct backend *be, void *const *a, const struct twin_call *c)
{
    const enum pair_loss loss = (enum pair_loss)c->act;

    be->pair_loss(be, (float *)a[0], loss, a[1], c->type, a[2], c->other, c->n);
    be->pair_loss_grad(be, a[3], c->add, c->flag, loss, a[1], c->type, a[2], c->other,
                       (const float *)a[4], c->n);
}

static void columns(struct twin *t, accel_dtype_t type)
{
    /* rows without gaps, and with */
    static const int64_t shape[][3] = {
        { 0, 8, 8 },      { 1, 1, 1 },      { 3, 7, 7 },       { 257, 64, 64 },
        { 64, 768, 768 }, { 2053, 33, 33 }, { 700, 520, 520 }, { 5, 5001, 5001 },
        { 33, 520, 576 }, { 33, 131, 192 }, { 31, 64, 65 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shape); i++) {
        const struct twin_call c = { .type = type,
                                     .dim = { shape[i][0], shape[i][1], shape[i][2] } };

        twin_values(t, ACCEL_F32, c.dim[1], 0, -1, 1);
        twin_values(t, type, c.dim[0] * c.dim[2], i % 2, -1, 1);
        twin_run(t, column_sum, &c, "column_sum %lld x %lld of %lld %s",
                 (long long)c.dim[0], (long long)c.dim[1], (long long)c.dim[2],
                 accel_dtype_name(type));
    }
}

static void dimensions(struct twin *t, accel_dtype_t type, accel_dtype_t other)
{
    static const int64_t shape[][3] = {
        { 0, 4, 5 },     { 4, 0, 5 },     { 4, 0, 1 },   { 4, 5, 0 },    { 1, 1, 1 },
        { 1, 70001, 1 }, { 3, 40000, 1 }, { 700, 3, 1 }, { 5, 1023, 1 }, { 7, 2048, 1 },
        { 2, 300, 64 },  { 3, 70, 35 },   { 70, 3, 8 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shape); i++) {
        const int64_t *s = shape[i], n = s[0] * s[1] * s[2];
        const struct twin_call c = { .type = type,
                                     .other = other,
                                     .dim = { s[0], s[1], s[2] },
                                     .add = i % 2,
                                     .by = 0.3f };

        twin_values(t, other, s[0] * s[2], 0, 0, 1);
        twin_values(t, type, n, i == 5, 0, 1);
        twin_run(t, reduce, &c, "reduce [%lld %lld %lld] %s to %s", (long long)s[0],
                 (long long)s[1], (long long)s[2], accel_dtype_name(type),
                 accel_dtype_name(other));
        twin_values(t, type, n, i == 5, -1, 1);
        twin_values(t, other, s[0] * s[2], 0, -1, 1);
        twin_run(t, reduce_grad, &c, "reduce_grad [%lld %lld %lld] %s of %s, add %d",
                 (long long)s[0], (long long)s[1], (long long)s[2],
                 accel_dtype_name(type), accel_dtype_name(other), c.add);
    }
}

static void pairs(struct twin *t, struct twin_call c)
{
    static const int64_t lengths[] = { 0, 1, 5, 1024, 16384, 70001 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lengths); i++) {
        c.n = lengths[i];
        c.add = i % 2;
        twin_values(t, ACCEL_F32, 1, 0, 0, 1);
        twin_values(t, c.type, c.n, i % 2, -9, 9);
        twin_values(t, c.other, c.n, 0, -1, 1);
        twin_values(t, c.flag ? c.other : c.type, c.n, 0, -1, 1);
        twin_values(t, ACCEL_F32, 1, 0, 1, 2);
        twin_run(t, pair, &c, "pairs %d of %lld %s and %s, by the %s", c.act,
                 (long long)c.n, accel_dtype_name(c.type), accel_dtype_name(c.other),
                 c.flag ? "second" : "first");
    }
}

/* ---- embeddings ------------------------------------------------------------------ */

struct table {
    int64_t rows, time, vocab, cols;
};

static void embed(const struct backend *be, void *const *a, const struct twin_call *c)
{
    const struct table *e = (const struct table *)c->more;

    be->embed(be, a[0], (const int32_t *)a[1], a[2], a[3], c->type, e->rows, e->time,
              e->vocab, e->cols);
}

static void embed_grad(const struct backend *be, void *const *a,
                       const struct twin_call *c)
{
    const struct table *e = (const struct table *)c->more;

    be->embed_grad(be, (float *)a[0], (float *)a[1], (const int32_t *)a[2], a[3],
                   c->type, e->rows, e->time, e->cols);
}

static void lookups(struct twin *t, struct table e, accel_dtype_t type, bool positions)
{
    const struct twin_call c = { .type = type, .more = &e };
    const int64_t n = e.rows * e.cols, used = e.vocab < 3 ? e.vocab : e.vocab - 1;

    twin_values(t, type, n, 0, 0, 1);
    twin_values(t, ACCEL_I32, e.rows, 0, 0, (double)used);
    twin_values(t, type, e.vocab * e.cols, e.vocab == 3, -1, 1);
    if (positions)
        twin_values(t, type, e.time * e.cols, 0, -1, 1);
    else
        twin_none(t);
    twin_run(t, embed, &c, "embed %lld of %lld x %lld %s", (long long)e.rows,
             (long long)e.vocab, (long long)e.cols, accel_dtype_name(type));
    twin_values(t, ACCEL_F32, e.vocab * e.cols, 0, -1, 1);
    if (positions)
        twin_values(t, ACCEL_F32, e.time * e.cols, 0, -1, 1);
    else
        twin_none(t);
    twin_values(t, ACCEL_I32, e.rows, 0, 0, (double)used);
    twin_values(t, type, n, e.vocab == 3, -1, 1);
    twin_run(t, embed_grad, &c, "embed_grad %lld of %lld x %lld %s", (long long)e.rows,
             (long long)e.vocab, (long long)e.cols, accel_dtype_name(type));
}

void twin_sums(struct twin *t)
{
    static const struct table table[] = { { 0, 4, 5, 8 },
                                          { 1, 1, 1, 1 },
                                          { 12, 4, 3, 16 },
                                          { 600, 100, 2, 24 },
                                          { 1536, 512, 97, 40 },
                                          { 1300, 1300, 5000, 7 },
                                          { 90, 30, 11, 600 },
                                          { 513, 513, 1, 3 },
                                          /* runs that are added in pieces */
                                          { 1030, 1030, 1, 5 },
                                          { 3100, 100, 2, 24 },
                                          { 4100, 4100, 4, 40 } };

    for (int type = ACCEL_F32; type <= ACCEL_BF16; type++) {
        columns(t, (accel_dtype_t)type);
        for (int other = ACCEL_F32; other <= ACCEL_BF16; other++) {
            dimensions(t, (accel_dtype_t)type, (accel_dtype_t)other);
            for (int i = 0; i < 4; i++)
                pairs(t, (struct twin_call){ .type = (accel_dtype_t)type,
                                             .other = (accel_dtype_t)other,
                                             .act = i / 2,
                                             .flag = i % 2 });
        }
        for (size_t i = 0; i < ACCEL_ARRAY_SIZE(table); i++) {
            lookups(t, table[i], (accel_dtype_t)type, true);
            lookups(t, table[i], (accel_dtype_t)type, false);
        }
    }
}

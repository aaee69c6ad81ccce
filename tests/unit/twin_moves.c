/* SPDX-License-Identifier: Apache-2.0
 *
 * Twins of what moves elements: rows with strides, transposition, heads, rotary
 * positions.
 */
#include "tests/unit/twin.h"

static void copy_rows(const struct backend *be, void *const *a,
                      const struct twin_call *c)
{
    be->copy_rows(be, a[0], c->dim[2], c->add, a[1], c->dim[3], c->type, c->dim[0],
                  c->dim[1]);
}

static void transpose(const struct backend *be, void *const *a,
                      const struct twin_call *c)
{
    be->transpose(be, a[0], c->add, a[1], c->type, c->dim);
}

static void copy_heads(const struct backend *be, void *const *a,
                       const struct twin_call *c)
{
    const int64_t b = c->dim[0], t = c->dim[1], h = c->dim[2], d = c->dim[3];
    const struct heads_out to[2] = { { a[0], h * t * d, d, t * d, false },
                                     { a[1], h * t * d, d, t * d, false } };
    const struct heads from[2] = { { a[2], t * h * d + c->dim[4], h * d, d },
                                   { a[3], t * h * d + c->dim[4], h * d, d } };

    be->copy_heads(be, to, from, c->type, b, t, h, d);
}

static void rope(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->rope(be, c->act ? a[1] : a[0], a[1], (const struct rope *)c->more, c->flag,
             c->add);
}

static void rows(struct twin *t, accel_dtype_t type)
{
    /* rows, cols, strides */
    static const int64_t shape[][4] = {
        { 0, 5, 5, 5 },    { 5, 0, 4, 4 },          { 1, 1, 1, 1 },
        { 7, 13, 17, 29 }, { 64, 64, 64, 192 },     { 33, 96, 128, 96 },
        { 300, 6, 6, 12 }, { 3, 2049, 2049, 4097 }, { 16, 40, 48, 56 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shape); i++)
        for (int add = 0; add <= (type <= ACCEL_BF16); add++) {
            const int64_t *s = shape[i];
            const struct twin_call c = { .type = type,
                                         .dim = { s[0], s[1], s[2], s[3] },
                                         .add = add };

            twin_values(t, type, s[0] * s[2], i % 3 == 2, 0, 200);
            twin_values(t, type, s[0] * s[3], 0, 0, 200);
            twin_run(t, copy_rows, &c,
                     "copy_rows %lld x %lld, strides %lld %lld, %s, %d",
                     (long long)s[0], (long long)s[1], (long long)s[2], (long long)s[3],
                     accel_dtype_name(type), add);
        }
}

static void transposes(struct twin *t, accel_dtype_t type)
{
    static const int64_t shape[][5] = {
        { 1, 1, 1, 1, 1 },   { 2, 33, 1, 65, 1 },  { 3, 7, 5, 11, 1 },
        { 2, 31, 1, 4, 16 }, { 2, 5, 3, 4, 7 },    { 1, 129, 1, 32, 1 },
        { 2, 0, 3, 4, 1 },   { 2, 3, 1, 4, 0 },    { 1, 70, 2, 64, 1 },
        { 40, 3, 7, 2, 3 },  { 4, 16, 1, 12, 64 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shape); i++)
        for (int add = 0; add <= (type <= ACCEL_BF16); add++) {
            const int64_t *s = shape[i];
            const int64_t n = s[0] * s[1] * s[2] * s[3] * s[4];
            const struct twin_call c = { .type = type,
                                         .dim = { s[0], s[1], s[2], s[3], s[4] },
                                         .add = add };

            twin_values(t, type, n, i % 2, 0, 200);
            twin_values(t, type, n, 0, 0, 200);
            twin_run(t, transpose, &c,
                     "transpose of [%lld %lld %lld %lld %lld] %s, add %d",
                     (long long)s[0], (long long)s[1], (long long)s[2], (long long)s[3],
                     (long long)s[4], accel_dtype_name(type), add);
        }
}

static void heads(struct twin *t, accel_dtype_t type)
{
    static const int64_t shape[][5] = { { 2, 7, 3, 16, 0 },
                                        { 2, 7, 3, 5, 11 },
                                        { 1, 1, 1, 1, 0 },
                                        { 0, 4, 2, 8, 0 },
                                        { 3, 33, 4, 64, 64 } };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shape); i++) {
        const int64_t *s = shape[i], n = s[0] * s[1] * s[2] * s[3];
        const struct twin_call c = { .type = type,
                                     .dim = { s[0], s[1], s[2], s[3], s[4] } };

        for (int k = 0; k < 2; k++)
            twin_values(t, type, n, 0, -1, 1);
        for (int k = 0; k < 2; k++)
            twin_values(t, type, n + s[0] * s[4], i == 1 && k == 1, -1, 1);
        twin_run(t, copy_heads, &c, "copy_heads [%lld %lld %lld %lld] %s",
                 (long long)s[0], (long long)s[1], (long long)s[2], (long long)s[3],
                 accel_dtype_name(type));
    }
}

static void ropes(struct twin *t, accel_dtype_t type)
{
    /* batch, time, heads, head width, first position */
    static const int64_t shape[][5] = {
        { 1, 1, 1, 2, 0 },     { 2, 17, 3, 16, 5 },    { 3, 5, 2, 10, 100000 },
        { 5, 1, 4, 64, 1023 }, { 0, 4, 2, 8, 0 },      { 2, 0, 2, 8, 0 },
        { 1, 3, 1, 512, 7 },   { 9, 2, 8, 128, 8191 },
    };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(shape); i++)
        for (int how = 0; how < 4; how++) {
            const int64_t *s = shape[i], n = s[0] * s[1] * s[2] * s[3];
            struct rope p = { type, s[0], s[1], s[2], s[3], s[4], { 0 } };
            const struct twin_call c = { .add = how & 1,
                                         .flag = how & 2,
                                         .act = how == 2 && type == ACCEL_F32,
                                         .more = &p };

            for (int64_t k = 0; k < s[3] / 2; k++)
                p.frequency[k] = 1.0f / (float)(1 + 3 * k);
            twin_values(t, type, n, 0, -1, 1);
            twin_values(t, type, n, how == 3, -1, 1);
            twin_run(t, rope, &c, "rope [%lld %lld %lld %lld] %s, add %d, back %d",
                     (long long)s[0], (long long)s[1], (long long)s[2], (long long)s[3],
                     accel_dtype_name(type), c.add, c.flag);
        }
}

void twin_moves(struct twin *t)
{
    for (int type = ACCEL_F32; type <= ACCEL_I64; type++) {
        rows(t, (accel_dtype_t)type);
        transposes(t, (accel_dtype_t)type);
    }
    for (int type = ACCEL_F32; type <= ACCEL_BF16; type++) {
        heads(t, (accel_dtype_t)type);
        ropes(t, (accel_dtype_t)type);
    }
}

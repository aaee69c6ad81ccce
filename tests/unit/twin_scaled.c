/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays with a power of two for each 32 numbers, on both backends: to float32 and
 * back, sums of gradients stochastically, and steps of the optimizers on every form
 * that weights, gradients and moments can rest in. Codes and scales are compared bit by
 * bit, so all numbers are such that no rounding depends on whether a device fuses two
 * operations.
 */
#include <math.h>

#include "numbers/scaled.h"
#include "tests/unit/twin.h"

/* Codes of finite numbers, and scales of numbers around 1. positive: no sign. */
static void scaled_values(struct twin *t, int64_t n, accel_dtype_t type, bool positive)
{
    struct scaled x;

    twin_values(t, ACCEL_U8, (int64_t)scaled_bytes(n, type), 0, 0, 256);
    x = scaled_in(twin_host(t, t->count - 1), n, type);
    for (int64_t i = 0; i < n; i++)
        if (type == ACCEL_F16)
            ((uint16_t *)x.data)[i] &= positive ? 0x7bff : 0xbfff;
        else
            ((uint8_t *)x.data)[i] &= 0xf7;
    for (size_t k = 0; k < scaled_blocks(n); k++)
        x.exponent[k] = (uint8_t)(120 + k % 9);
}

static void grid(struct twin *t, int64_t n, float step)
{
    float *x = (float *)twin_host(t, t->count - 1);

    for (int64_t i = 0; i < n; i++)
        x[i] = floorf(x[i] / step) * step;
}

/* ---- whole arrays ---------------------------------------------------------------- */

/* a[0] into numbers a[1]; numbers a[2] into a[3]. */
static void there_and_back(const struct backend *be, void *const *a,
                           const struct twin_call *c)
{
    be->scaled_widen(be, a[1], c->type, scaled_in(a[0], c->n, c->other), c->n);
    be->scaled_narrow(be, scaled_in(a[3], c->n, c->other), a[2], c->n, c->flag);
}

/* From the last block before 2^32 on. */
static void narrow_sum(const struct backend *be, void *const *a,
                       const struct twin_call *c)
{
    be->scaled_narrow_sum(be, scaled_in(a[1], c->n, ACCEL_F8E4M3), a[0], c->n,
                          ((int64_t)1 << 32) - SCALED_BLOCK, 3);
}

/* Of all sizes, in one block too, with zeros and infinities. */
static void wide_values(struct twin *t, int64_t n, bool positive)
{
    float *x;

    twin_values(t, ACCEL_F32, n, 0, positive ? 0 : -1, 1);
    x = (float *)twin_host(t, t->count - 1);
    for (int64_t i = 0; i < n; i++)
        x[i] = i % 97 == 5    ? 0.0f
               : i % 131 == 7 ? (positive ? INFINITY : -INFINITY)
                              : ldexpf(x[i], (int)(i / 64 % 200) - 100 - (int)(i % 17));
}

static void whole_arrays(struct twin *t, int64_t n)
{
    static const accel_dtype_t storage[] = { ACCEL_F32, ACCEL_BF16 };

    for (int k = 0; k < 8; k++) {
        struct twin_call c = { .n = n,
                               .type = storage[k % 2],
                               .other = k & 2 ? ACCEL_F16 : ACCEL_F8E4M3,
                               .flag = k & 4 };

        if (c.flag && c.other != ACCEL_F16)
            continue;
        scaled_values(t, n, c.other, false);
        twin_values(t, c.type, n, 0, -1, 1);
        wide_values(t, n, c.flag);
        scaled_values(t, n, c.other, false);
        twin_run(t, there_and_back, &c, "%lld %s of %s with scales, and back",
                 (long long)n, c.flag ? "squares" : "numbers",
                 accel_dtype_name(c.other));
    }
    wide_values(t, n, false);
    scaled_values(t, n, ACCEL_F8E4M3, false);
    twin_run(t, narrow_sum, &(struct twin_call){ .n = n }, "a sum of %lld gradients",
             (long long)n);
}

/* Squares whose gradient is 0 and which are the least of their block: a step that
 * rounds stochastically must not make them 0. */
static void small_squares(struct twin *t, int64_t n)
{
    uint8_t *g = (uint8_t *)twin_host(t, 1);
    uint16_t *v = (uint16_t *)twin_host(t, 3);

    for (int64_t i = 3; i < n; i += 7) {
        g[i] = 0;
        v[i] = 1;
    }
}

/* ---- steps ----------------------------------------------------------------------- */

enum form { NONE, FLOATS, BF16, CODES, SCALED };

struct row {
    const char *name;
    enum form weight, gradient, m, v;
    struct optim_step k;
};

static struct moments moments_at(enum form form, void *data, void *scale, int64_t at)
{
    struct moments x = { NULL, NULL };

    if (form == FLOATS)
        x.data = (float *)data + at;
    if (form == CODES) {
        x.data = (uint8_t *)data + at;
        x.scale = (uint16_t *)scale + at / MOMENT_BLOCK;
    }
    return x;
}

static struct scaled scaled_at(enum form form, void *data, int64_t n,
                               accel_dtype_t type, int64_t at)
{
    return form == SCALED ? scaled_from(scaled_in(data, n, type), at)
                          : (struct scaled){ NULL, NULL, type };
}

/* Ranges of one parameter, whose numbers go on beyond 2^32. Where gradients are float32
 * the middle one is not trained. a: weights, gradients, m, v, and the scales of codes.
 * */
static void update(const struct backend *be, void *const *a, const struct twin_call *c)
{
    const struct row *row = (const struct row *)c->more;
    const int64_t third = c->n / 3 / SCALED_BLOCK * SCALED_BLOCK;
    const int64_t cut[] = { 0, third, 2 * third, c->n };
    struct optim_step k[2] = { row->k, row->k };
    struct scaled_arrays with[3];
    struct update_span x[3];

    k[1].lion.lr *= 2;
    k[1].sgd.lr *= 2;
    for (int i = 0; i < 3; i++) {
        const int64_t at = cut[i];
        const bool idle = i == 1 && row->gradient == FLOATS;

        with[i] =
            (struct scaled_arrays){ scaled_at(row->weight, a[0], c->n, ACCEL_F16, at),
                                    scaled_at(row->gradient, a[1], c->n, ACCEL_F8E4M3,
                                              at),
                                    scaled_at(row->m, a[2], c->n, ACCEL_F8E4M3, at),
                                    scaled_at(row->v, a[3], c->n, ACCEL_F16, at) };
        x[i] = (struct update_span){
            .p = row->weight == FLOATS ? (float *)a[0] + at : NULL,
            .narrow = row->weight == BF16 ? (uint16_t *)a[0] + at : NULL,
            .scaled = &with[i],
            .g = row->gradient == FLOATS ? (float *)a[1] + at : NULL,
            .m = moments_at(row->m, a[2], a[4], at),
            .v = moments_at(row->v, a[3], a[5], at),
            .n = cut[i + 1] - at,
            .step = idle ? -1 : i % 2,
            .name = 77,
            .first = ((int64_t)1 << 32) - 2 * SCALED_BLOCK + at
        };
    }
    be->update(be, x, 3, k);
}

static void form_values(struct twin *t, int64_t n, enum form form, accel_dtype_t type,
                        bool positive)
{
    switch (form) {
    case NONE:
        twin_none(t);
        break;
    case SCALED:
        scaled_values(t, n, type, positive);
        break;
    case CODES:
        twin_values(t, ACCEL_U8, n, 0, 0, 256);
        break;
    case BF16:
        twin_values(t, ACCEL_BF16, n, 0, -1, 1);
        break;
    case FLOATS:
        twin_values(t, ACCEL_F32, n, 0, positive ? 0 : -1, 1);
        grid(t, n, 0x1p-10f);
    }
}

/* Powers of two, as scales of codes. */
static void code_scales(struct twin *t, int64_t n, enum form form)
{
    const int64_t scales = (int64_t)moment_scales(n);
    uint16_t *x;

    if (form != CODES) {
        twin_none(t);
        return;
    }
    twin_values(t, ACCEL_U16, scales, 0, 0, 1);
    x = (uint16_t *)twin_host(t, t->count - 1);
    for (int64_t i = 0; i < scales; i++)
        x[i] = (uint16_t)((115 + i % 5) << 7);
}

/* A rate of 0 leaves adamw's weights without a division, and draws as they are. */
#define ADAMW(rate)                                                                    \
    {                                                                                  \
        ACCEL_ADAMW, 5, .adamw = {                                                     \
            0.5f,                                                                      \
            0.5f,                                                                      \
            0.5f,                                                                      \
            0.5f,                                                                      \
            rate,                                                                      \
            1.02f,                                                                     \
            1e-8f,                                                                     \
            1.0f,                                                                      \
            1.0f                                                                       \
        }                                                                              \
    }
#define LION                                                                           \
    {                                                                                  \
        ACCEL_LION, 5, .lion = { 0x1p-12f, 0.5f, 0.5f, 0.5f, 0.5f, 1.0f, 1.0f }        \
    }
#define SGD(momentum)                                                                  \
    {                                                                                  \
        ACCEL_SGD, 5, .sgd = { 0x1p-6f, momentum, 1.0f, momentum, 0.0f, 1.0f }         \
    }

static const struct row rows[] = {
    { "adamw: all with scales", SCALED, SCALED, SCALED, SCALED, ADAMW(0.0f) },
    { "adamw: float32 weights", FLOATS, SCALED, SCALED, SCALED, ADAMW(3e-4f) },
    { "adamw: moments alone", FLOATS, FLOATS, SCALED, SCALED, ADAMW(3e-4f) },
    { "adamw: float32 moments", SCALED, SCALED, FLOATS, FLOATS, ADAMW(0.0f) },
    { "adamw: 8-bit moments", SCALED, SCALED, CODES, CODES, ADAMW(0.0f) },
    { "adamw: bfloat16 weights", BF16, SCALED, SCALED, SCALED, ADAMW(0.0f) },
    { "lion: all with scales", SCALED, SCALED, SCALED, NONE, LION },
    { "lion: 8-bit moments", SCALED, FLOATS, CODES, NONE, LION },
    { "momentum: weights and gradients", SCALED, SCALED, FLOATS, NONE, SGD(0.5f) },
    { "sgd: weights and gradients", SCALED, SCALED, NONE, NONE, SGD(0.0f) },
    { "sgd: gradients alone", FLOATS, SCALED, NONE, NONE, SGD(0.0f) },
};

static void steps(struct twin *t, int64_t n)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        const struct twin_call c = { .n = n, .more = row };

        form_values(t, n, row->weight, ACCEL_F16, false);
        form_values(t, n, row->gradient, ACCEL_F8E4M3, false);
        form_values(t, n, row->m, ACCEL_F8E4M3, false);
        form_values(t, n, row->v, ACCEL_F16, true);
        if (row->gradient == SCALED && row->v == SCALED)
            small_squares(t, n);
        code_scales(t, n, row->m);
        code_scales(t, n, row->v);
        twin_run(t, update, &c, "with scales, %s, of %lld", row->name, (long long)n);
    }
}

void twin_scaled(struct twin *t)
{
    static const int64_t lengths[] = { 1, 31, 32, 257, 8192 + 3 * 96 + 5, 40000 };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lengths); i++) {
        whole_arrays(t, lengths[i]);
        steps(t, lengths[i]);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Twins of what goes element by element: fill, casts, sums, activations, dropout,
 * optimizers.
 */
#include <math.h>
#include <string.h>

#include "backend/maths.h"
#include "tests/unit/twin.h"

/* Nothing, one, around a pack and a block, primes, more than a grid has threads for. */
static const int64_t lengths[] = { 0, 1, 2, 7, 8, 9, 31, 1021, 4099, 70001 };

#define EACH_LENGTH(i) for (size_t i = 0; i < ACCEL_ARRAY_SIZE(lengths); i++)
#define EACH_TYPE(type)                                                                \
    for (accel_dtype_t type = ACCEL_F32; type <= ACCEL_BF16;                           \
         type = (accel_dtype_t)(type + 1))

static void fill(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->fill(be, a[0], c->type, c->n, c->by);
}

static void add(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->add(be, c->flag ? a[1] : a[0], a[1], a[2], c->type, c->n);
}

static void act(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->act(be, c->flag ? a[1] : a[0], a[1], c->type, c->n, (accel_activation_t)c->act);
}

static void act_grad(const struct backend *be, void *const *a,
                     const struct twin_call *c)
{
    be->act_grad(be, a[0], c->add, a[1], a[2], c->type, c->n,
                 (accel_activation_t)c->act);
}

static void gated(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->gated(be, a[0], a[1], a[2], c->type, c->n, (accel_activation_t)c->act);
}

static void gated_grad(const struct backend *be, void *const *a,
                       const struct twin_call *c)
{
    be->gated_grad(be, a[0], c->add, a[1], c->flag, a[2], a[3], a[4], c->type, c->n,
                   (accel_activation_t)c->act);
}

static void dropout(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->dropout(be, a[0], c->add, a[1], c->type, c->n, (const struct mask *)c->more);
}

static void cast(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->cast(be, a[0], c->type, c->add, a[1], c->other, c->n);
}

static void narrow(const struct backend *be, void *const *a, const struct twin_call *c)
{
    be->narrow(be, a[0], a[1], c->n);
    be->widen(be, (float *)a[2], a[0], c->n);
}

static void narrow_in_place(const struct backend *be, void *const *a,
                            const struct twin_call *c)
{
    be->narrow(be, a[0], a[0], c->n);
}

static void activations(struct twin *t, struct twin_call c, int64_t shift)
{
    for (c.act = ACCEL_ACT_NONE; c.act <= ACCEL_ACT_TANH; c.act++) {
        const char *type = accel_dtype_name(c.type);

        for (int k = 0; k < 2; k++)
            twin_values(t, c.type, c.n, shift, -9, 9);
        twin_run(t, act, &c, "act %d of %lld %s", c.act, (long long)c.n, type);
        for (int k = 0; k < 3; k++)
            twin_values(t, c.type, c.n, shift, -9, 9);
        twin_run(t, act_grad, &c, "act_grad %d of %lld %s, add %d", c.act,
                 (long long)c.n, type, c.add);
        for (int k = 0; k < 3; k++)
            twin_values(t, c.type, c.n, shift, -9, 9);
        twin_run(t, gated, &c, "gated %d of %lld %s", c.act, (long long)c.n, type);
        for (int k = 0; k < 5; k++)
            if (k == (c.act % 3 == 2 ? 0 : c.act % 3 == 1 ? 1 : 5))
                twin_none(t);
            else
                twin_values(t, c.type, c.n, shift, -9, 9);
        twin_run(t, gated_grad, &c, "gated_grad %d of %lld %s, add %d %d", c.act,
                 (long long)c.n, type, c.add, c.flag);
    }
}

static void dropouts(struct twin *t, struct twin_call c, int64_t shift)
{
    static const uint64_t first[] = { 0, 4, 1, 2, 3, 0x3fffffffdu };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(first); i++) {
        const struct mask mask = { 42, MATHS_MASK_STREAM + 3, first[i], 0x40000000u,
                                   4.0f / 3.0f };

        c.more = &mask;
        for (int k = 0; k < 2; k++)
            twin_values(t, c.type, c.n, shift, -1, 1);
        twin_run(t, dropout, &c, "dropout of %lld %s from %llu on, add %d",
                 (long long)c.n, accel_dtype_name(c.type), (unsigned long long)first[i],
                 c.add);
    }
}

static void casts(struct twin *t, struct twin_call c, int64_t shift)
{
    for (int from = ACCEL_F32; from <= ACCEL_I64; from++) {
        const bool is_signed = from != ACCEL_U16 && from != ACCEL_U8;

        c.other = (accel_dtype_t)from;
        twin_values(t, c.type, c.n, shift, -200, 200);
        twin_values(t, c.other, c.n, shift, is_signed ? -250 : 0, 250);
        twin_run(t, cast, &c, "cast of %lld %s to %s, add %d", (long long)c.n,
                 accel_dtype_name(c.other), accel_dtype_name(c.type), c.add);
    }
}

static void narrows(struct twin *t, struct twin_call c, int64_t shift)
{
    twin_values(t, ACCEL_BF16, c.n, shift, 0, 1);
    twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
    twin_values(t, ACCEL_F32, c.n, shift, 0, 1);
    twin_run(t, narrow, &c, "narrow and widen %lld", (long long)c.n);
    twin_values(t, ACCEL_F32, c.n, shift, -1, 1);
    if (c.n > 3) {
        ((float *)twin_host(t, 0))[1] = NAN;
        ((float *)twin_host(t, 0))[3] = -INFINITY;
    }
    twin_run(t, narrow_in_place, &c, "narrow %lld in place", (long long)c.n);
}

static void sums(struct twin *t, struct twin_call c, int64_t shift)
{
    twin_values(t, c.type, c.n, shift, 0, 1);
    twin_run(t, fill, &c, "fill of %lld %s", (long long)c.n, accel_dtype_name(c.type));
    for (int k = 0; k < 3; k++)
        twin_values(t, c.type, c.n, k == 1 ? 0 : shift, -1, 1);
    twin_run(t, add, &c, "add of %lld %s, in place %d", (long long)c.n,
             accel_dtype_name(c.type), c.flag);
}

void twin_elements(struct twin *t)
{
    EACH_LENGTH(i)
    EACH_TYPE(type)
    {
        struct twin_call c = {
            .type = type, .n = lengths[i], .add = i % 2, .flag = i % 3 == 0, .by = -1.7f
        };
        const int64_t shift = i % 4 == 3 ? 1 : 0;

        sums(t, c, shift);
        casts(t, c, shift);
        dropouts(t, c, shift);
        if (c.n < 5000)
            activations(t, c, shift);
        if (type == ACCEL_F32)
            narrows(t, c, shift);
    }
}

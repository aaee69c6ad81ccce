/* SPDX-License-Identifier: Apache-2.0
 *
 * Initial values of the parameters. They are drawn when parameters are first needed, so
 * that those read from a file cost nothing. In: a seed. Out: the masters of this rank.
 * Never communicates.
 */
#include "shard/shard_impl.h"

#include <math.h>
#include <string.h>

#include "numbers/rng.h"

/* Elements [4 * block, 4 * block + 4) of a parameter: Box-Muller in double on two pairs
 * of Philox words, rounded once. */
static void draw(accel_init_t init, uint64_t seed, uint64_t name, int64_t block,
                 float values_out[4])
{
    const double two_pi = 6.283185307179586476925;
    uint32_t bits[4];

    rng_block(seed, name, (uint64_t)block, bits);
    for (int i = 0; i < 4; i += 2) {
        double a = rng_unit(bits[i]), b = rng_unit(bits[i + 1]);

        if (init.kind == ACCEL_INIT_UNIFORM) {
            /* rounding up to +scale is out of [-scale, scale): step back inside */
            float top = nextafterf(init.scale, -init.scale);

            values_out[i] = fminf((float)((2 * a - 1) * init.scale), top);
            values_out[i + 1] = fminf((float)((2 * b - 1) * init.scale), top);
        } else {
            double r = sqrt(-2.0 * log(a)) * init.scale;

            values_out[i] = (float)(r * cos(two_pi * b));
            values_out[i + 1] = (float)(r * sin(two_pi * b));
        }
    }
}

/* Elements [begin, end) of parameter p into dst, host memory. The name is hashed, so
 * values do not depend on units, order or ranks. */
static void init_range(const accel_tensor_t *p, uint64_t seed, int64_t begin,
                       int64_t end, float *dst)
{
    uint64_t name = shard_name_hash(p);

    if (p->param->values) {
        memcpy(dst, p->param->values + begin, (size_t)(end - begin) * sizeof(*dst));
        return;
    }
    if (p->init.kind != ACCEL_INIT_NORMAL && p->init.kind != ACCEL_INIT_UNIFORM) {
        float v = p->init.kind == ACCEL_INIT_ZEROS  ? 0.0f
                  : p->init.kind == ACCEL_INIT_ONES ? 1.0f
                                                    : p->init.scale;

        for (int64_t i = 0; i < end - begin; i++)
            dst[i] = v;
        return;
    }
#pragma omp parallel for schedule(static) if (end - begin > 4096)
    for (int64_t b = begin / 4; b < (end + 3) / 4; b++) {
        float four[4];

        draw(p->init, seed, name, b, four);
        for (int64_t i = 4 * b; i < 4 * b + 4; i++) {
            if (i >= begin && i < end)
                dst[i - begin] = four[i - 4 * b];
        }
    }
}

/* Elements that are drawn at a time before they are narrowed. */
#define NARROW_ELEMS 4096

/* Elements [b, e) of p into narrow masters, to the nearest. */
static void init_narrow(const struct shard *s, const accel_tensor_t *p, int64_t b,
                        int64_t e, int64_t at)
{
#pragma omp parallel for schedule(static) if (e - b > NARROW_ELEMS)
    for (int64_t i = b; i < e; i += NARROW_ELEMS) {
        const int64_t n = e - i < NARROW_ELEMS ? e - i : NARROW_ELEMS;
        float values[NARROW_ELEMS];

        init_range(p, s->store.seed, i, i + n, values);
        shard_narrow_masters(s, at + i - b, n, values);
    }
}

/* What this rank stores of p: in place, or by way of the host, a piece at a time.
 * The piece is taken before shard_put_masters returns, so `stage` can be used again. */
static void init_param(struct shard *s, const struct shard_unit *u,
                       const accel_tensor_t *p)
{
    const accel_dtype_t type = s->o.precision.masters;
    int64_t b, e, n, at;

    if (!shard_param_range(p, u->first, u->stored, &b, &e))
        return;
    at = u->at + p->param->unit_offset + b - u->first;
    if (!s->home->device && type != ACCEL_F32) {
        init_narrow(s, p, b, e, at);
        return;
    }
    if (!s->home->device) {
        init_range(p, s->store.seed, b, e, (float *)shard_master_at(s, at));
        return;
    }
    for (; b < e; b += n, at += n) {
        n = e - b < SHARD_STAGE_ELEMS ? e - b : SHARD_STAGE_ELEMS;
        init_range(p, s->store.seed, b, b + n, s->store.stage);
        if (shard_has_scaled_masters(s))
            shard_put_scaled(s->home, shard_scaled_at(s, at), s->store.stage, n);
        else
            shard_put_masters(s->home, shard_master_at(s, at), type, s->store.stage, n);
    }
}

/* Every rank computes its part as a function of (seed, name, element). That is what
 * sync_module_states asks for, without a byte sent. */
void shard_init(struct shard *s, uint64_t seed)
{
    bool *undrawn = s->store.undrawn;

    s->store.seed = seed;
    if (s->store.grad_in_window) /* the other memory came zeroed */
        s->be->zero(s->be, s->store.grad, s->layout.memory.gradient_shard);
    for (int i = 0; i < s->layout.units; i++) {
        const struct shard_unit *u = &s->layout.unit[i];

        for (int j = 0; j < u->def->param_count; j++, undrawn++) {
            *undrawn = !u->def->param[j]->param->values;
            /* the program's array may be gone after accel_prepare */
            if (!*undrawn)
                init_param(s, u, u->def->param[j]);
        }
    }
    s->store.all_drawn = false;
    shard_loaded(s);
}

void shard_given(struct shard *s, const accel_tensor_t *p)
{
    bool *undrawn = s->store.undrawn;

    for (int i = 0; i < s->layout.units; i++)
        for (int j = 0; j < s->layout.unit[i].def->param_count; j++, undrawn++)
            if (s->layout.unit[i].def->param[j] == p)
                *undrawn = false;
}

/* Also before a save or an update, which would otherwise see zeros. The gathers that
 * may read the masters are waited for. */
void shard_draw(struct shard *s)
{
    bool *undrawn = s->store.undrawn;

    if (s->store.all_drawn)
        return;
    shard_ring_settle(s);
    for (int i = 0; i < s->layout.units; i++) {
        const struct shard_unit *u = &s->layout.unit[i];

        for (int j = 0; j < u->def->param_count; j++, undrawn++) {
            if (*undrawn)
                init_param(s, u, u->def->param[j]);
            *undrawn = false;
        }
    }
    s->store.all_drawn = true;
    shard_loaded(s);
}

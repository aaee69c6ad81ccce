/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to the shards besides communication: initial values, norm of the gradient,
 * the optimizer's step. Works on the ranges stored here, parameter by parameter; gaps and padding stay
 * zero. Never communicates.
 */
#include "shard/shard_impl.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "common/rng.h"

/* Elements [4 * block, 4 * block + 4) of a parameter. Box-Muller in double on two pairs of
 * Philox words, rounded once. */
static void draw(accel_init_t init, uint64_t seed, uint64_t name, int64_t block,
                 float out[4])
{
    const double two_pi = 6.283185307179586476925;
    uint32_t bits[4];

    rng_block(seed, name, (uint64_t)block, bits);
    for (int i = 0; i < 4; i += 2) {
        double a = rng_unit(bits[i]), b = rng_unit(bits[i + 1]);

        if (init.kind == ACCEL_INIT_UNIFORM) {
            /* rounding up to +scale is out of [-scale, scale): step back inside */
            float top = nextafterf(init.scale, -init.scale);

            out[i] = fminf((float)((2 * a - 1) * init.scale), top);
            out[i + 1] = fminf((float)((2 * b - 1) * init.scale), top);
        } else {
            double r = sqrt(-2.0 * log(a)) * init.scale;

            out[i] = (float)(r * cos(two_pi * b));
            out[i + 1] = (float)(r * sin(two_pi * b));
        }
    }
}

/* Elements [begin, end) of parameter p into dst. */
static void init_range(const accel_tensor_t *p, uint64_t seed, int64_t begin,
                       int64_t end, float *dst)
{
    uint64_t name = XXH3_64bits(p->name, strlen(p->name));

    if (p->values) {
        memcpy(dst, p->values + begin, (size_t)(end - begin) * sizeof(*dst));
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

/* The values are a function of (seed, name, element) on every rank: that is what
 * sync_module_states asks for, without a byte sent. */
void shard_init(struct shard *s, uint64_t seed)
{
    s->be->zero(s->be, s->master, s->memory.master);
    for (int k = 0; k < s->states; k++)
        s->be->zero(s->be, s->state[k], (size_t)s->state_elems * sizeof(float));
    s->be->zero(s->be, s->grad, s->memory.gradient_shard);
    for (int i = 0; i < s->units; i++) {
        const struct shard_unit *u = &s->unit[i];

        for (int j = 0; j < u->def->param_count; j++) {
            const accel_tensor_t *p = u->def->param[j];
            int64_t b, e;

            if (shard_param_range(p, u->first, u->stored, &b, &e))
                init_range(p, seed, b, e,
                           s->master + u->at + (p->unit_offset + b - u->first));
        }
    }
    shard_loaded(s);
}

void shard_each_gradient(struct shard *s, accel_gradient_f fn, void *user)
{
    for (int i = 0; i < s->units; i++) {
        const struct shard_unit *u = &s->unit[i];

        for (int j = 0; j < u->def->param_count; j++) {
            const accel_tensor_t *p = u->def->param[j];
            int64_t b, e;

            if (p->needs_grad && shard_param_range(p, u->first, u->stored, &b, &e))
                fn(user, p->name,
                   s->grad + u->grad_at + (p->unit_offset + b - u->first), b, e - b);
        }
    }
}

double shard_grad_sumsq(struct shard *s)
{
    int spans = 0;

    for (int i = 0; i < s->units; i++) {
        const struct shard_unit *u = &s->unit[i];
        int64_t own_first = s->rank * u->own - u->first;
        int64_t n = u->state - own_first < u->own ? u->state - own_first : u->own;

        if (n > 0)
            s->span[spans++] = (struct span){ s->grad + u->grad_at + own_first, n };
    }
    return s->be->sumsq(s->be, s->span, spans);
}

/* Elements [b, e) of parameter p of unit u. */
static void update_range(struct shard *s, const struct shard_unit *u,
                         const accel_tensor_t *p, int64_t b, int64_t e,
                         const struct optim_step *k)
{
    int64_t at = p->unit_offset + b - u->first;
    float *state[OPTIM_MAX_STATE] = { NULL };

    for (int i = 0; i < s->states; i++)
        state[i] = s->state[i] + u->state_at + at;
    optim_apply(s->be, k, s->master + u->at + at, state, s->grad + u->grad_at + at,
                e - b);
}

/* Elements [from, to) of unit u, from the first one stored: what no optimizer zeroed. */
static void zero_gap(struct shard *s, const struct shard_unit *u, int64_t from,
                     int64_t to)
{
    if (u->grad_at >= 0 && to > from)
        s->be->zero(s->be, s->grad + u->grad_at + from,
                    (size_t)(to - from) * sizeof(float));
}

void shard_update(struct shard *s, float lr, int64_t t, float grad_scale)
{
    for (int i = 0; i < s->units; i++) {
        const struct shard_unit *u = &s->unit[i];
        int64_t zeroed = 0;

        for (int j = 0; j < u->def->param_count; j++) {
            const accel_tensor_t *p = u->def->param[j];
            const struct optim_param own = { p->lr_scale, p->weight_decay, false, -1 };
            struct optim_step k;
            int64_t b, e;

            if (!p->needs_grad || !shard_param_range(p, u->first, u->stored, &b, &e))
                continue;
            k = optim_step_of(&s->o.optimizer, &own, lr, t, grad_scale);
            update_range(s, u, p, b, e, &k);
            zero_gap(s, u, zeroed, p->unit_offset + b - u->first);
            zeroed = p->unit_offset + e - u->first;
        }
        zero_gap(s, u, zeroed, u->stored);
    }
    shard_loaded(s);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to the shards besides communication: norm of the gradient, the optimizer's
 * step. Works on the ranges stored here, parameter by parameter; gaps and padding stay zero.
 * Never communicates.
 */
#include "shard/shard_impl.h"

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
    shard_draw(s);
    shard_ring_settle(s);
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

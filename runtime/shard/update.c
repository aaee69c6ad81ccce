/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens to the shards besides communication: the norm of the gradient and the
 * optimizer's step. Works on the ranges stored here, parameter by parameter; gaps and
 * padding stay zero. Never communicates.
 */
#include "shard/shard_impl.h"

#include <stdlib.h>

/* Offloaded: device-to-host copies are complete after this, and what the device reads
 * at home may change. The device keeps a failure and reports it with its next check. */
void shard_settle_home(struct shard *s)
{
    accel_error_t kept;

    if (s->offloaded)
        s->be->sync(s->be, &kept);
}

/* Calls fn for one piece: in place, or on a copy on the host that is taken back. */
static accel_status_t show(const struct shard *s, accel_gradient_f fn, void *user,
                           const char *name, float *g, int64_t first, int64_t count,
                           accel_error_t *err)
{
    size_t bytes = (size_t)count * sizeof(*g);
    float *copy;

    if (!s->home->device) {
        fn(user, name, g, first, count);
        return ACCEL_OK;
    }
    copy = malloc(bytes);
    if (!copy)
        return accel_fail_nomem(err, "a copy of a gradient on the host", bytes);
    s->be->to_host_bytes(s->be, copy, g, bytes);
    fn(user, name, copy, first, count);
    s->be->from_host(s->be, g, copy, bytes);
    free(copy);
    return s->be->check(s->be, err);
}

accel_status_t shard_each_gradient(struct shard *s, accel_gradient_f fn, void *user,
                                   accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < s->units; i++) {
        const struct shard_unit *u = &s->unit[i];

        for (int j = 0; j < u->def->param_count && !st; j++) {
            const accel_tensor_t *p = u->def->param[j];
            int64_t b, e;

            if (p->needs_grad && shard_param_range(p, u->first, u->stored, &b, &e))
                st = show(s, fn, user, p->name,
                          s->grad + u->grad_at + (p->unit_offset + b - u->first), b,
                          e - b, err);
        }
    }
    return st;
}

/* Ranks that hold copies of a part share it, in equal pieces; the last may be empty. */
void shard_answers(const struct shard *s, const struct shard_unit *u,
                   int64_t *first_out, int64_t *count_out)
{
    int copies = s->copies ? comm_size(s->copies) : 1;
    int64_t each = (u->own + copies - 1) / copies;
    int64_t from = s->copies ? comm_rank(s->copies) * each : 0;

    from = from < u->own ? from : u->own;
    *first_out = s->rank * u->own + from;
    *count_out = u->own - from < each ? u->own - from : each;
}

/* Spans of trained elements only: `state` ends where the frozen ones begin. */
double shard_grad_sumsq(struct shard *s)
{
    int spans = 0;

    for (int i = 0; i < s->units; i++) {
        const struct shard_unit *u = &s->unit[i];
        int64_t first, count, at, n;

        shard_answers(s, u, &first, &count);
        at = first - u->first;
        n = u->state - at < count ? u->state - at : count;
        if (n > 0)
            s->span[spans++] = (struct span){ s->grad + u->grad_at + at, n };
    }
    shard_settle_home(s);
    return s->home->sumsq(s->home, s->span, spans);
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
    optim_apply(s->home, k, s->master + u->at + at, state, s->grad + u->grad_at + at,
                e - b);
}

/* Zeroes the gradient of stored elements [from, to) of unit u: those of frozen
 * parameters and gaps, which no optimizer has zeroed. */
static void zero_gap(struct shard *s, const struct shard_unit *u, int64_t from,
                     int64_t to)
{
    if (u->grad_at >= 0 && to > from)
        s->home->zero(s->home, s->grad + u->grad_at + from,
                      (size_t)(to - from) * sizeof(float));
}

/* The constants of a step are made once per parameter, from its group's own learning
 * rate and weight decay. */
void shard_update(struct shard *s, float lr, int64_t t, float grad_scale)
{
    shard_draw(s);
    shard_ring_settle(s);
    shard_settle_home(s);
    for (int i = 0; i < s->units; i++) {
        struct shard_unit *u = &s->unit[i];
        int64_t zeroed = 0;

        u->partial = false;
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

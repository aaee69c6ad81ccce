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

accel_status_t shard_each_gradient(struct shard *s, int optim, accel_gradient_f fn,
                                   void *user, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; i < s->units; i++) {
        const struct shard_unit *u = &s->unit[i];

        for (int j = 0; u->def->optim == optim && j < u->def->param_count && !st; j++) {
            const accel_tensor_t *p = u->def->param[j];
            int64_t b, e;

            if (param_is_trained(p) &&
                shard_param_range(p, u->first, u->stored, &b, &e))
                st = show(s, fn, user, tensor_full_name(p),
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

/* Spans of trained elements only: `state` ends where the frozen ones begin. With local
 * SGD no two ranks have the same gradients, and each answers for all of its own. */
static int trained_spans(struct shard *s, int optim)
{
    int spans = 0;

    for (int i = 0; i < s->units; i++) {
        const struct shard_unit *u = &s->unit[i];
        int64_t first, count, at, n;

        if (u->def->optim != optim)
            continue;
        shard_answers(s, u, &first, &count);
        if (s->o.local) {
            first = u->first;
            count = u->stored;
        }
        at = first - u->first;
        n = u->state - at < count ? u->state - at : count;
        if (n > 0)
            s->span[spans++] = (struct span){ s->grad + u->grad_at + at, n };
    }
    return spans;
}

/* A device's sum is queued ahead of the wait. At home gradients are complete after
 * it. */
accel_status_t shard_grad_sumsq(struct shard *s, int optim, double *sum_out,
                                accel_error_t *err)
{
    const int spans = trained_spans(s, optim);
    accel_status_t st;

    if (!s->offloaded)
        s->be->sumsq(s->be, s->sumsq, s->span, spans);
    st = s->be->sync(s->be, err);
    if (st)
        return st;
    if (s->offloaded)
        s->home->sumsq(s->home, s->sumsq, s->span, spans);
    *sum_out = *s->sumsq;
    return ACCEL_OK;
}

/* Does `to` begin where `from`, of n elements, ends? Arrays that are not there do. */
static bool goes_on(const float *from, int64_t n, const float *to)
{
    return !from ? !to : from + n == to;
}

/* Appends stored elements [from, to) of unit u to the ranges of this step, with its
 * constants; step -1: they are not trained (frozen parameters or gaps) and only have
 * their gradient zeroed. A range that goes on where the last one ends becomes part
 * of it. */
static void add_range(struct shard *s, const struct shard_unit *u, int64_t from,
                      int64_t to, int step)
{
    struct update_span x = { .g = s->grad + u->grad_at + from,
                             .n = to - from,
                             .step = step };
    struct update_span *last = s->ranges ? &s->range[s->ranges - 1] : NULL;
    const struct shard_trainer *t = &s->trainer[u->def->optim];

    if (u->grad_at < 0 || to <= from)
        return;
    if (step >= 0) {
        x.p = s->master + u->at + from;
        x.m = t->states > 0 ? t->state[0] + u->state_at + from : NULL;
        x.v = t->states > 1 ? t->state[1] + u->state_at + from : NULL;
    }
    if (last && last->step == step && goes_on(last->p, last->n, x.p) &&
        goes_on(last->m, last->n, x.m) && goes_on(last->v, last->n, x.v) &&
        goes_on(last->g, last->n, x.g))
        last->n += x.n;
    else
        s->range[s->ranges++] = x;
}

/* The number of the step's constants for p, from its group's own learning rate and
 * weight decay. */
static int step_of_param(struct shard *s, const accel_optimizer_t *o,
                         const accel_tensor_t *p, float lr, int64_t t, float grad_scale)
{
    const struct optim_param own = { p->lr_scale, p->weight_decay, false, -1 };

    for (int i = 0; i < s->steps; i++)
        if (s->step_like[i]->lr_scale == p->lr_scale &&
            s->step_like[i]->weight_decay == p->weight_decay)
            return i;
    s->step[s->steps] = optim_step_of(o, &own, lr, t, grad_scale);
    s->step_like[s->steps] = p;
    return s->steps++;
}

/* The gradients are zero, and nothing of them has been reduced. */
static void forget_gradients(struct shard *s, int optim)
{
    s->trainer[optim].dirty = false;
    s->trainer[optim].reduced = 0;
    for (int i = 0; i < s->units; i++)
        if (s->unit[i].def->optim == optim)
            s->unit[i].partial = false;
}

void shard_zero(struct shard *s, int optim)
{
    int64_t count;
    float *first;

    shard_settle_home(s);
    shard_wait_reduced(s);
    for (int at = 0; shard_next_gradients(s, optim, &at, &first, &count);)
        s->home->zero(s->home, first, (size_t)count * sizeof(*first));
    forget_gradients(s, optim);
}

void shard_updated(struct shard *s, int optim)
{
    forget_gradients(s, optim);
    shard_ring_drop(s, optim);
    s->copied = false;
    for (int i = 0; i < s->units; i++)
        if (s->unit[i].def->optim == optim)
            s->unit[i].fresh = false;
}

void shard_scale(struct shard *s, int optim, float factor)
{
    int64_t count;
    float *first;

    shard_settle_home(s);
    for (int at = 0; shard_next_gradients(s, optim, &at, &first, &count);)
        s->home->scale(s->home, first, count, factor);
}

/* NaN stays what it is: the step finds it. */
void shard_clamp(struct shard *s, int optim, float limit)
{
    int64_t count;
    float *first;

    shard_settle_home(s);
    for (int at = 0; shard_next_gradients(s, optim, &at, &first, &count);)
        s->home->clamp(s->home, first, count, limit);
}

/* Lists the unit's ranges for the optimizer's kernel. */
static void list_unit(struct shard *s, const struct shard_unit *u,
                      const accel_optimizer_t *o, float lr, int64_t t, float grad_scale)
{
    int64_t done = 0;

    for (int j = 0; j < u->def->param_count; j++) {
        const accel_tensor_t *p = u->def->param[j];
        int64_t b, e;

        if (!param_is_trained(p) || !shard_param_range(p, u->first, u->stored, &b, &e))
            continue;
        b += p->unit_offset - u->first;
        e += p->unit_offset - u->first;
        add_range(s, u, done, b, -1);
        add_range(s, u, b, e, step_of_param(s, o, p, lr, t, grad_scale));
        done = e;
    }
    add_range(s, u, done, u->stored, -1);
}

/* One call for all units: a device needs a launch or two. */
accel_status_t shard_update(struct shard *s, int optim, float lr, int64_t t,
                            float grad_scale, accel_error_t *err)
{
    const struct shard_trainer *trainer = &s->trainer[optim];
    accel_status_t st;

    shard_draw(s);
    shard_ring_settle(s);
    shard_settle_home(s);
    if (trainer->o.own.update) {
        st = shard_own_update(s, optim, lr, t, grad_scale, err);
        shard_zero(s, optim);
        shard_updated(s, optim);
        return st;
    }
    s->ranges = s->steps = 0;
    for (int i = 0; i < s->units; i++)
        if (s->unit[i].def->optim == optim)
            list_unit(s, &s->unit[i], &trainer->o.settings, lr, t, grad_scale);
    s->home->update(s->home, s->range, s->ranges, s->step);
    shard_updated(s, optim);
    return ACCEL_OK;
}

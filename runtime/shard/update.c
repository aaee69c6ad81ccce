/* SPDX-License-Identifier: Apache-2.0
 *
 * The computation on the shards: the norm of the gradient and the optimizer's step.
 * Works on the ranges stored here, parameter by parameter; gaps and padding stay zero.
 * Never communicates.
 */
#include "shard/shard_impl.h"

#include <stdlib.h>

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

    for (int i = 0; i < s->layout.units; i++) {
        const struct shard_unit *u = &s->layout.unit[i];
        const bool mine = u->optim == optim && u->grad_at >= 0;
        const bool narrow = mine && shard_has_narrow_gradients(s);
        float *own = narrow ? shard_widen_gradient(s, u)
                     : mine ? s->store.grad + u->grad_at
                            : NULL;

        for (int j = 0; mine && j < u->def->param_count && !st; j++) {
            const accel_tensor_t *p = u->def->param[j];
            int64_t b, e;

            if (param_is_trained(p) &&
                shard_param_range(p, u->first, u->stored, &b, &e))
                st = show(s, fn, user, tensor_full_name(p),
                          own + (p->param->unit_offset + b - u->first), b, e - b, err);
        }
        if (narrow)
            shard_narrow_gradient(s, u);
    }
    return st;
}

/* The trained elements of the unit that this rank answers for: `state` ends where the
 * frozen ones begin. With local SGD no two ranks have the same gradients, and each
 * answers for all of its own. Returns how many there are, from stored one *at_out
 * on. */
static int64_t answered(const struct shard *s, const struct shard_unit *u,
                        int64_t *at_out)
{
    int64_t first, count;

    shard_answers(s, u, &first, &count);
    if (s->o.local) {
        first = u->first;
        count = u->stored;
    }
    *at_out = first - u->first;
    return u->state - *at_out < count ? u->state - *at_out : count;
}

static int trained_spans(struct shard *s, int optim)
{
    int spans = 0;

    for (int i = 0; i < s->layout.units; i++) {
        const struct shard_unit *u = &s->layout.unit[i];
        int64_t at, n;

        if (u->optim != optim)
            continue;
        n = answered(s, u, &at);
        if (n > 0)
            s->step.span[spans++] = (struct span){ s->store.grad + u->grad_at + at, n };
    }
    return spans;
}

/* Queues the sums of what rests, a unit at a time: the widened numbers. Returns how
 * many sums there are. */
static int narrow_sums(const struct shard *s, int optim)
{
    int sums = 0;

    for (int i = 0; i < s->layout.units; i++) {
        const struct shard_unit *u = &s->layout.unit[i];
        struct span x;
        int64_t at;

        if (u->optim != optim || u->grad_at < 0)
            continue;
        x.n = answered(s, u, &at);
        if (x.n <= 0)
            continue;
        x.x = shard_widen_gradient(s, u) + at;
        s->be->sumsq(s->be, &s->step.sumsq[sums++], &x, 1);
    }
    return sums;
}

/* A device's sum is queued ahead of the wait. At home gradients are complete after
 * it. */
accel_status_t shard_grad_sumsq(struct shard *s, int optim, double *sum_out,
                                accel_error_t *err)
{
    const bool narrow = shard_has_narrow_gradients(s);
    const int spans = narrow ? 0 : trained_spans(s, optim);
    const int sums = narrow ? narrow_sums(s, optim) : 1;
    accel_status_t st;

    if (!narrow && !s->offloaded)
        s->be->sumsq(s->be, s->step.sumsq, s->step.span, spans);
    ACCEL_CHECK(st, s->be->sync(s->be, err));
    if (s->offloaded)
        s->home->sumsq(s->home, s->step.sumsq, s->step.span, spans);
    *sum_out = 0;
    for (int i = 0; i < sums; i++)
        *sum_out += s->step.sumsq[i];
    return ACCEL_OK;
}

/* Does `to` begin where `from`, of n elements, ends? Arrays that are not there do. */
static bool goes_on(const float *from, int64_t n, const float *to)
{
    return !from ? !to : from + n == to;
}

/* Does range y go on where x ends? Not with 8-bit moments or narrow parameters:
 * draws are those of one parameter. */
static bool joins(const struct update_span *x, const struct update_span *y)
{
    return x->step == y->step && !x->m.scale && !x->narrow && !x->scaled &&
           goes_on(x->p, x->n, y->p) && goes_on(x->m.data, x->n, y->m.data) &&
           goes_on(x->v.data, x->n, y->v.data) && goes_on(x->g, x->n, y->g);
}

/* Where x, the range that is appended next, has its parameters and gradients, from
 * those numbers on. */
static void place_range(const struct shard *s, struct update_span *x, int64_t master,
                        int64_t gradient)
{
    struct scaled_arrays *scaled =
        s->step.scaled ? &s->step.scaled[s->step.ranges] : NULL;

    x->scaled = scaled;
    if (scaled)
        *scaled = (struct scaled_arrays){ 0 };
    if (shard_has_scaled_masters(s))
        scaled->master = shard_scaled_at(s, master);
    else if (shard_has_narrow_masters(s))
        x->narrow = shard_master_at(s, master);
    else
        x->p = shard_master_at(s, master);
    if (shard_has_narrow_gradients(s))
        scaled->gradient = shard_gradient_at(s, gradient);
    else
        x->g = s->store.grad + gradient;
}

/* The same for the optimizer's state. */
static void place_state(const struct shard *s, struct update_span *x,
                        const struct shard_trainer *t, int64_t at)
{
    struct moments *const plain[] = { &x->m, &x->v };

    for (int k = 0; k < t->states; k++) {
        const struct state_array a = shard_array_at(t, k, at);

        *plain[k] = a.plain;
        if (a.scaled.data)
            *(k ? &s->step.scaled[s->step.ranges].v
                : &s->step.scaled[s->step.ranges].m) = a.scaled;
    }
}

/* Appends n elements of unit u, from stored one `from` on, to the ranges of this step;
 * x has what tells them apart, and step -1: they are not trained (frozen parameters or
 * gaps) and only have their gradient zeroed. A range that begins where the last one
 * ends becomes part of it. */
static void add_range(struct shard *s, const struct shard_unit *u, int64_t from,
                      int64_t n, struct update_span x)
{
    const struct shard_trainer *t = &s->store.trainer[u->optim];
    struct update_span *last =
        s->step.ranges ? &s->step.range[s->step.ranges - 1] : NULL;

    /* narrow gradients are zeroed together, after the step */
    if (u->grad_at < 0 || n <= 0 || (x.step < 0 && shard_has_narrow_gradients(s)))
        return;
    x.n = n;
    if (x.step < 0) {
        x.g = s->store.grad + u->grad_at + from;
    } else {
        place_range(s, &x, u->at + from, u->grad_at + from);
        place_state(s, &x, t, u->state_at + from);
    }
    if (last && joins(last, &x))
        last->n += n;
    else
        s->step.range[s->step.ranges++] = x;
}

/* The number of the step's constants for p, from its group's own learning rate and
 * weight decay. */
static int step_of_param(struct shard *s, const accel_optimizer_t *o,
                         const accel_tensor_t *p, float lr, int64_t t, float grad_scale)
{
    const struct optim_param own = { p->param->lr_scale, p->param->weight_decay, false,
                                     -1 };

    for (int i = 0; i < s->step.steps; i++)
        if (s->step.step_like[i]->param->lr_scale == p->param->lr_scale &&
            s->step.step_like[i]->param->weight_decay == p->param->weight_decay)
            return i;
    s->step.step[s->step.steps] = optim_step_of(o, &own, lr, t, grad_scale);
    s->step.step[s->step.steps].draws = shard_draws(s, t);
    s->step.step[s->step.steps].nearest = s->o.precision.masters_nearest;
    s->step.step_like[s->step.steps] = p;
    return s->step.steps++;
}

/* Lists the unit's ranges for the optimizer's kernel. */
static void list_unit(struct shard *s, const struct shard_unit *u,
                      const accel_optimizer_t *o, float lr, int64_t t, float grad_scale)
{
    const bool drawn = s->store.trainer[u->optim].form || shard_has_narrow_masters(s) ||
                       s->step.scaled;
    const struct update_span none = { .step = -1 };
    int64_t done = 0;

    for (int j = 0; j < u->def->param_count; j++) {
        const accel_tensor_t *p = u->def->param[j];
        struct update_span x = { 0 };
        int64_t b, e, at;

        if (!param_is_trained(p) || !shard_param_range(p, u->first, u->stored, &b, &e))
            continue;
        at = b + p->param->unit_offset - u->first;
        x.step = step_of_param(s, o, p, lr, t, grad_scale);
        x.name = drawn ? shard_name_hash(p) : 0;
        x.first = drawn ? b : 0;
        add_range(s, u, done, at - done, none);
        add_range(s, u, at, e - b, x);
        done = at + e - b;
    }
    add_range(s, u, done, u->stored - done, none);
}

/* One call for all units: a device needs a launch or two. */
accel_status_t shard_update(struct shard *s, int optim, float lr, int64_t t,
                            float grad_scale, accel_error_t *err)
{
    const struct shard_trainer *trainer = &s->store.trainer[optim];
    accel_status_t st;

    shard_draw(s);
    shard_readers_settle(s);
    shard_settle_home(s);
    if (trainer->o.own.update) {
        st = shard_own_update(s, optim, lr, t, grad_scale, err);
        shard_zero(s, optim);
        shard_updated(s, optim);
        return st;
    }
    s->step.ranges = s->step.steps = 0;
    for (int i = 0; i < s->layout.units; i++)
        if (s->layout.unit[i].optim == optim)
            list_unit(s, &s->layout.unit[i], &trainer->o.settings, lr, t, grad_scale);
    s->home->update(s->home, s->step.range, s->step.ranges, s->step.step);
    if (shard_has_narrow_gradients(s))
        shard_zero_gradients(s, optim);
    shard_updated(s, optim);
    return ACCEL_OK;
}

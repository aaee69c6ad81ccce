/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of Accelerate's accumulate (Accelerator._do_sync, GradientState), as a state
 * machine.
 */
#include "optim/accumulate.h"

/* ---- loaders --------------------------------------------------------------------- */

static int find_loader(const struct accumulate_loaders *l, const void *id)
{
    int at = 0;

    while (at < l->count && l->in[at].id != id)
        at++;
    return at;
}

void accumulate_loader_end(struct accumulate_loaders *l, const void *id)
{
    const int at = find_loader(l, id);

    if (at == l->count)
        return;
    l->count--;
    for (int i = at; i < l->count; i++)
        l->in[i] = l->in[i + 1];
}

accel_status_t accumulate_loader_begin(struct accumulate_loaders *l, const void *id,
                                       accel_error_t *err)
{
    accumulate_loader_end(l, id);
    if (l->count == ACCUMULATE_LOADERS)
        return accel_fail(err, A0983, "end the epoch of a loader before the next one",
                          "%d loaders are in the middle of an epoch at once",
                          ACCUMULATE_LOADERS + 1);
    l->in[l->count].id = id;
    l->in[l->count++].at_end = false;
    return ACCEL_OK;
}

void accumulate_loader_at_end(struct accumulate_loaders *l, const void *id, bool at_end)
{
    const int at = find_loader(l, id);

    if (at < l->count)
        l->in[at].at_end = at_end;
}

bool accumulate_at_end(const struct accumulate_loaders *l)
{
    return l->count > 0 && l->in[l->count - 1].at_end;
}

/* ---- groups ---------------------------------------------------------------------- */

accel_status_t accumulate_set(struct accumulate *a, const struct accumulate_rule *rule,
                              accel_error_t *err)
{
    if (rule->every < 1)
        return accel_fail(err, A0983, "accumulate over at least one micro-batch",
                          "gradients cannot accumulate over %lld micro-batches",
                          (long long)rule->every);
    a->rule = *rule;
    return ACCEL_OK;
}

void accumulate_next(struct accumulate *a, bool at_end)
{
    const int64_t k = a->rule.every;

    if (!a->in_group) {
        a->micro = 0;
        a->weight = 0;
        a->one_k = true;
    }
    a->one_k = a->one_k && (a->micro == 0 || a->latest == k);
    a->latest = k;
    a->micro++;
    a->weight += 1.0 / (double)k;
    if (at_end && !a->rule.across_epochs) {
        a->step = 0;
        a->in_group = false;
    } else {
        a->step++;
        a->in_group = a->step % k != 0;
    }
}

bool accumulate_syncs(const struct accumulate *a)
{
    return !a->in_group;
}

bool accumulate_reduces(const struct accumulate *a)
{
    return a->held == 0 && (!a->in_group || a->rule.sync_each_batch);
}

double accumulate_loss_scale(const struct accumulate *a)
{
    return 1.0 / (double)(a->latest > 0 ? a->latest : a->rule.every);
}

/* k / k is 1 exactly; a sum of k times 1 / k need not be. */
double accumulate_step_scale(const struct accumulate *a)
{
    if (a->rule.short_group == SHORT_GROUP_BY_K || a->micro == 0)
        return 1;
    return a->one_k ? (double)a->latest / (double)a->micro : 1 / a->weight;
}

void accumulate_no_sync_begin(struct accumulate *a)
{
    a->held++;
}

accel_status_t accumulate_no_sync_end(struct accumulate *a, accel_error_t *err)
{
    if (a->held == 0)
        return accel_fail(err, A0901, "begin no_sync before it ends",
                          "no_sync ends, but it has not begun");
    a->held--;
    return ACCEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of Accelerate's accumulate (Accelerator._do_sync, GradientState), as a state
 * machine.
 */
#include "optim/accumulate.h"

accel_status_t accumulate_set(struct accumulate *a, const accel_accumulation_t *rule,
                              accel_error_t *err)
{
    if (rule->every < 1)
        return accel_fail(err, A0983, "accumulate over at least one micro-batch",
                          "gradients cannot accumulate over %d micro-batches",
                          rule->every);
    a->rule = *rule;
    return ACCEL_OK;
}

void accumulate_restart(struct accumulate *a)
{
    a->step = 0;
    a->in_group = false;
}

void accumulate_next(struct accumulate *a, bool at_end)
{
    const int k = a->rule.every;

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
        accumulate_restart(a);
    } else {
        a->step++;
        a->in_group = a->step % k != 0;
    }
}

bool accumulate_syncs(const struct accumulate *a)
{
    return !a->in_group;
}

bool accumulate_steps(const struct accumulate *a)
{
    return !a->in_group && a->held == 0;
}

bool accumulate_reduces(const struct accumulate *a)
{
    return a->held == 0 && (!a->in_group || a->rule.sync_each_batch);
}

int accumulate_divisor(const struct accumulate *a)
{
    return a->latest > 0 ? a->latest : a->rule.every;
}

/* k / k is 1 exactly; a sum of k times 1 / k need not be. */
double accumulate_step_scale(const struct accumulate *a)
{
    if (!a->rule.short_by_count || a->in_group || a->micro == 0)
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

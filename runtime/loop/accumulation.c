/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of micro-batches that make up a step, by the rule of optim/accumulate.h. In:
 * the start of each micro-batch, and what the program has set. Out: whether optimizers
 * step, and the factors on gradients.
 */
#include "common/sized.h"
#include "loop/loop.h"
#include "handle/run.h"

/* ---- for the loop ---------------------------------------------------------------- */

void group_leave(accel_t *run)
{
    if (run->loop.in_micro)
        run->loop.group = run->loop.group_before;
    run->loop.in_micro = false;
}

void group_next(accel_t *run, bool at_end)
{
    struct accumulate *g = &run->loop.group;

    group_leave(run);
    run->loop.group_before = *g;
    run->loop.in_micro = true;
    accumulate_next(g, at_end);
    shard_step_scale(run->shard, (float)accumulate_step_scale(g));
}

void group_restart(accel_t *run)
{
    run->loop.in_micro = false;
    accumulate_restart(&run->loop.group);
}

/* Without a micro-batch there is nothing to step with. */
bool loop_syncs(const accel_t *run)
{
    return run->loop.micro + run->loop.in_micro > 0 &&
           accumulate_steps(&run->loop.group);
}

/* The last micro-batch is left to the optimizers' steps, which come right after it. An
 * attempt must leave nothing behind, but a compressed sum does. */
accel_status_t group_reduce(accel_t *run, accel_error_t *err)
{
    const struct accumulate *g = &run->loop.group;
    accel_status_t st = ACCEL_OK;

    if (accumulate_syncs(g) || !accumulate_reduces(g) ||
        (run->attempting && run->compression.on))
        return ACCEL_OK;
    for (int i = 0; i < run->optims && st == ACCEL_OK; i++)
        if (shard_has_gradient(run->shard, i))
            st = shard_reduce_early(run->shard, i, err);
    return st;
}

/* ---- calls of the program -------------------------------------------------------- */

int accel_sync(const accel_t *run)
{
    return run && run->prepared && loop_syncs(run);
}

/* Accelerate would go on counting under a new k, and end the next group early. */
static accel_status_t rule_change(accel_t *run, const char *call,
                                  const accel_accumulation_t *rule, accel_error_t *err)
{
    const int before = run->loop.group.rule.every;
    accel_status_t st;

    ACCEL_CHECK(st, run_ready(run, call, err));
    if (rule->every < 1 || rule->every > 1 << 20)
        return accel_fail(err, A0962, "pass 1 to 1048576",
                          "%s: %d micro-batches make no step", call, rule->every);
    if (run->loop.micro || run->loop.in_micro)
        return accel_fail(err, A0962, "call it right after accel_step",
                          "%s in the middle of a step", call);
    st = accumulate_set(&run->loop.group, rule, err);
    if (st == ACCEL_OK && rule->every != before)
        group_restart(run);
    return st;
}

accel_status_t accel_accumulate_rule(accel_t *run, const accel_accumulation_t *rule,
                                     accel_error_t *err)
{
    accel_status_t st;
    accel_accumulation_t all;

    ACCEL_CHECK(st, run_given(run, "accel_accumulate_rule", err));
    if (!rule)
        return accel_fail(err, A0962, "pass a struct accel_accumulation",
                          "accel_accumulate_rule: the rule is NULL");
    ACCEL_CHECK(
        st, sized_read(SIZED(accel_accumulation_t, short_by_count), &all, rule, err));
    if (all.every == 0)
        all.every = run->loop.group.rule.every;
    return rule_change(run, "accel_accumulate_rule", &all, err);
}

accel_status_t accel_accumulate(accel_t *run, int k, accel_error_t *err)
{
    accel_status_t st;
    accel_accumulation_t rule;

    ACCEL_CHECK(st, run_given(run, "accel_accumulate", err));
    rule = run->loop.group.rule;
    rule.every = k;
    return rule_change(run, "accel_accumulate", &rule, err);
}

accel_status_t accel_no_sync(accel_t *run, int on, accel_error_t *err)
{
    accel_status_t st = run_ready(run, "accel_no_sync", err);

    if (st == ACCEL_OK && on && run->loop.group.held == 0)
        accumulate_no_sync_begin(&run->loop.group);
    else if (st == ACCEL_OK && !on && run->loop.group.held > 0)
        st = accumulate_no_sync_end(&run->loop.group, err);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoints stay once a save is durable. In: the config, and the values of
 * metrics that the program or accel_evaluate notes. Out: the rule that is passed to
 * every save. libaccelckpt does the deletion, in the thread of background.c.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "preemption/preemption.h"
#include "state/save/save.h"
#include "handle/run.h"

void retention_open(accel_t *run)
{
    const struct config *c = &run->config;
    accel_ckpt_rule_t *r = &run->retention.rule;

    retention_forget(run);
    r->every = c->ckpt_keep_every;
    r->best = (int)c->ckpt_keep_best;
    r->larger = c->ckpt_metric_mode == METRIC_MAX;
    snprintf(r->metric, sizeof(r->metric), "%s", c->ckpt_metric);
}

void retention_forget(accel_t *run)
{
    run->retention.step = -1;
}

int retention_keep(const accel_t *run)
{
    return run->config.ckpt_keep < 2 ? 2 : (int)run->config.ckpt_keep;
}

/* Rank 0 writes it down beside the checkpoints. */
static void write_value(accel_t *run, int64_t step, double value)
{
    accel_error_t why = { 0 };

    if (run->boot.rank != 0 || !run->config.ckpt_save)
        return;
    run->retention.noted = true;
    if (accel_ckpt_note_value(run->ckpt_dir, run->progress.run_id,
                              run->retention.rule.metric, step, value, &why))
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "accel.checkpoint.keep_best does not know %s of step %lld: %s%s%s",
                   run->retention.rule.metric, (long long)step, why.where,
                   why.where[0] ? ": " : "", why.text);
}

/* A value counts for a checkpoint: of one that is saved, or under way, it is written
 * now, else when this step is saved. */
void retention_note(accel_t *run, const char *name, double value)
{
    struct retention *r = &run->retention;
    const int64_t step = run->progress.step;

    if (strcmp(name, r->rule.metric) != 0 || !isfinite(value))
        return;
    if (run->progress.saved_step == step ||
        (run->background.in_flight && run->background.step == step)) {
        write_value(run, step, value);
    } else {
        r->step = step;
        r->value = value;
    }
}

/* The first save may come before the first value. */
static void warn_of_none(accel_t *run)
{
    struct retention *r = &run->retention;

    if (r->rule.best == 0 || r->noted || r->warned || r->saves++ == 0 ||
        run->boot.rank != 0)
        return;
    r->warned = true;
    accel_logf(&run->log, ACCEL_LOG_WARN,
               "accel.checkpoint.keep_best keeps no checkpoint: no value of %s is "
               "known; evaluate in the job (eval_every), or call accel_note_metric",
               r->rule.metric);
}

void retention_save(accel_t *run)
{
    struct retention *r = &run->retention;

    if (r->step == run->progress.step)
        write_value(run, r->step, r->value);
    r->step = -1;
    warn_of_none(run);
}

int retention_may_delete(void)
{
    return signals_pending() == 0;
}

accel_status_t accel_note_metric(accel_t *run, const char *name, double value,
                                 accel_error_t *err)
{
    accel_status_t st;

    ACCEL_CHECK(st, run_ready(run, "accel_note_metric", err));
    if (!name || !*name)
        return accel_fail(err, A0902, "give the name of a metric, such as accuracy",
                          "accel_note_metric: the metric has no name");
    retention_note(run, name, value);
    return ACCEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What preemption/ asks of a run: the rules from its config, how its ranks agree, where
 * it stands. The run's names for the stop.
 */
#include <signal.h>
#include <stdio.h>

#include "accel_ckpt.h"
#include "handle/run.h"

int accel_should_stop(const accel_t *run)
{
    (void)run; /* signals are the process's */
    return signals_pending() != 0;
}

struct preemption_rules preemption_rules_of(const struct config *cfg)
{
    return (struct preemption_rules){
        .enabled = cfg->preempt_enabled,
        .requeue = cfg->preempt_requeue,
        .warning = cfg->preempt_signal == PREEMPT_USR2 ? SIGUSR2 : SIGUSR1,
        .lead_seconds = cfg->preempt_lead_seconds,
        .max_restarts = cfg->preempt_max_restarts,
    };
}

/* preemption.agree of a run, which is `user`. */
static accel_status_t agree(void *user, int64_t *values, int count, accel_error_t *err)
{
    accel_t *run = user;

    return comm_all_reduce(run->comm, values, (size_t)count, ACCEL_I64, COMM_MAX, err);
}

void run_preemption(accel_t *run)
{
    struct preemption *p = &run->preemption;

    p->rank = run->boot.rank;
    p->size = run->boot.size;
    p->directory = run->ckpt_dir;
    p->log = &run->log;
    p->rules = preemption_rules_of(&run->config);
    p->agree = agree;
    p->agree_user = run;
    p->fence = accel_ckpt_fence;
}

void stop_announce(accel_t *run, int sig)
{
    preemption_announce(&run->preemption, sig, run->progress.step + 1,
                        run->progress.saved_step);
}

void stop_announce_pending(accel_t *run)
{
    stop_announce(run, signals_pending());
}

struct stop_save run_last_save(const accel_t *run)
{
    return (struct stop_save){ .bytes = (double)run->plan.checkpoint_bytes,
                               .in_flight = run->background.in_flight,
                               .local = run->staging.on };
}

accel_status_t run_stop(accel_t *run, int sig, accel_error_t *err)
{
    const bool nodes = staging_holds(&run->staging);
    char where[sizeof(run->ckpt_dir) + 16];

    snprintf(where, sizeof(where), "%s%s",
             nodes ? run->config.ckpt_local_dir : run->ckpt_dir,
             nodes ? " on the nodes" : "");
    return preemption_stop(&run->preemption, sig,
                           &(struct stop_state){ .begun = true,
                                                 .step = run->progress.step,
                                                 .saved = run->progress.saved_step,
                                                 .where = where },
                           err);
}

accel_status_t run_stop_waiting(accel_t *run, accel_error_t *err)
{
    return preemption_stop(&run->preemption, signals_pending(),
                           &(struct stop_state){ .step = -1, .saved = -1 }, err);
}

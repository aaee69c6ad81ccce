/* SPDX-License-Identifier: Apache-2.0
 *
 * A stop while a rank waits for a sample that does not come. In: a run of which all
 * ranks know that one of them has stopped waiting. Out: the state of the last step,
 * saved, and the end of the run. Inside a step, which would need the sample, only the
 * older checkpoint is left.
 */
#include <signal.h>
#include <stdio.h>

#include "preemption/preemption.h"
#include "loop/loop.h"
#include "loader/loader.h"
#include "state/save/save.h"

/* A warning on any rank counts as one, since slurmctld may send SIGTERM right after
 * it. Whoever presses Ctrl-C wants the run to end, whatever other signals arrive. */
int stop_agreed(const accel_t *run, double interrupts, double warnings, double terms)
{
    const int warning = run->config.preempt_signal == PREEMPT_USR2 ? SIGUSR2 : SIGUSR1;
    const int sig = interrupts > 0 ? SIGINT
                    : warnings > 0 ? warning
                    : terms > 0    ? SIGTERM
                                   : 0;

    if (sig)
        signals_agreed(sig);
    return sig;
}

/* Has anything of the next step been done that is not undone by leaving it? */
static bool in_step(const accel_t *run)
{
    bool begun = run->loop.micro > 0;

    for (int i = 0; i < run->optims; i++)
        begun = begun || run->optim[i].updated;
    return begun;
}

accel_status_t loop_stop_waiting(accel_t *run, accel_error_t *err)
{
    const int own = signals_pending();
    double v[4] = { own == SIGINT, own != 0 && own != SIGTERM && own != SIGINT,
                    own == SIGTERM, in_step(run) };
    accel_status_t st;
    int sig;

    ACCEL_CHECK(st, comm_all_reduce(run->comm, v, 4, ACCEL_F64, COMM_SUM, err));
    sig = stop_agreed(run, v[0], v[1], v[2]);
    group_leave(run);
    loaders_recall(run);
    if (v[3] == 0)
        st = save_stop(run, sig, err);
    else
        snprintf(run->preemption.declined, sizeof(run->preemption.declined),
                 "a sample did not come in the middle of step %lld",
                 (long long)run->progress.step + 1);
    signals_leave_interrupt(); /* nothing is left to save */
    return st == ACCEL_OK ? run_stop(run, sig, err) : st;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_save_state and accel_load_state, between two steps of a program. In: a
 * directory, or NULL for checkpoint_N. Out: a checkpoint there, or the run as it was
 * saved, with later step_N directories moved aside.
 */
#include <limits.h>
#include <unistd.h>

#include "handle/run.h"
#include "loop/loop.h"
#include "state/save/background.h"
#include "state/save/save.h"
#include "state/save/staging.h"
#include "state/state.h"
#include "training/ema.h"

/* Both calls work between two steps only. */
static accel_status_t between_steps(const accel_t *run, const char *call,
                                    accel_error_t *err)
{
    if (run->loop.in_micro || run->loop.micro > 0)
        return accel_fail(err, A0901, "call it after accel_step has ended a step",
                          "%s in the middle of a step", call);
    return own_units_done(run, err);
}

/* Collective. What a function of the program has said on one rank, the lowest of those,
 * becomes the error of all. `st` is the same on all ranks. */
static void tell_all(accel_t *run, accel_status_t st, accel_error_t *e)
{
    const int size = run->boot.size;
    int64_t who = run->program.function_failed ? size - run->boot.rank : 0;
    accel_error_t told = *e, ignored = { 0 };

    if (!st || st == ACCEL_EPEER || size == 1 ||
        comm_all_reduce(run->comm, &who, 1, ACCEL_I64, COMM_MAX, &ignored) || !who ||
        comm_broadcast(run->comm, &told, sizeof(told), (int)(size - who), &ignored))
        return;
    *e = told;
    e->code = st;
}

accel_status_t accel_save_state(accel_t *run, const char *dir, accel_error_t *err)
{
    accel_ckpt_stats_t stats = { 0 };
    accel_error_t e = { 0 };
    char path[PATH_MAX] = "";
    accel_status_t st;

    ACCEL_CHECK(st, run_trains(run, "accel_save_state", err));
    run->program.function_failed = false;
    st = loaders_agree(run, &e);
    if (st) /* a place after a batch that some rank could not have */
        return run_report(run, st, &e, err);
    st = between_steps(run, "accel_save_state", &e);
    ACCEL_TRY(st, accel_ckpt_can_save(&e));
    if (!st && run->boot.rank == 0)
        st = state_dirs_choose(run, dir, path, sizeof(path), &e);
    st = run_agree(run, st, &e);
    ACCEL_TRY(st, comm_broadcast(run->comm, path, sizeof(path), 0, &e));
    ACCEL_TRY(st, save_below(run, path, 1, &stats, &e));
    if (!st && run->boot.rank == 0) {
        accel_logf(&run->log, ACCEL_LOG_INFO,
                   "state of step %lld saved to %s in %.2f s",
                   (long long)run->progress.step, path, stats.seconds);
        if (!dir)
            background_do(&run->background, run, state_dirs_drop_lowest);
    } else if (st && !dir && run->boot.rank == 0) {
        /* only where nothing is in it: the next save takes the number */
        rmdir(path);
    }
    tell_all(run, st, &e);
    return state_call_end(run, st, &e, err);
}

/* The loop begins a step, as after a resume. No parameter waits for its initial values
 * any more. */
static accel_status_t set_back(accel_t *run, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int u = 0; u < run->units.count; u++)
        for (int i = 0; i < run->units.unit[u].param_count; i++)
            shard_given(run->shard, run->units.unit[u].param[i]);
    run->loop.loss_sum = 0;
    run->loop.in_backward = false;
    run->loop.step_start_ns = clock_ns();
    /* what is saved under this step's number may be of before */
    run->progress.saved_step = -1;
    retention_forget(run);
    if (run->boot.rank == 0)
        st = resume_later_aside(run, err);
    return run_agree(run, st, err);
}

accel_status_t accel_load_state(accel_t *run, const char *dir, accel_error_t *err)
{
    accel_error_t e = { 0 };
    char path[PATH_MAX];
    accel_status_t st;

    ACCEL_CHECK(st, run_trains(run, "accel_load_state", err));
    st = run_agree(run, between_steps(run, "accel_load_state", &e), &e);
    ACCEL_TRY(st, save_finish(run, &e));
    ACCEL_TRY(st, staging_finish(run, &e));
    ACCEL_TRY(st, state_dirs_find(run, dir, path, sizeof(path), &e));
    if (st)
        return state_call_end(run, st, &e, err);
    /* what is deleted is not read, and what is moved aside not deleted */
    background_settle(&run->background);
    background_settle(&run->staging.drain);
    staging_forget(run);
    shard_settle(run->shard);
    run->program.overwritten = run->program.function_failed = false;
    st = resume_from(run, path, &e);
    ACCEL_TRY(st, set_back(run, &e));
    tell_all(run, st, &e);
    return state_dirs_end(run, st, &e, err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What all saves of a run have in common, wherever they go: the owner, the last check
 * before the commit, and what is noted and logged once the save is durable.
 */
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "preemption/preemption.h"
#include "state/save/save.h"
#include "handle/run.h"

/* Job and incarnation: all ranks derive the directory's name from it. */
accel_status_t save_owner(accel_t *run, char *buf, size_t len, accel_error_t *err)
{
    if (run->preemption.incarnation.job > 0)
        snprintf(buf, len, "%ld.%ld", run->preemption.incarnation.job,
                 run->preemption.incarnation.restart);
    else
        snprintf(buf, len, "local.%d", (int)getpid());
    return comm_broadcast(run->comm, buf, len, 0, err);
}

/* Asked right before the rename: a later start of this job may have taken the lease
 * while this one was writing. */
accel_status_t save_may_commit(void *user, accel_error_t *err)
{
    accel_t *run = user;

    return lease_keep(&run->preemption, err);
}

/* What the log adds about a save in the background; "" for one at once. */
static void background_text(struct background *b, char *buf, size_t len)
{
    size_t used = 0;

    buf[0] = '\0';
    if (b->stall > 0)
        used = (size_t)snprintf(buf, len, "; the training waited %.2f s", b->stall);
    if (b->skipped > 0)
        snprintf(buf + used, len - used, "; saves left out meanwhile: %lld",
                 (long long)b->skipped);
    b->stall = 0;
    b->skipped = 0;
}

void save_measure(accel_t *run, int64_t step, enum save_kind kind, double seconds)
{
    static const char *const kinds[] = { "", " background", " local", " copy" };
    const bool shared = kind == SAVE_AT_ONCE || kind == SAVE_BACKGROUND;

    if (run->preemption.history.saves[kind]++ == 0)
        history_add(&run->preemption, "save step=%lld seconds=%.3f bytes=%lld%s",
                    (long long)step, seconds, (long long)run->plan.checkpoint_bytes,
                    kinds[kind]);
    /* What only the nodes have, another allocation may not find. */
    if (kind != SAVE_LOCAL)
        report_attempt(&run->preemption, step);
    if (shared)
        run->preemption.history.save_seconds = seconds;
    pace_add(&run->preemption.pace, kind, (double)run->plan.checkpoint_bytes, seconds);
    /* where the nodes can have it, a stop needs no more time than that */
    if (kind == SAVE_LOCAL || (shared && !run->staging.on))
        notice_check(&run->preemption, seconds);
}

void save_note(accel_t *run, int64_t step, enum save_kind kind,
               const accel_ckpt_stats_t *stats)
{
    char size[32], more[128];

    run->progress.failed_saves = 0;
    if (step > run->progress.saved_step)
        run->progress.saved_step = step;
    run->background.timed = run->background.timed || kind != SAVE_BACKGROUND;
    background_text(&run->background, more, sizeof(more));
    accel_logf(&run->log, ACCEL_LOG_INFO,
               "checkpoint of step %lld saved %sin %.2f s (%s%s)%s", (long long)step,
               kind == SAVE_LOCAL ? "on the nodes " : "", stats->seconds,
               format_bytes((double)run->plan.checkpoint_bytes, size, sizeof(size)),
               stats->direct_io ? "" : ", buffered", more);
    if (stats->aside[0])
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "a directory of step %lld that this run did not write was moved "
                   "aside to %s/%s",
                   (long long)step, run->ckpt_dir, stats->aside);
    save_measure(run, step, kind, stats->seconds - stats->spread_seconds);
}

bool save_may_pass(accel_status_t st)
{
    return st == ACCEL_EIO || st == ACCEL_ECREATE || st == ACCEL_ESYSTEM ||
           st == ACCEL_EPERM || st == ACCEL_ENOMEM;
}

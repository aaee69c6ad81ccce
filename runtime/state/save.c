/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving: the boxes of the shards, the trainer's blob, and the run's collectives as
 * callbacks go to libaccelckpt.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "run/run.h"

/* accel_ckpt_coll in terms of comm/; `user` is the run's communicator. */
static accel_status_t coll_barrier(void *user, accel_error_t *err)
{
    return comm_barrier(user, err);
}

static accel_status_t coll_gather(void *user, const void *mine, size_t bytes, int root,
                                  void **all_out, size_t *sizes_out, accel_error_t *err)
{
    return comm_gather(user, mine, bytes, root, all_out, sizes_out, err);
}

static accel_status_t coll_broadcast(void *user, void *buf, size_t bytes, int root,
                                     accel_error_t *err)
{
    return comm_broadcast(user, buf, bytes, root, err);
}

static accel_status_t coll_max(void *user, int64_t *value, accel_error_t *err)
{
    return comm_all_reduce(user, value, 1, ACCEL_I64, COMM_MAX, err);
}

/* libaccelckpt knows nothing of comm/: these four are all that it needs. */
static accel_ckpt_coll_t collectives(const accel_t *run)
{
    return (accel_ckpt_coll_t){
        .user = run->comm,
        .rank = run->boot.rank,
        .size = run->boot.size,
        .barrier = coll_barrier,
        .gather = coll_gather,
        .broadcast = coll_broadcast,
        .max_i64 = coll_max,
    };
}

/* Collective. Who writes: job and incarnation, rank 0's word on every rank, since all
 * of them derive the directory's name from it. */
static accel_status_t owner_name(accel_t *run, char *buf, size_t len,
                                 accel_error_t *err)
{
    if (run->life.incarnation.job > 0)
        snprintf(buf, len, "%ld.%ld", run->life.incarnation.job,
                 run->life.incarnation.restart);
    else
        snprintf(buf, len, "local.%d", (int)getpid());
    return comm_broadcast(run->comm, buf, len, 0, err);
}

/* Asked right before the rename: a later start of this job may have taken the lease
 * while this one was writing. */
static accel_status_t may_commit(void *user, accel_error_t *err)
{
    return lease_keep(user, err);
}

/* Notes and logs what is known once a checkpoint is durable. */
static void note_saved(accel_t *run, const accel_ckpt_stats_t *stats)
{
    char size[32];

    run->progress.failed_saves = 0;
    run->progress.saved_step = run->progress.step;
    run->progress.last_save_ns = clock_ns();
    accel_logf(&run->log, ACCEL_LOG_INFO,
               "checkpoint of step %lld saved in %.2f s (%s%s)",
               (long long)run->progress.step, stats->seconds,
               format_bytes((double)run->plan.checkpoint_bytes, size, sizeof(size)),
               stats->direct_io ? "" : ", buffered");
    if (stats->aside[0])
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "a directory of step %lld that this run did not write was moved "
                   "aside to %s/%s",
                   (long long)run->progress.step, run->ckpt_dir, stats->aside);
    if (run->life.history.saves++ == 0)
        history_add(run, "save step=%lld seconds=%.3f", (long long)run->progress.step,
                    stats->seconds);
    run->life.history.save_seconds = stats->seconds;
    notice_check(run, stats->seconds);
}

/* Each rank prepares alone; run_agree then makes sure that all of them enter
 * accel_ckpt_save or none does. The program's functions come first: they may fail
 * before anything is there, and may change what is saved. */
accel_status_t save_below(accel_t *run, const char *root, int keep,
                          accel_ckpt_stats_t *stats_out, accel_error_t *err)
{
    accel_ckpt_coll_t coll = collectives(run);
    struct run_boxes boxes = { 0 };
    accel_ckpt_blob_t blob[2] = { { .name = "trainer" },
                                  { .name = STATE_OBJECTS_BLOB } };
    char owner[64] = "";
    char *state = NULL, *objects = NULL;
    accel_status_t st = state_hooks_save(run, root, err);

    if (st == ACCEL_OK)
        st = local_sgd_meet(run, true, err);
    if (st == ACCEL_OK)
        st = registered_save(run, &objects, &blob[1].bytes, err);
    if (st != ACCEL_OK) {
        free(objects);
        return st;
    }
    loaders_tell(run);
    st = state_encode(run, &state, &blob[0].bytes, err);
    blob[0].data = state;
    blob[1].data = objects;
    if (st == ACCEL_OK) {
        observe_sync(&run->observe);
        track_flush(&run->track);
    }
    if (st == ACCEL_OK)
        st = run_boxes(run, false, &boxes, err);
    if (st == ACCEL_OK)
        st = lease_keep(run, err);
    st = run_agree(run, st, err);
    if (st == ACCEL_OK)
        st = owner_name(run, owner, sizeof(owner), err);
    if (st == ACCEL_OK) {
        accel_ckpt_save_t s = {
            .root = root,
            .step = run->progress.step,
            .owner = owner,
            .run_id = run->progress.run_id,
            .sharding = run->progress.sharding,
            .boxes = boxes.all,
            .box_count = boxes.count,
            .blobs = blob,
            .blob_count = objects ? 2 : 1,
            .keep = keep,
            .may_commit = may_commit,
            .may_commit_user = run,
        };

        st = accel_ckpt_save(&s, &coll, stats_out, err);
        /* The library names the rank in a text that is the same everywhere. */
        if (st != ACCEL_OK && run->boot.rank != 0 && st != ACCEL_EPEER)
            *err = (accel_error_t){ .code = st };
    }
    run_boxes_free(&boxes);
    free(state);
    free(objects);
    return st;
}

accel_status_t save_checkpoint(accel_t *run, accel_error_t *err)
{
    accel_ckpt_stats_t stats = { 0 };
    accel_status_t st;

    /* the same on all ranks, so none of them waits for another */
    if (!run->config.ckpt_save || run->progress.saved_step == run->progress.step)
        return ACCEL_OK;
    st = save_below(run, run->ckpt_dir, (int)run->config.ckpt_keep, &stats, err);
    if (st == ACCEL_OK)
        note_saved(run, &stats);
    return st;
}

/* Errors that another try may cure: a full disk, a file system that is away. */
static bool may_pass(accel_status_t st)
{
    return st == ACCEL_EIO || st == ACCEL_ECREATE || st == ACCEL_ESYSTEM ||
           st == ACCEL_EPERM || st == ACCEL_ENOMEM;
}

/* A pause that any signal ends: then time is short, and the next try begins at once. */
static void pause_seconds(int seconds)
{
    nanosleep(&(struct timespec){ .tv_sec = seconds }, NULL);
}

/* All ranks have the same status, so all of them try again or none does. Errors of
 * other kinds end it at once. */
accel_status_t save_last(accel_t *run, accel_error_t *err)
{
    /* seconds; short, since after Slurm's warning little time is left */
    static const int pauses[] = { 1, 2, 4 };
    accel_error_t why = { 0 };
    accel_status_t st;

    for (size_t i = 0;; i++) {
        st = save_checkpoint(run, &why);
        /* All ranks have the same status, so all of them try again or none does. */
        if (st == ACCEL_OK || !may_pass(st) || i == ACCEL_ARRAY_SIZE(pauses))
            break;
        if (run->boot.rank == 0)
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "cannot save the last checkpoint, of step %lld (attempt %zu of "
                       "%zu): %s%s%s; next attempt in %d s",
                       (long long)run->progress.step, i + 1,
                       ACCEL_ARRAY_SIZE(pauses) + 1, why.where,
                       why.where[0] ? ": " : "", why.text, pauses[i]);
        why = (accel_error_t){ 0 };
        pause_seconds(pauses[i]);
    }
    if (st != ACCEL_OK)
        *err = why;
    return st;
}

/* last_save_ns moves on after a failure too, or every step would try again. */
accel_status_t save_or_go_on(accel_t *run, accel_error_t *err)
{
    accel_error_t why = { 0 };
    accel_status_t st = save_checkpoint(run, &why);
    char kept[64] = "there is no older checkpoint";

    if (st == ACCEL_OK || !may_pass(st)) {
        if (st != ACCEL_OK)
            *err = why;
        return st;
    }
    run->progress.failed_saves++;
    /* every_minutes: not again at the very next step */
    run->progress.last_save_ns = clock_ns();
    if (run->progress.saved_step >= 0)
        snprintf(kept, sizeof(kept), "the checkpoint of step %lld is intact",
                 (long long)run->progress.saved_step);
    if (run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "cannot save the checkpoint of step %lld (failure %lld in a row): "
                   "%s%s%s; training continues, and %s",
                   (long long)run->progress.step, (long long)run->progress.failed_saves,
                   why.where, why.where[0] ? ": " : "", why.text, kept);
    return ACCEL_OK;
}

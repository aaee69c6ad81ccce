/* SPDX-License-Identifier: Apache-2.0
 *
 * Staging on the nodes. In: saves that save.c made to accel.checkpoint.local_dir. Out:
 * the same checkpoints in the checkpoint directory. A thread copies them while training
 * continues, and they are committed at the end of a later step; or the next attempt
 * copies them before it resumes. A staged checkpoint is committed by a record in the
 * checkpoint directory. So a later attempt knows about it on whatever nodes it runs,
 * and an earlier attempt can no longer commit one. Resumes never read from the nodes.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/save/staging.h"
#include "state/save/background.h"
#include "state/save/save.h"
#include "handle/run.h"

/* ---- what is gone ---------------------------------------------------------------- */

/* Removes parts until there is none left to remove. After the notice of a stop that is
 * the next life's. A part whose record is still there waits for another try: rank 0 has
 * not come to it yet, or could not remove it. */
static void sweep(accel_t *run)
{
    struct staging *s = &run->staging;
    int left = 0;

    pthread_mutex_lock(&s->sweep.lock);
    while (s->sweep.count > left) {
        char name[sizeof(s->sweep.name[0])];
        bool stays = false;

        memcpy(name, s->sweep.name[left], sizeof(name));
        pthread_mutex_unlock(&s->sweep.lock);
        if (retention_may_delete())
            stays = accel_ckpt_local_remove(run->ckpt_dir, run->config.ckpt_local_dir,
                                            name) != 0;
        pthread_mutex_lock(&s->sweep.lock);
        if (stays)
            left++;
        else
            memmove(s->sweep.name[left], s->sweep.name[left + 1],
                    (size_t)(--s->sweep.count - left) * sizeof(s->sweep.name[0]));
    }
    s->sweep.works = false;
    pthread_mutex_unlock(&s->sweep.lock);
}

/* A part may have gigabytes: its removal takes no time of a step. */
static void sweep_part(accel_t *run, const char *name)
{
    struct staging *s = &run->staging;
    bool begins, full;

    pthread_mutex_lock(&s->sweep.lock);
    full = s->sweep.count == STAGING_GONE;
    begins = !full && !s->sweep.works;
    if (!full)
        snprintf(s->sweep.name[s->sweep.count++], sizeof(s->sweep.name[0]), "%s", name);
    s->sweep.works = s->sweep.works || begins;
    pthread_mutex_unlock(&s->sweep.lock);
    if (begins)
        background_do(&s->sweep.thread, run, sweep);
    else if (full)
        (void)accel_ckpt_local_remove(run->ckpt_dir, run->config.ckpt_local_dir, name);
}

/* The thread is joined, and what it has removed is seen by all. What waited for its
 * record has another try: the ranks have met since. */
void staging_settle(accel_t *run)
{
    background_settle(&run->staging.sweep.thread);
    if (run->staging.sweep.count > 0)
        sweep(run);
}

/* Removes the record, at once, so that no later life finds it, and the part. After the
 * notice of a stop both are left to the next life. */
static void drop(accel_t *run, accel_ckpt_staged_t *c)
{
    if (c->name[0] && retention_may_delete()) {
        if (run->boot.rank == 0)
            (void)accel_ckpt_unstage(run->ckpt_dir, c->name, NULL);
        sweep_part(run, c->name);
    }
    c->name[0] = '\0';
}

/* All up to `step`. */
static void drop_up_to(accel_t *run, int64_t step)
{
    struct staging *s = &run->staging;

    if (s->copied.step != s->held[0].step && s->copied.step != s->held[1].step)
        drop(run, &s->copied);
    for (int i = 0; i < 2; i++)
        if (s->held[i].step <= step)
            drop(run, &s->held[i]);
}

void staging_end(accel_t *run, const accel_error_t *why)
{
    if (run->staging.on && run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "checkpoints go to %s only from now on: accel.checkpoint.local_dir "
                   "failed: %s%s%s",
                   run->ckpt_dir, why->where, why->where[0] ? ": " : "", why->text);
    run->staging.on = false;
    /* of saves to the shared directory nothing may be known */
    run->background.timed = false;
}

void staging_give_up(accel_t *run)
{
    if (run->staging.drain.in_flight)
        background_give_up(&run->staging.drain);
}

void staging_forget(accel_t *run)
{
    staging_give_up(run);
    drop_up_to(run, INT64_MAX);
}

void staging_close(accel_t *run)
{
    staging_give_up(run);
    background_settle(&run->staging.drain);
    staging_settle(run);
}

void staging_take(accel_t *run, int64_t step, const accel_ckpt_stats_t *stats)
{
    struct staging *s = &run->staging;

    if (!staging_holds(&run->staging))
        s->shared = run->progress.saved_step;
    save_note(run, step, SAVE_LOCAL, stats);
    if (!s->drain.in_flight || s->held[1].step != s->copied.step)
        drop(run, &s->held[1]);
    s->held[1] = s->held[0];
    s->held[0].step = step;
    snprintf(s->held[0].name, sizeof(s->held[0].name), "%s", stats->staged);
    s->failed = false;
}

/* ---- the copy while training goes on --------------------------------------------- */

/* The arguments of a copy; they point into *run and owner[64]. */
static accel_ckpt_save_t describe(accel_t *run, const char *owner)
{
    return (accel_ckpt_save_t){
        .bytes = sizeof(accel_ckpt_save_t),
        .root = run->ckpt_dir,
        .owner = owner,
        .keep = retention_keep(run),
        .rule = &run->retention.rule,
        .may_commit = save_may_commit,
        .may_commit_user = run,
        .may_delete = retention_may_delete,
        .local = run->config.ckpt_local_dir,
    };
}

/* What is damaged on the nodes is no checkpoint of this run any more. An older one
 * there may be whole. */
static void lose_copied(accel_t *run, const accel_error_t *why)
{
    struct staging *s = &run->staging;

    staging_end(run, why);
    if (s->held[0].step == s->copied.step)
        s->held[0] = s->held[1];
    if (s->held[1].step == s->copied.step || s->held[1].step == s->held[0].step)
        s->held[1].name[0] = '\0';
    drop(run, &s->copied);
    run->progress.saved_step = staging_holds(s) ? s->held[0].step : s->shared;
}

/* `why`: rank 0's. What cannot be copied now stays on the nodes. */
static accel_status_t take_failure(accel_t *run, accel_status_t st,
                                   const accel_error_t *why, accel_error_t *err)
{
    const bool damage = st == ACCEL_ECORRUPT;
    struct staging *s = &run->staging;

    if (!save_may_pass(st) && !damage) {
        *err = *why;
        return st;
    }
    if (run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "cannot copy the checkpoint of step %lld from the nodes: %s%s%s; "
                   "training continues%s",
                   (long long)s->copied.step, why->where, why->where[0] ? ": " : "",
                   why->text, damage ? "" : ", and it stays on the nodes");
    s->failed = !damage;
    if (damage)
        lose_copied(run, why);
    return ACCEL_OK;
}

static accel_status_t begin_copy(accel_t *run, accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    struct staging *s = &run->staging;
    accel_error_t why = { 0 };
    char owner[64] = "";
    accel_status_t st;

    ACCEL_CHECK(st, save_owner(run, owner, sizeof(owner), err));
    background_settle(&s->drain);
    if (s->copied.step != s->held[0].step && s->copied.step != s->held[1].step)
        drop(run, &s->copied);
    s->copied = s->held[0];
    const accel_ckpt_save_t args = describe(run, owner);
    st = accel_ckpt_drain_begin(&s->drain.saving, s->copied.name, &args, &coll, &why);
    if (st != ACCEL_OK)
        return take_failure(run, st, &why, err);
    background_write(&s->drain, s->copied.step);
    return ACCEL_OK;
}

static accel_status_t commit_copy(accel_t *run, accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    struct staging *s = &run->staging;
    accel_ckpt_stats_t stats = { 0 };
    accel_error_t why = { 0 };
    const accel_status_t st = background_publish(&s->drain, &coll, &stats, &why);

    s->drain.in_flight = false;
    if (st != ACCEL_OK)
        return take_failure(run, st, &why, err);
    accel_logf(&run->log, ACCEL_LOG_INFO,
               "checkpoint of step %lld copied from the nodes in %.2f s",
               (long long)s->copied.step, stats.seconds);
    save_measure(run, s->copied.step, SAVE_COPY,
                 (double)background_ns(&s->drain) * 1e-9);
    s->shared = s->copied.step;
    drop_up_to(run, s->copied.step);
    return ACCEL_OK;
}

accel_status_t staging_go_on(accel_t *run, bool begins, accel_error_t *err)
{
    struct staging *s = &run->staging;
    accel_status_t st = s->drain.in_flight ? commit_copy(run, err) : ACCEL_OK;

    return st == ACCEL_OK && begins && staging_holds(&run->staging) && !s->failed
               ? begin_copy(run, err)
               : st;
}

accel_status_t staging_finish(accel_t *run, accel_error_t *err)
{
    struct staging *s = &run->staging;
    accel_status_t st = ACCEL_OK;

    if (s->drain.in_flight && s->copied.step != s->held[0].step)
        staging_give_up(run);
    if (!s->drain.in_flight && staging_holds(&run->staging))
        st = begin_copy(run, err);
    if (st != ACCEL_OK || !s->drain.in_flight)
        return st;
    st = commit_copy(run, err);
    /* the record is gone before any rank looks whether its part may go */
    return st == ACCEL_OK ? run_agree(run, ACCEL_OK, err) : st;
}

/* ---- what an earlier life left --------------------------------------------------- */

/* Nothing trains meanwhile. */
accel_status_t staging_copy_left(accel_t *run, const accel_ckpt_staged_t *c,
                                 accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    accel_ckpt_saving_t *saving = NULL;
    accel_ckpt_stats_t stats = { 0 };
    char owner[64] = "";
    accel_status_t st;

    ACCEL_CHECK(st, save_owner(run, owner, sizeof(owner), err));
    accel_ckpt_save_t args = describe(run, owner);
    if (!run->config.ckpt_local_dir[0])
        args.local = NULL; /* then the record says where it is */
    ACCEL_CHECK(st, accel_ckpt_drain_begin(&saving, c->name, &args, &coll, err));
    (void)accel_ckpt_save_write(saving, NULL);
    st = accel_ckpt_save_publish(saving, &coll, &stats, err);
    accel_ckpt_save_free(saving);
    if (st == ACCEL_OK)
        accel_logf(&run->log, ACCEL_LOG_INFO,
                   "the checkpoint of step %lld was on the nodes: copied to %s in "
                   "%.2f s",
                   (long long)c->step, run->ckpt_dir, stats.seconds);
    return st;
}

/* The record first: without it nobody looks for the part. */
accel_status_t staging_drop_left(accel_t *run, const accel_ckpt_staged_t *list,
                                 int64_t count, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int64_t i = 0; i < count && st == ACCEL_OK && run->boot.rank == 0; i++)
        st = accel_ckpt_unstage(run->ckpt_dir, list[i].name, err);
    st = run_agree(run, st, err);
    for (int64_t i = 0; i < count && st == ACCEL_OK; i++)
        if (run->config.ckpt_local_dir[0])
            (void)accel_ckpt_local_remove(run->ckpt_dir, run->config.ckpt_local_dir,
                                          list[i].name);
    return st;
}

/* ---- the directory --------------------------------------------------------------- */

/* Is `path` the directory `dir`, or below it? Both are resolved. */
static bool is_inside(const char *path, const char *dir)
{
    const size_t len = strlen(dir);

    return strcmp(dir, "/") == 0 ||
           (strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0'));
}

/* The path without links, as far as it is there: nothing is made before it is known
 * what an earlier life left. The caller frees it; NULL: no memory. */
static char *resolve(const char *path)
{
    char *head = strdup(path), *real = head ? realpath(head, NULL) : NULL, *all = NULL;
    size_t len = strlen(path);

    while (head && !real && len > 1) {
        while (len > 1 && head[--len] != '/')
            ;
        head[len] = '\0';
        real = realpath(head, NULL);
    }
    free(head);
    if (!real || path[len] == '\0')
        return real;
    if (asprintf(&all, "%s/%s", real[1] ? real : "", path + len) < 0)
        all = NULL;
    free(real);
    return all;
}

/* This rank's view. A directory that cannot be made is found by the first save. */
static accel_status_t check_place(const accel_t *run, accel_error_t *err)
{
    const char *dir = run->config.ckpt_local_dir,
               *cure = "name a directory on a disk of the nodes";
    char *local, *shared;
    bool apart;

    if (dir[0] != '/')
        return accel_fail_at(err, A0862, dir, cure,
                             "accel.checkpoint.local_dir is not an absolute path");
    local = resolve(dir);
    shared = realpath(run->ckpt_dir, NULL);
    apart =
        !local || !shared || (!is_inside(local, shared) && !is_inside(shared, local));
    free(local);
    free(shared);
    return apart ? ACCEL_OK
                 : accel_fail_at(err, A0862, dir, cure,
                                 "accel.checkpoint.local_dir is, holds or lies in the "
                                 "checkpoint directory %s",
                                 run->ckpt_dir);
}

accel_status_t staging_open(accel_t *run, accel_error_t *err)
{
    pthread_mutex_init(&run->staging.sweep.lock, NULL);
    if (!run->config.ckpt_save || !run->config.ckpt_local_dir[0])
        return ACCEL_OK;
    return run_agree(run, check_place(run, err), err);
}

accel_status_t staging_begin(accel_t *run, accel_error_t *err)
{
    const char *dir = run->config.ckpt_local_dir;

    if (!run->config.ckpt_save || !dir[0])
        return ACCEL_OK;
    /* what a save that was killed left; none has begun on any rank */
    (void)accel_ckpt_local_remove(run->ckpt_dir, dir, NULL);
    run->staging.on = true;
    return run_agree(run, ACCEL_OK, err);
}

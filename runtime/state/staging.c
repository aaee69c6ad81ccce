/* SPDX-License-Identifier: Apache-2.0
 *
 * Staging on the nodes. In: saves that save.c made to accel.checkpoint.local_dir. Out:
 * the same checkpoints in the checkpoint directory, copied by a thread while training
 * goes on and committed at the end of a later step, or copied by the next life before
 * it resumes. A record in the checkpoint directory is the commit of a staged one, so
 * that a later life knows of it on whatever nodes it runs, and an earlier one cannot
 * make it any more. Resumes never read from here.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/path_dir.h"
#include "run/run.h"

static bool is_there(const accel_ckpt_staged_t *c)
{
    return c->name[0] != '\0';
}

/* ---- what is gone ---------------------------------------------------------------- */

/* The thread: removes parts until there is none left to remove. After the notice of a
 * stop that is the next life's. */
static void sweep(accel_t *run)
{
    struct staging *s = &run->staging;

    pthread_mutex_lock(&s->sweep.lock);
    while (s->sweep.count > 0) {
        char name[sizeof(s->sweep.name[0])];

        memcpy(name, s->sweep.name[--s->sweep.count], sizeof(name));
        pthread_mutex_unlock(&s->sweep.lock);
        if (retention_may_delete())
            accel_ckpt_local_remove(run->ckpt_dir, run->config.ckpt_local_dir, name);
        pthread_mutex_lock(&s->sweep.lock);
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
        accel_ckpt_local_remove(run->ckpt_dir, run->config.ckpt_local_dir, name);
}

/* The thread is joined, and what it has removed is seen by all. */
void staging_settle(accel_t *run)
{
    background_settle(&run->staging.sweep.thread);
}

/* Removes the record, at once, so that no later life finds it, and the part. After the
 * notice of a stop both are left to the next life. */
static void drop(accel_t *run, accel_ckpt_staged_t *c)
{
    if (is_there(c) && retention_may_delete()) {
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

/* Is it the part on the nodes, or its record, that the error is about? Another try
 * would find the same. */
static bool is_lost(accel_status_t st)
{
    return st == ACCEL_ENOENT || st == ACCEL_ECORRUPT;
}

/* `why`: rank 0's. What cannot be copied now stays on the nodes; what is lost there is
 * no checkpoint of this run any more. */
static accel_status_t take_failure(accel_t *run, accel_status_t st,
                                   const accel_error_t *why, accel_error_t *err)
{
    struct staging *s = &run->staging;

    if (!save_may_pass(st) && !is_lost(st)) {
        *err = *why;
        return st;
    }
    if (run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "cannot copy the checkpoint of step %lld from the nodes: %s%s%s; "
                   "training continues%s",
                   (long long)s->copied.step, why->where, why->where[0] ? ": " : "",
                   why->text, is_lost(st) ? "" : ", and it stays on the nodes");
    s->failed = true;
    if (is_lost(st)) {
        staging_forget(run);
        staging_end(run, why);
        run->progress.saved_step = s->shared;
    }
    return ACCEL_OK;
}

static accel_status_t begin_copy(accel_t *run, accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    struct staging *s = &run->staging;
    accel_error_t why = { 0 };
    char owner[64] = "";
    accel_status_t st = save_owner(run, owner, sizeof(owner), err);

    if (st != ACCEL_OK)
        return st;
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
    return st == ACCEL_OK && s->drain.in_flight ? commit_copy(run, err) : st;
}

/* ---- what an earlier life left --------------------------------------------------- */

/* The records, the same on every rank, newest first. */
struct left {
    accel_ckpt_staged_t *list;
    int64_t count;
    /* the newest whole one in the checkpoint directory; -1: none */
    int64_t shared;
};

/* Rank 0. */
static accel_status_t look(const accel_t *run, struct left *l, accel_error_t *err)
{
    accel_ckpt_info_t *list = NULL;
    size_t n = 0, staged = 0;
    accel_status_t st = accel_ckpt_list_staged(run->ckpt_dir, &l->list, &staged, err);

    l->count = (int64_t)staged;
    if (st == ACCEL_OK && staged > 0)
        st = accel_ckpt_list(run->ckpt_dir, &list, &n, err);
    for (size_t i = 0; i < n && l->shared < 0; i++)
        if (list[i].complete)
            l->shared = list[i].step;
    free(list);
    return st;
}

/* Collective. */
static accel_status_t agree_on_left(accel_t *run, struct left *l, accel_error_t *err)
{
    int64_t head[2];
    accel_status_t st = run->boot.rank == 0 ? look(run, l, err) : ACCEL_OK;

    st = run_agree(run, st, err);
    head[0] = l->count;
    head[1] = l->shared;
    if (st == ACCEL_OK)
        st = comm_broadcast(run->comm, head, sizeof(head), 0, err);
    if (st != ACCEL_OK || head[0] == 0)
        return st;
    l->count = head[0];
    l->shared = head[1];
    if (run->boot.rank != 0)
        l->list = calloc((size_t)l->count, sizeof(*l->list));
    st = run_agree(run,
                   l->list ? ACCEL_OK
                           : accel_fail_nomem(err, "the list of staged checkpoints",
                                              (size_t)l->count * sizeof(*l->list)),
                   err);
    return st ? st
              : comm_broadcast(run->comm, l->list, (size_t)l->count * sizeof(*l->list),
                               0, err);
}

/* Collective. Copies one; nothing trains meanwhile. */
static accel_status_t copy_left(accel_t *run, const accel_ckpt_staged_t *c,
                                accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    accel_ckpt_saving_t *saving = NULL;
    accel_ckpt_stats_t stats = { 0 };
    char owner[64] = "";
    accel_status_t st = save_owner(run, owner, sizeof(owner), err);

    if (st != ACCEL_OK)
        return st;
    if (!run->config.ckpt_local_dir[0])
        return accel_fail(err, A0861, "set it as the earlier life had it",
                          "accel.checkpoint.local_dir is not set");
    const accel_ckpt_save_t args = describe(run, owner);
    st = accel_ckpt_drain_begin(&saving, c->name, &args, &coll, err);
    if (st != ACCEL_OK)
        return st;
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

/* Rank 0. What this life cannot have; `have`: what it begins with. */
static void say_lost(accel_t *run, int64_t lost, int64_t have)
{
    if (run->boot.rank != 0 || lost <= have)
        return;
    accel_logf(&run->log, ACCEL_LOG_WARN,
               "steps %lld to %lld are lost and will be done again: the newest "
               "checkpoint in %s is %s%.0lld",
               (long long)(have < 0 ? 1 : have + 1), (long long)lost, run->ckpt_dir,
               have < 0 ? "none" : "of step ", (long long)(have < 0 ? 0 : have));
}

/* Collective. The newest that is whole on these nodes, unless the checkpoint directory
 * has a newer one. All others are then of no use: a run that goes on from an older step
 * has another history. */
static accel_status_t take_left(accel_t *run, struct left *l, accel_error_t *err)
{
    int64_t lost = -1;

    for (int64_t i = 0; i < l->count && l->list[i].step > l->shared; i++) {
        accel_error_t why = { 0 };
        const accel_status_t st = copy_left(run, &l->list[i], &why);

        if (st == ACCEL_OK) {
            l->shared = l->list[i].step;
            break;
        }
        if (!is_lost(st)) {
            *err = why;
            return st;
        }
        if (lost < 0)
            lost = l->list[i].step;
        if (run->boot.rank == 0)
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "the checkpoint of step %lld, which an earlier life saved on "
                       "its nodes, cannot be used: %s%s%s",
                       (long long)l->list[i].step, why.where, why.where[0] ? ": " : "",
                       why.text);
    }
    say_lost(run, lost, l->shared);
    for (int64_t i = 0; i < l->count && run->boot.rank == 0; i++)
        (void)accel_ckpt_unstage(run->ckpt_dir, l->list[i].name, NULL);
    return ACCEL_OK;
}

/* ---- the directory --------------------------------------------------------------- */

/* Is `path` the directory `dir`, or below it? Both are resolved. */
static bool is_inside(const char *path, const char *dir)
{
    const size_t len = strlen(dir);

    return strcmp(dir, "/") == 0 ||
           (strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0'));
}

/* This rank's view. A directory that cannot be made is found by the first save. */
static accel_status_t check_place(const accel_t *run, accel_error_t *err)
{
    const char *dir = run->config.ckpt_local_dir,
               *cure = "name a directory on a disk of the nodes";
    char *local, *shared;
    bool apart;
    size_t len;

    if (dir[0] != '/')
        return accel_fail_at(err, A0862, dir, cure,
                             "accel.checkpoint.local_dir is not an absolute path");
    (void)path_make_dirs(dir, &len);
    local = realpath(dir, NULL);
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
    const char *dir = run->config.ckpt_local_dir;
    struct left l = { .shared = -1 };
    accel_status_t st;

    pthread_mutex_init(&run->staging.sweep.lock, NULL);
    if (!run->config.ckpt_save)
        return ACCEL_OK;
    st = run_agree(run, dir[0] ? check_place(run, err) : ACCEL_OK, err);
    if (st == ACCEL_OK)
        st = agree_on_left(run, &l, err);
    if (st == ACCEL_OK)
        st = take_left(run, &l, err);
    free(l.list);
    if (st != ACCEL_OK)
        return st;
    /* also what a save that was killed left; none has begun on any rank */
    if (dir[0])
        accel_ckpt_local_remove(run->ckpt_dir, dir, NULL);
    run->staging.on = dir[0] != '\0';
    return run_agree(run, ACCEL_OK, err);
}

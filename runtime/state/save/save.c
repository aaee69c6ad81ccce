/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves: the boxes of the shards and the trainer state go to libaccelckpt.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "preemption/preemption.h"
#include "loader/loader.h"
#include "state/save/staging.h"
#include "state/state.h"
#include "training/local_sgd.h"
#include "state/run_boxes.h"
#include "state/save/background.h"
#include "state/save/save.h"
#include "handle/run.h"

/* How much longer than it needs a save in the background takes, and into how many such
 * times that between two saves has to go. */
#define SPREAD 4

/* What one save writes. */
struct collected {
    struct run_boxes boxes;
    /* text of the trainer state; registered objects, NULL: none */
    char *state, *objects;
    size_t state_bytes, objects_bytes;
    char owner[64];
};

static void collected_free(struct collected *c)
{
    run_boxes_free(&c->boxes);
    free(c->state);
    free(c->objects);
}

/* Each rank collects alone; run_agree then makes sure that all of them enter the save
 * or none does. The program's functions come first: they may fail before anything is
 * there, and may change what is saved. snapshot: the tensors are copies, which may be
 * written later. *c_out is freed in either case. */
static accel_status_t collect_state(accel_t *run, const char *root, bool snapshot,
                                    struct collected *c_out, accel_error_t *err)
{
    struct collected *c = c_out;
    accel_status_t st = state_hooks_save(run, root, err);

    ACCEL_TRY(st, local_sgd_meet(run, true, err));
    if (st == ACCEL_OK && run->compression.on)
        st = shard_meet_errors(run->shard, err);
    ACCEL_TRY(st, registered_save(run, &c->objects, &c->objects_bytes, err));
    if (st != ACCEL_OK)
        return st;
    loaders_tell(run);
    st = state_encode(run, &c->state, &c->state_bytes, err);
    if (st == ACCEL_OK && snapshot)
        st = run_boxes_list(run, &c->boxes, err);
    else if (st == ACCEL_OK)
        st = run_boxes(run, &c->boxes, err);
    if (st == ACCEL_OK && snapshot)
        st = background_snapshot(run, &c->boxes, err);
    ACCEL_TRY(st, lease_keep(&run->preemption, err));
    st = run_agree(run, st, err);
    return st == ACCEL_OK ? save_owner(run, c->owner, sizeof(c->owner), err) : st;
}

/* The arguments of a save of what was collected; they point into *c, *root and blob[2].
 */
static accel_ckpt_save_t describe(accel_t *run, const struct collected *c,
                                  const char *root, int keep, const char *local,
                                  accel_ckpt_blob_t blob[2])
{
    blob[0] = (accel_ckpt_blob_t){ "trainer", c->state, c->state_bytes };
    blob[1] = (accel_ckpt_blob_t){ STATE_OBJECTS_BLOB, c->objects, c->objects_bytes };
    return (accel_ckpt_save_t){
        .bytes = sizeof(accel_ckpt_save_t),
        .root = root,
        .step = run->progress.step,
        .owner = c->owner,
        .run_id = run->progress.run_id,
        .sharding = run->progress.sharding,
        .boxes = c->boxes.all,
        .box_count = c->boxes.count,
        .one_file = config_state_dict(&run->config) == DICT_FULL,
        .blobs = blob,
        .blob_count = c->objects ? 2 : 1,
        .keep = keep,
        .rule = root == run->ckpt_dir ? &run->retention.rule : NULL,
        .replaces =
            root == run->ckpt_dir && run->progress.saved_step == run->progress.step,
        .may_commit = save_may_commit,
        .may_commit_user = run,
        .may_delete = retention_may_delete,
        .local = local,
    };
}

/* The library names the rank in a text that is the same everywhere. */
static accel_status_t one_text(const accel_t *run, accel_status_t st,
                               accel_error_t *err)
{
    if (st != ACCEL_OK && run->boot.rank != 0 && st != ACCEL_EPEER)
        *err = (accel_error_t){ .code = st };
    return st;
}

/* What the log says up to this step is there when the checkpoint is. */
static void sync_logs(accel_t *run)
{
    lines_sync(&run->observe.file);
    track_flush(&run->track);
}

/* At once; local: to the nodes. */
static accel_status_t save_to(accel_t *run, const char *root, int keep,
                              const char *local, accel_ckpt_stats_t *stats_out,
                              accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    struct collected c = { 0 };
    accel_ckpt_blob_t blob[2];
    accel_status_t st = save_finish(run, err);

    if (local)
        staging_settle(run);
    if (st == ACCEL_OK)
        /* of a device there has to be a copy in any case */
        st = collect_state(run, root, run->background.on && run->backend->device, &c,
                           err);
    if (st == ACCEL_OK) {
        const accel_ckpt_save_t s = describe(run, &c, root, keep, local, blob);

        sync_logs(run);
        st = one_text(run, background_save_now(run, &s, &coll, stats_out, err), err);
    }
    collected_free(&c);
    return st;
}

accel_status_t save_below(accel_t *run, const char *root, int keep,
                          accel_ckpt_stats_t *stats_out, accel_error_t *err)
{
    return save_to(run, root, keep, NULL, stats_out, err);
}

/* A copy of this very step from the nodes has the same name in progress. What the nodes
 * have stays until the new one is durable. */
accel_status_t save_checkpoint(accel_t *run, accel_error_t *err)
{
    accel_ckpt_stats_t stats = { 0 };
    accel_status_t st;

    /* the same on all ranks, so none of them waits for another */
    if (!run->config.ckpt_save)
        return ACCEL_OK;
    if (run->staging.copied.step == run->progress.step) {
        staging_give_up(run);
        background_settle(&run->staging.drain);
    }
    retention_save(run);
    st = save_below(run, run->ckpt_dir, retention_keep(run), &stats, err);
    if (st == ACCEL_OK) {
        run->progress.last_save_ns = clock_ns();
        save_note(run, run->progress.step, SAVE_AT_ONCE, &stats);
        staging_forget(run);
    }
    return st;
}

accel_status_t save_staged(accel_t *run, accel_error_t *err)
{
    accel_ckpt_stats_t stats = { 0 };
    accel_status_t st;

    /* its part would have the same name, and a kill would damage it */
    if (staging_has(&run->staging, run->progress.step))
        return ACCEL_OK;
    retention_save(run);
    st = save_to(run, run->ckpt_dir, retention_keep(run), run->config.ckpt_local_dir,
                 &stats, err);
    if (st == ACCEL_OK) {
        run->progress.last_save_ns = clock_ns();
        staging_take(run, run->progress.step, &stats);
    } else if (save_may_pass(st)) {
        staging_end(run, err);
    }
    return st;
}

/* A save that failed leaves the run as it was. `why` is its error; another kind than
 * those that may pass ends the run. */
static accel_status_t go_on_without(accel_t *run, int64_t step, accel_status_t st,
                                    const accel_error_t *why, accel_error_t *err)
{
    char kept[64] = "there is no older checkpoint";

    if (!save_may_pass(st)) {
        *err = *why;
        return st;
    }
    run->progress.failed_saves++;
    if (run->progress.saved_step >= 0)
        snprintf(kept, sizeof(kept), "the checkpoint of step %lld is intact",
                 (long long)run->progress.saved_step);
    if (run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "cannot save the checkpoint of step %lld (failure %lld in a row): "
                   "%s%s%s; training continues, and %s",
                   (long long)step, (long long)run->progress.failed_saves, why->where,
                   why->where[0] ? ": " : "", why->text, kept);
    return ACCEL_OK;
}

/* ---- in the background ----------------------------------------------------------- */

accel_status_t save_finish(accel_t *run, accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    const int64_t step = run->background.step, begun = clock_ns();
    accel_ckpt_stats_t stats = { 0 };
    accel_error_t why = { 0 };
    accel_status_t st;

    if (!run->background.in_flight)
        return ACCEL_OK;
    ACCEL_CHECK(st, background_all_copied(run, err));
    sync_logs(run);
    st = one_text(run, background_publish(&run->background, &coll, &stats, &why), &why);
    run->background.stall += (double)(clock_ns() - begun) * 1e-9;
    if (st != ACCEL_OK) {
        run->background.stall = 0;
        if (run->background.local && save_may_pass(st))
            staging_end(run, &why);
        return go_on_without(run, step, st, &why, err);
    }
    if (run->background.local)
        staging_take(run, step, &stats);
    else
        save_note(run, step, SAVE_BACKGROUND, &stats);
    return ACCEL_OK;
}

/* Seconds over which a save in the background is spread: four times what it needs, so
 * that each step notices a quarter as much of it. At most a quarter of the time from
 * one save to the next, because what is not complete is lost with the job. 0: nothing
 * is known yet, or there is no time. Each rank's own: nothing collective depends on
 * it. */
static double spread_seconds(const accel_t *run)
{
    const struct pace *p = &run->preemption.pace;
    const double shared = p->at_once > 0 ? p->at_once : p->background,
                 need = (double)run->plan.checkpoint_bytes *
                        (run->staging.on ? p->local : shared),
                 between = (double)(clock_ns() - run->progress.last_save_ns) * 1e-9,
                 spread = fmin(SPREAD * need, between / SPREAD);

    return run->background.regular && spread > need ? spread : 0;
}

/* Collective. Copies the state, and begins to write it. */
static accel_status_t save_begin(accel_t *run, accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    struct collected c = { 0 };
    const int64_t begun = clock_ns();
    accel_ckpt_blob_t blob[2];
    accel_status_t st;

    retention_save(run);
    if (run->staging.on)
        staging_settle(run);
    st = collect_state(run, run->ckpt_dir, true, &c, err);
    if (st == ACCEL_OK) {
        const char *local = run->staging.on ? run->config.ckpt_local_dir : NULL;
        accel_ckpt_save_t s =
            describe(run, &c, run->ckpt_dir, retention_keep(run), local, blob);

        s.spread_seconds = spread_seconds(run);
        st = one_text(run, background_begin(run, &s, &coll, err), err);
    }
    if (st == ACCEL_OK) {
        run->background.local = run->staging.on;
        /* the thread reads them until the commit */
        run->background.state = c.state;
        run->background.objects = c.objects;
        c.state = c.objects = NULL;
        run->background.stall = (double)(clock_ns() - begun) * 1e-9;
    }
    collected_free(&c);
    return st;
}

/* A save is due, and another one is being written. True: it is left out, and the other
 * hurries. Who has not asked for the background gets every checkpoint, as with saves at
 * once. */
static bool left_out(accel_t *run)
{
    struct background *b = &run->background;

    if (!b->in_flight || run->config.ckpt_when_busy == BUSY_WAIT ||
        (run->config.ckpt_when_busy == BUSY_AUTO &&
         run->config.ckpt_async == ASYNC_AUTO))
        return false;
    background_hurry(b);
    if (b->skipped++ == 0 && run->boot.rank == 0)
        accel_logf(
            &run->log, ACCEL_LOG_WARN,
            "the checkpoint of step %lld is left out: that of step %lld is still "
            "being written (accel.checkpoint.when_busy: wait would wait for it)",
            (long long)run->progress.step, (long long)b->step);
    return true;
}

/* One at once. Where the nodes cannot have it, the shared directory gets it. */
static accel_status_t save_now(accel_t *run, accel_error_t *err)
{
    if (run->staging.on) {
        const accel_status_t st = save_staged(run, err);

        if (run->staging.on || (st != ACCEL_OK && !save_may_pass(st)))
            return st;
    }
    return save_checkpoint(run, err);
}

/* Collective. As background.on says; without memory for a copy, with auto, at once.
 * With auto a save at once comes first, too: only that tells how long the save of a
 * stop takes, which else would be given up as too long (deadline.c). */
static accel_status_t save_periodic(accel_t *run, accel_error_t *err)
{
    const bool behind = run->background.on &&
                        (run->background.timed || run->config.ckpt_async == ASYNC_TRUE);
    accel_status_t st = behind ? save_begin(run, err) : save_now(run, err);

    if (st != ACCEL_ENOMEM || !behind || run->config.ckpt_async != ASYNC_AUTO)
        return st;
    background_drop(run, run->progress.step);
    *err = (accel_error_t){ 0 };
    return save_now(run, err);
}

/* last_save_ns moves on after a failure too, or every step would try again. */
accel_status_t save_or_go_on(accel_t *run, accel_error_t *err)
{
    accel_error_t why = { 0 };
    accel_status_t st;

    if (!run->config.ckpt_save || run->progress.saved_step == run->progress.step ||
        left_out(run))
        return ACCEL_OK;
    ACCEL_CHECK(st, save_finish(run, err));
    st = save_periodic(run, &why);
    run->progress.last_save_ns = clock_ns();
    run->background.regular = true;
    return st ? go_on_without(run, run->progress.step, st, &why, err) : ACCEL_OK;
}

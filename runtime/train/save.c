/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a run: boxes from shard/, the trainer blob, and collectives as callbacks
 * go to libaccelckpt; on resume the newest intact checkpoint of the same run comes back,
 * chosen by all ranks together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "train/run.h"

static accel_status_t coll_barrier(void *user, accel_error_t *err)
{
    return comm_barrier(user, err);
}

static accel_status_t coll_gather(void *user, const void *mine, size_t bytes, int root,
                                  void **all, size_t *sizes, accel_error_t *err)
{
    return comm_gather(user, mine, bytes, root, all, sizes, err);
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

/* Who writes: job and incarnation, the same word on every rank. */
static accel_status_t owner_name(accel_t *run, char *buf, size_t len,
                                 accel_error_t *err)
{
    const char *job = getenv("SLURM_JOB_ID");

    if (job)
        snprintf(buf, len, "%s.%ld", job, env_long("SLURM_RESTART_COUNT", 0));
    else
        snprintf(buf, len, "local.%d", (int)getpid());
    return comm_broadcast(run->comm, buf, len, 0, err);
}

accel_status_t save_checkpoint(accel_t *run, accel_error_t *err)
{
    accel_ckpt_coll_t coll = collectives(run);
    accel_ckpt_stats_t stats = { 0 };
    accel_ckpt_box_t *boxes = NULL;
    accel_ckpt_blob_t blob = { .name = "trainer" };
    char owner[64] = "", size[32];
    char *state = NULL;
    size_t count = 0;
    accel_status_t st;

    if (run->saved_step == run->step)
        return ACCEL_OK;
    st = state_encode(run, &state, &blob.bytes, err);
    blob.data = state;
    if (st == ACCEL_OK && run->log_failure.code != ACCEL_OK) {
        st = run->log_failure.code; /* a step that is not in the log is not saved */
        *err = run->log_failure;
    }
    if (st == ACCEL_OK)
        st = observe_sync(&run->observe, err);
    if (st == ACCEL_OK)
        st = shard_boxes(run->shard, false, &boxes, &count, err);
    if (st == ACCEL_OK)
        st = lease_keep(run, err);
    st = run_agree(run, st, err);
    if (st == ACCEL_OK)
        st = owner_name(run, owner, sizeof(owner), err);
    if (st == ACCEL_OK) {
        accel_ckpt_save_t s = {
            .root = run->ckpt_dir,
            .step = run->step,
            .owner = owner,
            .run_id = run->run_id,
            .sharding =
                run->config.sharding_strategy == SHARD_FULL ? "FULL_SHARD" : "NO_SHARD",
            .boxes = boxes,
            .box_count = count,
            .blobs = &blob,
            .blob_count = 1,
            .keep = (int)run->config.ckpt_keep,
        };

        st = accel_ckpt_save(&s, &coll, &stats, err);
    }
    free(boxes);
    free(state);
    if (st != ACCEL_OK) {
        /* The library names the rank in a text that is the same everywhere. */
        if (run->boot.rank != 0 && st != ACCEL_EPEER)
            *err = (accel_error_t){ .code = st };
        return st;
    }
    run->failed_saves = 0;
    run->saved_step = run->step;
    run->last_save_ns = clock_ns();
    accel_logf(&run->log, ACCEL_LOG_INFO,
               "checkpoint of step %lld saved in %.2f s (%s%s)", (long long)run->step,
               stats.seconds,
               format_bytes((double)run->plan.checkpoint_bytes, size, sizeof(size)),
               stats.direct_io ? "" : ", buffered");
    return ACCEL_OK;
}

/* What another try may cure: a full disk, a file system that is away. */
static bool may_pass(accel_status_t st)
{
    return st == ACCEL_EIO || st == ACCEL_ECREATE || st == ACCEL_EOS ||
           st == ACCEL_EPERM || st == ACCEL_ENOMEM;
}

accel_status_t save_or_go_on(accel_t *run, accel_error_t *err)
{
    accel_error_t why = { 0 };
    accel_status_t st = save_checkpoint(run, &why);
    char kept[64] = "there is no older one";

    if (st == ACCEL_OK || !may_pass(st)) {
        if (st != ACCEL_OK)
            *err = why;
        return st;
    }
    run->failed_saves++;
    run->last_save_ns = clock_ns(); /* every_minutes: not again at the very next step */
    if (run->saved_step >= 0)
        snprintf(kept, sizeof(kept), "that of step %lld is intact",
                 (long long)run->saved_step);
    if (run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "the checkpoint of step %lld could not be saved (%lld in a row): "
                   "%s%s%s; the training goes on, %s",
                   (long long)run->step, (long long)run->failed_saves, why.where,
                   why.where[0] ? ": " : "", why.text, kept);
    return ACCEL_OK;
}

/* "seed=1, this run has seed=7": the words of two identities that are not the same. */
static void identity_difference(const char *theirs, const char *ours, char *buf,
                                size_t len)
{
    char a[512], b[512], *save_a = NULL, *save_b = NULL;
    size_t used = 0;

    snprintf(a, sizeof(a), "%s", theirs);
    snprintf(b, sizeof(b), "%s", ours);
    buf[0] = '\0';
    for (char *wa = strtok_r(a, " ", &save_a), *wb = strtok_r(b, " ", &save_b);
         wa && wb; wa = strtok_r(NULL, " ", &save_a), wb = strtok_r(NULL, " ", &save_b))
        if (strcmp(wa, wb) != 0 && used < len)
            used += (size_t)snprintf(buf + used, len - used, "%sit has %s, this run %s",
                                     used ? "; " : "", wa, wb);
}

/* Reads checkpoint `dir` into the shards. Local: errors are this rank's own. */
static accel_status_t load_one(accel_t *run, const char *dir, accel_error_t *err)
{
    accel_ckpt_box_t *boxes = NULL;
    accel_ckpt_t *c = NULL;
    const void *state;
    size_t count = 0, bytes = 0;
    accel_status_t st = accel_ckpt_open(&c, dir, err);

    if (st != ACCEL_OK)
        return st;
    if (strcmp(accel_ckpt_run_id(c), run->run_id) != 0) {
        char difference[512];

        identity_difference(accel_ckpt_run_id(c), run->run_id, difference,
                            sizeof(difference));
        st = accel_fail_at(err, A0818, dir,
                           "use another --out or accel.checkpoint.dir, or move the old "
                           "checkpoints away",
                           "the checkpoint is of another run: %s", difference);
        goto out;
    }
    state = accel_ckpt_blob(c, "trainer", &bytes);
    if (!state) {
        st = accel_fail_at(err, A0819, dir, "use another checkpoint",
                           "the checkpoint has no trainer state");
        goto out;
    }
    st = shard_boxes(run->shard, true, &boxes, &count, err);
    if (st == ACCEL_OK)
        st = accel_ckpt_read(c, boxes, count, err);
    if (st == ACCEL_OK)
        st = state_decode(run, state, bytes, err);
out:
    free(boxes);
    accel_ckpt_close(c);
    return st;
}

/* All ranks try `dir`; the outcome is the worst of them, agreed. Every rank that found
 * damage says which. */
static accel_status_t load_together(accel_t *run, const char *dir, accel_error_t *err)
{
    accel_error_t own = { 0 };
    accel_status_t st = load_one(run, dir, &own);

    if (st != ACCEL_OK && st != ACCEL_EMISMATCH)
        accel_logf(&run->log, ACCEL_LOG_WARN, "rank %d: %s: %s", run->boot.rank,
                   own.where[0] ? own.where : dir, own.text);
    /* EMISMATCH is the largest status here: it wins over damage found elsewhere. */
    st = run_agree(run, st, &own);
    if (st != ACCEL_OK)
        *err = own;
    return st;
}

static bool is_damage(accel_status_t st)
{
    return st == ACCEL_ECORRUPT || st == ACCEL_EIO || st == ACCEL_ENOENT;
}

/* Rank 0's view of the directory decides which names are tried, so that all ranks try the
 * same ones in the same order. */
static accel_status_t agree_on_list(accel_t *run, accel_ckpt_info_t **list,
                                    int64_t *count, accel_error_t *err)
{
    accel_error_t own = { 0 };
    int64_t head[2] = { 0, ACCEL_OK };
    size_t n = 0;
    accel_status_t st;

    *list = NULL;
    if (run->boot.rank == 0) {
        head[1] = accel_ckpt_list(run->ckpt_dir, list, &n, &own);
        head[0] = (int64_t)n;
    }
    st = comm_broadcast(run->comm, head, sizeof(head), 0, err);
    if (st == ACCEL_OK && head[1] != ACCEL_OK) {
        *err = own;
        return err->code = (accel_status_t)head[1];
    }
    *count = head[0];
    if (st != ACCEL_OK || head[0] == 0)
        return st;
    if (run->boot.rank != 0)
        *list = calloc((size_t)head[0], sizeof(**list));
    if (!*list)
        return accel_fail_nomem(err, "the list of checkpoints",
                                (size_t)head[0] * sizeof(**list));
    return comm_broadcast(run->comm, *list, (size_t)head[0] * sizeof(**list), 0, err);
}

static accel_status_t try_all(accel_t *run, const accel_ckpt_info_t *list,
                              int64_t count, accel_error_t *err)
{
    for (int64_t i = 0; i < count; i++) {
        char dir[sizeof(run->ckpt_dir) + sizeof(list[i].name) + 2];
        accel_status_t st;

        if (!list[i].complete) {
            if (run->boot.rank == 0)
                accel_logf(&run->log, ACCEL_LOG_WARN,
                           "%s is not complete (%s); passed over", list[i].name,
                           list[i].problem);
            continue;
        }
        snprintf(dir, sizeof(dir), "%s/%s", run->ckpt_dir, list[i].name);
        st = load_together(run, dir, err);
        if (st == ACCEL_OK) {
            run->saved_step = run->step;
            accel_logf(&run->log, ACCEL_LOG_INFO,
                       "resumed from %s: step %lld, %lld samples seen, written by %d "
                       "rank%s",
                       dir, (long long)run->step, (long long)run->cursor,
                       list[i].world_size, list[i].world_size == 1 ? "" : "s");
            return ACCEL_OK;
        }
        if (!is_damage(st))
            return st;
        if (run->boot.rank == 0)
            accel_logf(&run->log, ACCEL_LOG_WARN, "%s is damaged%s", dir,
                       i + 1 < count ? "; trying the next older one" : "");
    }
    *err = (accel_error_t){ .code = ACCEL_ECORRUPT };
    if (run->boot.rank != 0)
        return ACCEL_ECORRUPT;
    return accel_fail_at(err, A0820, run->ckpt_dir,
                         "see accel ckpt verify DIR; move the directory away to start "
                         "from the beginning",
                         "no intact checkpoint among the %lld there: nothing to go on "
                         "from, and nothing is overwritten",
                         (long long)count);
}

accel_status_t save_resume(accel_t *run, accel_error_t *err)
{
    accel_ckpt_info_t *list = NULL;
    int64_t count = 0;
    accel_status_t st = agree_on_list(run, &list, &count, err);

    run->step = 0;
    run->cursor = 0;
    if (st == ACCEL_OK && count > 0) {
        st = try_all(run, list, count, err);
        if (st == ACCEL_OK)
            shard_loaded(run->shard);
    }
    free(list);
    return st;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run resumes from. In: ACCEL_RESUME and the checkpoint directory. Out: tensors
 * and progress. auto: the newest intact checkpoint there. none: no checkpoint, and the
 * directory must have none. A path: that checkpoint, or the newest intact one in that
 * directory. A run that Slurm or srun started again resumes from its own newest
 * checkpoint, whatever its first start asked for. All ranks choose together. Only
 * proven damage makes a run fall back to an older checkpoint; newer ones are then moved
 * aside, never removed.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader/loader.h"
#include "state/save/staging.h"
#include "state/state.h"
#include "training/moments_form.h"
#include "training/master_weights.h"
#include "training/fp8_scaling.h"
#include "state/run_boxes.h"
#include "common/key_lines.h"
#include "common/env_names.h"
#include "handle/run.h"

/* What to resume from, as rank 0 decided it. */
struct choice {
    /* "auto", "none" or an absolute path */
    char what[2048];
    /* earlier starts of this job; 0: this is the first */
    long restarts;
};

/* One checkpoint on its way into the run. */
struct loading {
    accel_ckpt_t *ckpt;
    const char *dir;
    /* its trainer state, owned */
    char *text;
    struct run_boxes boxes;
    struct fp8_stored scales;
    /* the forms of its moments, and the type of its masters */
    accel_moments_t moments[ACCEL_MAX_OPTIMS];
    accel_dtype_t masters;
};

static void loading_free(struct loading *l)
{
    free(l->text);
    run_boxes_free(&l->boxes);
    fp8_stored_free(&l->scales);
    accel_ckpt_close(l->ckpt);
}

/* The weights are of the manifest's step. With a trainer's state of another one the run
 * would resume at a wrong position of its data and schedules. */
static accel_status_t check_step(const struct loading *l, accel_error_t *err)
{
    const int64_t saved = accel_ckpt_step(l->ckpt);
    int64_t step = saved;

    if (!key_line_i64(l->text, "step", &step) || step == saved)
        return ACCEL_OK; /* a text without one: state_decode says so */
    return accel_fail_at(err, A0819, l->dir, "use another checkpoint",
                         "the trainer state is of step %lld, and the manifest of step "
                         "%lld",
                         (long long)step, (long long)saved);
}

/* Opens the checkpoint and lists what is to be read. Identity, optimizer, objects and
 * loaders are checked before any tensor is overwritten. Collective, but errors are this
 * rank's own. */
static accel_status_t load_find(accel_t *run, struct loading *l, accel_error_t *err)
{
    const accel_ckpt_coll_t coll = state_collectives(run->comm);
    const void *state;
    bool local = false;
    size_t bytes = 0;
    accel_status_t st;

    ACCEL_CHECK(st, accel_ckpt_open_together(&l->ckpt, l->dir, &coll, err));
    ACCEL_CHECK(st, resume_same_run(run, accel_ckpt_run_id(l->ckpt), l->dir, err));
    state = accel_ckpt_blob(l->ckpt, "trainer", &bytes);
    if (!state)
        return accel_fail_at(err, A0819, l->dir, "use another checkpoint",
                             "the checkpoint has no trainer state");
    /* a blob has no NUL at its end */
    l->text = strndup(state, bytes);
    st = l->text ? check_step(l, err)
                 : accel_fail_nomem(err, "the trainer state", bytes);
    ACCEL_TRY(st, state_check_optimizer(run, l->dir, l->text, err));
    ACCEL_TRY(st, registered_find(run, l->dir, l->ckpt, err));
    ACCEL_TRY(st, loaders_find(run, l->text, err));
    ACCEL_TRY(st, fp8_find(run, l->dir, l->ckpt, l->text, &l->scales, err));
    ACCEL_TRY(st, masters_find(l->dir, l->text, &l->masters, err));
    ACCEL_TRY(st, local_find(run, l->dir, l->text, &local, err));
    ACCEL_TRY(st, moments_find(run, l->dir, l->text, l->moments, err));
    return st == ACCEL_OK
               ? run_boxes_saved(run, local, l->masters, l->moments, &l->boxes, err)
               : st;
}

/* Tensors and progress into the run. Collective in its reads alone: errors are this
 * rank's own. */
static accel_status_t load_take(accel_t *run, struct loading *l, accel_error_t *err)
{
    accel_status_t st;

    run->program.overwritten = true;
    ACCEL_CHECK(st, run_boxes_read(run, l->ckpt, &l->boxes, err));
    ACCEL_CHECK(st,
                shard_check_scales(l->boxes.all, l->boxes.shard_count, l->dir, err));
    run_boxes_store(run, &l->boxes);
    st = shard_take_saved(run->shard, &l->boxes.saved, err);
    ACCEL_TRY(st, state_decode(run, l->text, err));
    if (st == ACCEL_OK) {
        moments_warn(run, l->moments);
        masters_warn(run, l->masters, false);
    }
    return st;
}

/* Collective. A file or directory that this rank misses or finds shorter, while rank 0
 * does not, is no damage: the storage does not show the same to all nodes. *st and *own
 * then say so. Returns the result of the exchange itself. */
static accel_status_t second_opinion(accel_t *run, const char *dir, accel_status_t *st,
                                     accel_error_t *own, accel_error_t *err)
{
    /* the error says that a file or directory is not there, or cut */
    const bool missing =
        *st != ACCEL_OK && (message_of(own) == A0807 || message_of(own) == A0811);
    const accel_error_t why = *own;
    int64_t too = missing; /* on rank 0 */
    accel_status_t sent = comm_broadcast(run->comm, &too, sizeof(too), 0, err);

    if (sent == ACCEL_OK && missing && !too)
        *st = accel_fail_at(
            own, A0834, why.where[0] ? why.where : dir,
            "use a directory on storage that all nodes share, then start the run again",
            "rank %d: %.500s; rank 0 can read it", run->boot.rank, why.text);
    return sent;
}

/* Collective. What st, this rank's outcome of a part of the load, means for all. It is
 * damage if one rank proved it and none had trouble of another kind, which wins. Every
 * rank that found damage logs it, as each sees other files. */
static accel_status_t load_agree(accel_t *run, const char *dir, accel_status_t st,
                                 accel_error_t *own, accel_error_t *err)
{
    accel_status_t trouble = second_opinion(run, dir, &st, own, err);

    if (trouble != ACCEL_OK)
        return trouble;
    if (is_damage(st))
        accel_logf(&run->log, ACCEL_LOG_WARN, "rank %d: %s: %s", run->boot.rank,
                   own->where[0] ? own->where : dir, own->text);
    /* Two rounds: trouble of any kind first, then damage. A single one would pick the
     * larger status, which may be damage. */
    trouble = run_agree(run, is_damage(st) ? ACCEL_OK : st, own);
    st = trouble != ACCEL_OK ? trouble : run_agree(run, st, own);
    if (st != ACCEL_OK)
        *err = *own;
    return st;
}

/* All ranks try `dir`. Collective. Nothing is overwritten before all of them have
 * opened it and have its scales. */
static accel_status_t load_together(accel_t *run, const char *dir, int *writers_out,
                                    accel_error_t *err)
{
    struct loading l = { .dir = dir };
    accel_error_t own = { 0 };
    accel_status_t st = load_find(run, &l, &own);

    st = load_agree(run, dir, st, &own, err);
    /* all ranks enter a read that is collective, or none */
    if (st == ACCEL_OK && fp8_scales_kept(run))
        st = load_agree(run, dir, fp8_read(run, dir, l.ckpt, &l.scales, &own), &own,
                        err);
    if (st == ACCEL_OK) {
        *writers_out = accel_ckpt_world_size(l.ckpt);
        st = load_agree(run, dir, load_take(run, &l, &own), &own, err);
    }
    loading_free(&l);
    return st;
}

/* The program's functions first: they see the run as it is. */
accel_status_t resume_from(accel_t *run, const char *dir, accel_error_t *err)
{
    int writers = 0;
    accel_status_t st;

    ACCEL_CHECK(st, state_hooks_load(run, dir, err));
    ACCEL_CHECK(st, load_together(run, dir, &writers, err));
    run->progress.resumed = true;
    shard_loaded(run->shard);
    loaders_load(run);
    ACCEL_CHECK(st, registered_load(run, err));
    accel_logf(&run->log, ACCEL_LOG_INFO,
               "resumed from %s: step %lld, %lld samples seen, written by %d rank%s",
               dir, (long long)run->progress.step, (long long)run->progress.cursor,
               writers, writers == 1 ? "" : "s");
    return ACCEL_OK;
}

/* All ranks found the same error: only rank 0's keeps its text. */
static accel_status_t said_once(const accel_t *run, accel_status_t st,
                                accel_error_t *err)
{
    if (run->boot.rank != 0)
        err->text[0] = '\0';
    return st;
}

/* Collective. Copies what is on the nodes before it is opened. Where nobody is there to
 * ask, what is on other nodes is given up. */
static accel_status_t fetch_staged(accel_t *run, struct candidate *c, long restarts,
                                   accel_error_t *err)
{
    const accel_status_t st = staging_copy_left(run, &c->staged, err);
    const accel_error_t why = *err;

    c->away = st == ACCEL_ENOENT;
    if (c->away && restarts == 0)
        return accel_fail_at(err, A0863, why.where, why.hint,
                             "the checkpoint of step %lld cannot be copied from the "
                             "nodes: %.500s",
                             (long long)c->at.step, why.text);
    if ((c->away || is_damage(st)) && run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "the checkpoint of step %lld, which an earlier attempt saved on its "
                   "nodes, cannot be used: %s%s%s",
                   (long long)c->at.step, why.where, why.where[0] ? ": " : "",
                   why.text);
    return st;
}

/* None of the list could be used. What was on the nodes alone leaves a run that has not
 * begun. */
static accel_status_t fail_all(accel_t *run, const char *root, const struct found *f,
                               accel_error_t *err)
{
    if (f->here == 0)
        return ACCEL_OK;
    *err = (accel_error_t){ .code = ACCEL_ECORRUPT };
    if (run->boot.rank != 0)
        return ACCEL_ECORRUPT;
    return accel_fail_at(err, A0820, root,
                         "run accel ckpt verify DIR for details; to start from the "
                         "beginning, move the directory away",
                         "none of the %lld checkpoints is intact: the run cannot "
                         "resume, and nothing is overwritten",
                         (long long)f->count);
}

/* Tries the list, newest first. Entries that the list calls damaged are passed over.
 * All others are tried, also those that rank 0 could not read when it made the list,
 * and an error other than damage ends the run. *at_out: place in the list of the one
 * that was tried last. */
static accel_status_t try_all(accel_t *run, const char *root, struct found *f,
                              int64_t *at_out, accel_error_t *err)
{
    for (int64_t i = 0; i < f->count; i++) {
        struct candidate *c = &f->list[i];
        char dir[sizeof(run->ckpt_dir) + sizeof(c->at.name) + 2];
        accel_status_t st = ACCEL_OK;

        /* rank 0 has proof: nobody needs to open it */
        if (c->at.state == ACCEL_CKPT_DAMAGED) {
            if (run->boot.rank == 0)
                accel_logf(&run->log, ACCEL_LOG_WARN, "%s is damaged (%s); skipped",
                           c->at.name, c->at.problem);
            continue;
        }
        if (is_staged(c))
            st = fetch_staged(run, c, f->restarts, err);
        if (is_damage(st) || (c->away && st == ACCEL_ENOENT))
            continue;
        if (st != ACCEL_OK)
            return said_once(run, st, err);
        snprintf(dir, sizeof(dir), "%s/%s", root, c->at.name);
        st = resume_from(run, dir, err);
        *at_out = i;
        if (st == ACCEL_OK || !is_damage(st))
            return st;
        if (run->boot.rank == 0)
            accel_logf(&run->log, ACCEL_LOG_WARN, "%s is damaged%s", dir,
                       i + 1 < f->count ? "; trying the next older checkpoint" : "");
    }
    return fail_all(run, root, f, err);
}

/* Rank 0. The damaged ones among the first `count` of the list are in the way of what
 * this run will save: they are moved aside, and nothing of them is lost. */
static accel_status_t move_aside(accel_t *run, const struct found *own, int64_t count,
                                 accel_error_t *err)
{
    for (int64_t i = 0; i < count; i++) {
        const accel_ckpt_info_t *c = &own->list[i].at;
        char to[192];
        accel_status_t st;

        /* of the step that was copied from the nodes the copy has the name by now */
        if (is_staged(&own->list[i]) || c->step == run->progress.step)
            continue;
        /* A complete one in the list was passed over because
         * reading it proved damage. */
        ACCEL_CHECK(st, accel_ckpt_set_aside(run->ckpt_dir, c->name, c->complete, to,
                                             sizeof(to), err));
        accel_logf(&run->log, ACCEL_LOG_WARN, "%s/%s was moved aside to %s",
                   run->ckpt_dir, c->name, to);
    }
    return ACCEL_OK;
}

/* Resumes from the run's own directory: later saves follow that checkpoint there. A run
 * that saves nothing moves nothing. */
static accel_status_t from_own(accel_t *run, struct found *own, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;
    int64_t at = 0;

    if (own->count > 0)
        st = try_all(run, run->ckpt_dir, own, &at, err);
    if (st != ACCEL_OK)
        return st;
    if (run->progress.resumed)
        run->progress.saved_step = run->progress.step;
    if (!run->config.ckpt_save)
        return ACCEL_OK;
    if (at > 0 && run->boot.rank == 0)
        st = move_aside(run, own, at, err);
    st = run_agree(run, st, err);
    return st == ACCEL_OK ? resume_settle(run, own, err) : st;
}

/* ---- a fresh start --------------------------------------------------------------- */

/* --accel-resume=none. Refuses to start over a run that has checkpoints: its saves
 * would mix with them. */
static accel_status_t from_nothing(accel_t *run, const struct found *own,
                                   accel_error_t *err)
{
    if (own->count > 0)
        return said_once(
            run,
            accel_fail_at(
                err, A0342, run->ckpt_dir,
                "use another --out (or accel.checkpoint.dir), move the checkpoints "
                "away, or remove --accel-resume=none to resume from the newest",
                "--accel-resume=none asks for a fresh start, but %lld checkpoint%s of "
                "an earlier run %s here (newest: %s); nothing is overwritten",
                (long long)own->count, own->count == 1 ? "" : "s",
                own->count == 1 ? "is" : "are", own->list[0].at.name),
            err);
    if (run->boot.rank == 0)
        accel_logf(&run->log, ACCEL_LOG_INFO,
                   "starting from the beginning (--accel-resume=none)");
    return ACCEL_OK;
}

/* ---- a path ---------------------------------------------------------------------- */

/* what a path is: one checkpoint, a directory of them, the run's own directory, or the
 * newest checkpoint in that */
enum resume_path { PLACE_CHECKPOINT, PLACE_DIRECTORY, PLACE_OWN, PLACE_OWN_NEWEST };

/* By what is in it, or by its name where the save never finished. */
static bool is_checkpoint(const char *dir, const char *name)
{
    char path[PATH_MAX + 16];

    snprintf(path, sizeof(path), "%s/MANIFEST", dir);
    return access(path, F_OK) == 0 || strncmp(name, "step_", 5) == 0;
}

/* The newest in the directory itself, or "". */
static const char *newest_here(const struct found *own)
{
    for (int64_t i = 0; i < own->count; i++)
        if (!is_staged(&own->list[i]))
            return own->list[i].at.name;
    return "";
}

/* Only a path that leads nowhere is a wrong one. */
static accel_status_t fail_path(const char *path, int error, accel_error_t *err)
{
    if (error == EACCES || error == EPERM)
        return accel_fail_at(err, A0832, path, "make it readable for you",
                             "cannot resume from this path: %s", strerror(error));
    if (error != ENOENT && error != ENOTDIR && error != ELOOP)
        return accel_fail_at(err, A0812, path, "check the storage, then try again",
                             "cannot resume from this path: %s", strerror(error));
    return accel_fail_at(err, A0341, path, "list the checkpoints: accel ckpt ls DIR",
                         "cannot resume from this path: %s", strerror(error));
}

/* Rank 0: what `path` is. Both paths are resolved, so that a second name of the run's
 * own directory does not pass for another one. */
static accel_status_t look_at(const accel_t *run, const char *path,
                              const struct found *own, int64_t *place_out,
                              accel_error_t *err)
{
    char *real = realpath(path, NULL);
    const int error = errno;
    char *ours = realpath(run->ckpt_dir, NULL);

    if (!real) {
        free(ours);
        return fail_path(path, error, err);
    }
    char *name = strrchr(real, '/') + 1;
    if (ours && strcmp(real, ours) == 0) {
        *place_out = PLACE_OWN;
    } else if (is_checkpoint(real, name)) {
        bool newest = strcmp(newest_here(own), name) == 0;
        name[-1] = '\0';
        *place_out = newest && ours && strcmp(real, ours) == 0 ? PLACE_OWN_NEWEST
                                                               : PLACE_CHECKPOINT;
    } else {
        *place_out = PLACE_DIRECTORY;
    }
    free(real);
    free(ours);
    return ACCEL_OK;
}

/* The newest intact checkpoint of a directory that is not the run's own. */
static accel_status_t from_directory(accel_t *run, const char *path, accel_error_t *err)
{
    struct found f = { 0 };
    int64_t at = 0;
    accel_status_t st = resume_list(run, path, false, &f, err);

    if (st == ACCEL_OK && f.count == 0)
        st = said_once(run,
                       accel_fail_at(err, A0341, path,
                                     "list the checkpoints: accel ckpt ls DIR",
                                     "there is no checkpoint to resume from"),
                       err);
    ACCEL_TRY(st, try_all(run, path, &f, &at, err));
    free(f.list);
    return st;
}

/* --accel-resume=PATH. To resume from elsewhere the run's own directory must be empty:
 * its checkpoints would belong to another history. */
static accel_status_t from_path(accel_t *run, const char *path, struct found *own,
                                accel_error_t *err)
{
    int64_t place = PLACE_CHECKPOINT;
    accel_status_t st = ACCEL_OK;

    if (run->boot.rank == 0)
        st = look_at(run, path, own, &place, err);
    ACCEL_CHECK(st, run_agree(run, st, err));
    ACCEL_CHECK(st, comm_broadcast(run->comm, &place, sizeof(place), 0, err));
    if (place == PLACE_OWN && own->count > 0)
        return from_own(run, own, err);
    if (place == PLACE_OWN_NEWEST) {
        st = resume_from(run, path, err);
        run->progress.saved_step = st == ACCEL_OK ? run->progress.step : -1;
        /* a person says that those on the nodes, which are newer, are given up */
        return st == ACCEL_OK ? resume_settle(run, own, err) : st;
    }
    if (own->count > 0)
        return said_once(
            run,
            accel_fail_at(
                err, A0343, run->ckpt_dir,
                "use another --out (or accel.checkpoint.dir) to branch off, move the "
                "checkpoints away, or resume from the newest (--accel-resume=auto)",
                "--accel-resume names %.200s, but the run's own directory holds "
                "checkpoints (newest: %s); nothing is overwritten",
                path, own->list[0].at.name),
            err);
    return place == PLACE_CHECKPOINT ? resume_from(run, path, err)
                                     : from_directory(run, path, err);
}

/* A restart resumes from the newest step_N: those of steps that the run has not
 * done any more would be another history. */
accel_status_t resume_later_aside(accel_t *run, accel_error_t *err)
{
    accel_ckpt_info_t *list = NULL;
    char to[192];
    size_t n = 0;
    accel_status_t st = run->config.ckpt_save
                            ? accel_ckpt_list(run->ckpt_dir, &list, &n, err)
                            : ACCEL_OK;

    for (size_t i = 0; i < n && !st && list[i].step > run->progress.step; i++) {
        st = accel_ckpt_set_aside(run->ckpt_dir, list[i].name, 0, to, sizeof(to), err);
        if (!st)
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "%s/%s was moved aside to %s: the run was set back to step %lld",
                       run->ckpt_dir, list[i].name, to, (long long)run->progress.step);
    }
    free(list);
    return st;
}

/* ---- the best -------------------------------------------------------------------- */

/* Collective. The newest may be on the nodes: copied, it counts as well. */
static accel_status_t fetch_newest(accel_t *run, struct found *own, accel_error_t *err)
{
    for (int64_t i = 0; i < own->count; i++) {
        struct candidate *c = &own->list[i];
        accel_status_t st;

        if (c->at.state == ACCEL_CKPT_DAMAGED)
            continue;
        st = is_staged(c) ? fetch_staged(run, c, 0, err) : ACCEL_OK;
        if (!is_damage(st))
            return said_once(run, st, err);
    }
    return ACCEL_OK;
}

/* --accel-resume=best. Later checkpoints are moved aside, as by accel_load_state. */
static accel_status_t from_best(accel_t *run, struct found *own, accel_error_t *err)
{
    char dir[sizeof(run->ckpt_dir) + 80] = "";
    accel_status_t st = fetch_newest(run, own, err);

    if (st == ACCEL_OK && run->boot.rank == 0)
        st = accel_ckpt_best(run->ckpt_dir, dir, sizeof(dir), NULL, err);
    ACCEL_CHECK(st, run_agree(run, st, err));
    ACCEL_CHECK(st, comm_broadcast(run->comm, dir, sizeof(dir), 0, err));
    ACCEL_CHECK(st, resume_from(run, dir, err));
    run->progress.saved_step = run->progress.step;
    if (run->boot.rank == 0)
        st = resume_later_aside(run, err);
    st = run_agree(run, st, err);
    return st == ACCEL_OK ? resume_settle(run, own, err) : st;
}

/* ---- the choice ------------------------------------------------------------------ */

/* Of the output directory of a run its checkpoints are meant. */
static void look_inside(char *what, size_t len)
{
    accel_ckpt_info_t *list = NULL;
    char inside[sizeof(((struct choice *)NULL)->what)];
    size_t n = 0;

    if ((size_t)snprintf(inside, sizeof(inside), "%s/checkpoints", what) >= len ||
        access(inside, F_OK) || is_checkpoint(what, strrchr(what, '/') + 1))
        return;
    if (accel_ckpt_list(what, &list, &n, NULL) == ACCEL_OK && n == 0)
        snprintf(what, len, "%s", inside);
    free(list);
}

/* Collective. Rank 0's environment decides. */
static accel_status_t agree_on_choice(accel_t *run, struct choice *choice_out,
                                      accel_error_t *err)
{
    const char *text = getenv(ENV_RESUME);
    accel_status_t st = ACCEL_OK;

    memset(choice_out, 0, sizeof(*choice_out));
    choice_out->restarts =
        env_long(ENV_RESTART_COUNT, env_long("SLURM_RESTART_COUNT", 0));
    if (run->boot.rank == 0)
        st = resume_choice(text ? text : "auto", NULL, choice_out->what,
                           sizeof(choice_out->what), err);
    if (st == ACCEL_OK && choice_out->what[0] == '/')
        look_inside(choice_out->what, sizeof(choice_out->what));
    st = run_agree(run, st, err);
    return st == ACCEL_OK
               ? comm_broadcast(run->comm, choice_out, sizeof(*choice_out), 0, err)
               : st;
}

/* After a restart "none", "best" or a path would throw away what the first life has
 * trained, so the run's own checkpoints win. */
accel_status_t resume_run(accel_t *run, accel_error_t *err)
{
    struct found own = { 0 };
    struct choice c;
    accel_status_t st = agree_on_choice(run, &c, err);

    run->progress.step = 0;
    run->progress.cursor = 0;
    ACCEL_TRY(st, resume_list(run, run->ckpt_dir, true, &own, err));
    if (st != ACCEL_OK)
        goto out;
    own.restarts = c.restarts;
    if (c.restarts > 0 && own.count > 0 && strcmp(c.what, "auto") != 0) {
        if (run->boot.rank == 0)
            accel_logf(&run->log, ACCEL_LOG_INFO,
                       "restart %ld: resuming from this run's own checkpoints; "
                       "--accel-resume=%s was for its first start",
                       c.restarts, c.what);
        st = from_own(run, &own, err);
    } else if (strcmp(c.what, "auto") == 0) {
        st = from_own(run, &own, err);
    } else if (strcmp(c.what, "none") == 0) {
        st = from_nothing(run, &own, err);
    } else if (strcmp(c.what, "best") == 0) {
        st = from_best(run, &own, err);
    } else {
        st = from_path(run, c.what, &own, err);
    }
out:
    free(own.list);
    return st;
}

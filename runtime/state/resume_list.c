/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of the checkpoints that a run may resume from, and what happens to those on
 * the nodes once it has chosen. In: the checkpoint directory and its records. Nothing
 * is removed before the run has resumed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/save/staging.h"
#include "state/state.h"

/* "it has seed=1, this run seed=7": the words in which two identities differ. Both have
 * the same keys in the same order. */
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
            used +=
                (size_t)snprintf(buf + used, len - used, "%scheckpoint %s, this run %s",
                                 used ? "; " : "", wa, wb);
}

accel_status_t resume_same_run(const accel_t *run, const char *id, const char *where,
                               accel_error_t *err)
{
    char difference[512];

    if (strcmp(id, run->progress.run_id) == 0)
        return ACCEL_OK;
    identity_difference(id, run->progress.run_id, difference, sizeof(difference));
    return accel_fail_at(err, A0818, where,
                         "use another --out or accel.checkpoint.dir, or move the old "
                         "checkpoints away",
                         "the checkpoint belongs to another run: %s", difference);
}

/* Rank 0. One on the nodes, as far as its record tells. Another run's is refused before
 * anything is changed. */
static accel_status_t look_at_record(accel_t *run, struct candidate *c,
                                     accel_error_t *err)
{
    char id[sizeof(run->progress.run_id)] = "";
    accel_error_t why = { 0 };
    const accel_status_t st =
        accel_ckpt_staged_run(run->ckpt_dir, c->staged.name, id, sizeof(id), &why);

    c->at = (accel_ckpt_info_t){ .step = c->staged.step };
    snprintf(c->at.name, sizeof(c->at.name), "step_%08lld", (long long)c->at.step);
    if (is_damage(st)) {
        c->at.state = ACCEL_CKPT_DAMAGED;
        snprintf(c->at.problem, sizeof(c->at.problem), "%.120s: %.120s", why.where,
                 why.text);
        return ACCEL_OK;
    }
    if (st == ACCEL_OK)
        return resume_same_run(run, id, c->staged.name, err);
    *err = why;
    return st;
}

/* for qsort; of the same step that in the directory comes first */
static int newer_candidate(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;

    if (a->at.step != b->at.step)
        return (a->at.step < b->at.step) - (a->at.step > b->at.step);
    return is_staged(a) - is_staged(b);
}

/* Rank 0. own: the run's directory, to which those on the nodes belong. */
static accel_status_t list_all(accel_t *run, const char *dir, bool own,
                               struct found *f_out, accel_error_t *err)
{
    accel_ckpt_info_t *here = NULL;
    accel_ckpt_staged_t *staged = NULL;
    size_t n = 0, more = 0;
    accel_status_t st = accel_ckpt_list(dir, &here, &n, err);

    if (st == ACCEL_OK && own && run->config.ckpt_save)
        st = accel_ckpt_list_staged(dir, &staged, &more, err);
    if (st == ACCEL_OK && n + more > 0) {
        f_out->list = calloc(n + more, sizeof(*f_out->list));
        if (!f_out->list)
            st = accel_fail_nomem(err, "the list of checkpoints",
                                  (n + more) * sizeof(*f_out->list));
    }
    for (size_t i = 0; st == ACCEL_OK && i < n; i++)
        f_out->list[i].at = here[i];
    for (size_t i = 0; st == ACCEL_OK && i < more; i++) {
        f_out->list[n + i].staged = staged[i];
        st = look_at_record(run, &f_out->list[n + i], err);
    }
    free(here);
    free(staged);
    if (st != ACCEL_OK)
        return st;
    f_out->here = (int64_t)n;
    f_out->count = (int64_t)(n + more);
    if (f_out->count)
        qsort(f_out->list, n + more, sizeof(*f_out->list), newer_candidate);
    return ACCEL_OK;
}

accel_status_t resume_list(accel_t *run, const char *dir, bool own,
                           struct found *found_out, accel_error_t *err)
{
    accel_error_t why = { 0 };
    int64_t head[3] = { 0, 0, ACCEL_OK };
    accel_status_t st;

    if (run->boot.rank == 0) {
        head[2] = list_all(run, dir, own, found_out, &why);
        head[0] = found_out->count;
        head[1] = found_out->here;
    }
    st = comm_broadcast(run->comm, head, sizeof(head), 0, err);
    if (st == ACCEL_OK && head[2] != ACCEL_OK) {
        *err = why;
        return err->code = (accel_status_t)head[2];
    }
    found_out->count = head[0];
    found_out->here = head[1];
    if (st != ACCEL_OK || head[0] == 0)
        return st;
    if (run->boot.rank != 0)
        found_out->list = calloc((size_t)head[0], sizeof(*found_out->list));
    if (!found_out->list)
        st = accel_fail_nomem(err, "the list of checkpoints",
                              (size_t)head[0] * sizeof(*found_out->list));
    st = run_agree(run, st, err);
    ACCEL_TRY(st, comm_broadcast(run->comm, found_out->list,
                                 (size_t)head[0] * sizeof(*found_out->list), 0, err));
    return st;
}

/* Rank 0. What was reported as saved, and what this life begins with. */
static void say_lost(accel_t *run, const struct found *own)
{
    const int64_t have = run->progress.resumed ? run->progress.step : -1;

    for (int64_t i = 0; i < own->count; i++)
        if (is_staged(&own->list[i]) && own->list[i].at.step > have) {
            accel_logf(&run->log, ACCEL_LOG_WARN,
                       "steps %lld to %lld are lost and will be done again: the newest "
                       "checkpoint in %s is %s%.0lld",
                       (long long)(have < 0 ? 1 : have + 1),
                       (long long)own->list[i].at.step, run->ckpt_dir,
                       have < 0 ? "none" : "of step ",
                       (long long)(have < 0 ? 0 : have));
            return;
        }
}

/* Rank 0. The part stays where it is, for a person who wants it back. */
static accel_status_t put_away(accel_t *run, const struct candidate *c,
                               accel_error_t *err)
{
    char to[192];
    const accel_status_t st =
        accel_ckpt_staged_away(run->ckpt_dir, c->staged.name, to, sizeof(to), err);

    if (st == ACCEL_OK)
        accel_logf(&run->log, ACCEL_LOG_WARN,
                   "%s/%s is now called %s: renamed back, with step_... of later steps "
                   "moved away, it is resumed from on its nodes",
                   run->ckpt_dir, c->staged.name, to);
    return st;
}

accel_status_t resume_settle(accel_t *run, const struct found *own, accel_error_t *err)
{
    accel_ckpt_staged_t *gone;
    accel_status_t st = ACCEL_OK;
    int64_t n = 0;

    if (own->count == own->here)
        return ACCEL_OK;
    gone = calloc((size_t)own->count, sizeof(*gone));
    if (!gone)
        st = accel_fail_nomem(err, "a list", (size_t)own->count * sizeof(*gone));
    if (run->boot.rank == 0)
        say_lost(run, own);
    for (int64_t i = 0; i < own->count && st == ACCEL_OK; i++) {
        const struct candidate *c = &own->list[i];

        if (is_staged(c) && !c->away)
            gone[n++] = c->staged;
        else if (c->away && run->boot.rank == 0)
            st = put_away(run, c, err);
    }
    st = run_agree(run, st, err);
    ACCEL_TRY(st, staging_drop_left(run, gone, n, err));
    free(gone);
    return st;
}

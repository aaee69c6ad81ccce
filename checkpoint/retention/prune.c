/* SPDX-License-Identifier: Apache-2.0
 *
 * A person's tidying of a directory of checkpoints: prune deletes what a rule does not
 * keep, once two of the kept are proven whole; repair removes what dead saves left and
 * moves damaged checkpoints aside. Both report every decision, and change nothing when
 * asked only to say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "save/ckpt_commit.h"
#include "retention/ckpt_retention.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"
#include "ckpt_tools.h"

/* whole checkpoints without which nothing is deleted */
#define LEAST_VERIFIED 2

/* ---- prune ----------------------------------------------------------------------- */

/* The rule to prune by: what the runs noted, and what the caller says instead. */
static accel_status_t prune_rule(const struct ckpt_prune *p, int rootfd,
                                 struct ckpt_rule *r_out, accel_error_t *err)
{
    struct ckpt_survey s;
    accel_status_t st = ckpt_survey(&s, rootfd, NULL, NULL, INT64_MAX, err);
    struct ckpt_rule r = s.rule;

    ckpt_survey_free(&s);
    if (st)
        return st;
    if (p->keep > 0)
        r.keep = p->keep;
    if (p->every >= 0)
        r.also.every = p->every;
    if (p->best >= 0)
        r.also.best = p->best;
    if (p->metric)
        snprintf(r.also.metric, sizeof(r.also.metric), "%s", p->metric);
    if (p->larger >= 0)
        r.also.larger = p->larger;
    if (r.keep == 0)
        return accel_fail_at(err, A0010, p->root, "accel ckpt prune DIR --keep N",
                             "prune needs --keep: no run has noted a rule here");
    if (r.also.best > 0 && ckpt_rule_problem(&r.also))
        return accel_fail_at(
            err, A0010, p->root, "accel ckpt prune DIR --best K --metric NAME",
            "prune --best needs --metric: %s", ckpt_rule_problem(&r.also));
    *r_out = r;
    return ACCEL_OK;
}

/* Reads every byte of a checkpoint. */
static accel_status_t read_all(const struct ckpt_prune *p, const char *name,
                               accel_error_t *err)
{
    char path[4096];
    const struct ckpt_check x = {
        .dir = path, .name = name, .progress = p->progress, .user = p->progress_user
    };

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", p->root, name) >= sizeof(path))
        return accel_fail_at(err, A0810, name, "give a shorter path",
                             "the path is too long");
    return ckpt_check(&x, err);
}

/* Is every byte of it right? */
static bool is_whole(const struct ckpt_prune *p, const char *name)
{
    return read_all(p, name, NULL) == ACCEL_OK;
}

/* Damaged ones are for a person to look at: prune leaves them to repair. */
static bool prunes(const struct ckpt_kept *k)
{
    return k->goes && k->status == ACCEL_OK;
}

/* Keeps more than the rule says, the newest first, until enough are proven whole. */
static void keep_whole(const struct ckpt_prune *p, struct ckpt_survey *s)
{
    int whole = 0;

    for (size_t i = 0; i < s->count && whole < LEAST_VERIFIED; i++)
        if (!prunes(&s->list[i]) && s->list[i].status == ACCEL_OK)
            whole += is_whole(p, s->list[i].name);
    for (size_t i = 0; i < s->count && whole < LEAST_VERIFIED; i++)
        if (prunes(&s->list[i])) {
            s->list[i].goes = false;
            snprintf(s->list[i].why, sizeof(s->list[i].why),
                     "two whole ones always stay");
            whole += is_whole(p, s->list[i].name);
        }
}

static accel_status_t delete_rest(const struct ckpt_prune *p, int rootfd,
                                  const struct ckpt_survey *s, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (size_t i = 0; i < s->count; i++)
        if (!prunes(&s->list[i]))
            p->report(p->user, s->list[i].name, "kept", s->list[i].why);
    /* the oldest first, so that a stop in the middle leaves the newest */
    for (size_t i = s->count; i-- > 0 && !st;) {
        const char *name = s->list[i].name;

        if (!prunes(&s->list[i]))
            continue;
        if (!p->dry_run && ckpt_trash(rootfd, name) != 0)
            st = accel_fail_at(err, A0846, name, "remove it manually",
                               "cannot delete the checkpoint: %m");
        else
            p->report(p->user, name, p->dry_run ? "would go" : "deleted", "");
    }
    return st;
}

static accel_status_t prune(const struct ckpt_prune *p, int rootfd, accel_error_t *err)
{
    struct ckpt_survey s = { 0 };
    struct ckpt_rule rule;
    accel_status_t st = prune_rule(p, rootfd, &rule, err);

    ACCEL_TRY(st, ckpt_survey(&s, rootfd, NULL, &rule, INT64_MAX, err));
    if (!st) {
        keep_whole(p, &s);
        st = delete_rest(p, rootfd, &s, err);
    }
    ckpt_survey_free(&s);
    return st;
}

/* One of the two, beside no run. */
static accel_status_t tidy(const struct ckpt_prune *p,
                           accel_status_t (*work)(const struct ckpt_prune *p,
                                                  int rootfd, accel_error_t *err),
                           accel_error_t *err)
{
    int rootfd, lease;
    accel_status_t st = ckpt_lease_open(p->root, p->dry_run, &rootfd, &lease, err);

    ACCEL_TRY(st, work(p, rootfd, err));
    if (lease >= 0)
        close(lease);
    if (rootfd >= 0)
        close(rootfd);
    return st;
}

accel_status_t ckpt_prune(const struct ckpt_prune *p, accel_error_t *err)
{
    return tidy(p, prune, err);
}

/* ---- repair ---------------------------------------------------------------------- */

/* Directories with this prefix that no live process holds. */
static accel_status_t remove_left(const struct ckpt_prune *p, int rootfd,
                                  const char *prefix, const char *what,
                                  accel_error_t *err)
{
    char(*list)[CKPT_DIR_MAX] = NULL;
    size_t n = 0;
    accel_status_t st = ckpt_list_names(rootfd, prefix, &list, &n, err);

    for (size_t i = 0; i < n && !st; i++) {
        if (ckpt_is_locked(rootfd, list[i], true))
            p->report(p->user, list[i], "left", "a process works on it");
        else if (!p->dry_run && ckpt_remove_dir(rootfd, list[i]) != 0)
            st = accel_fail_at(err, A0846, list[i], "remove it manually",
                               "cannot remove the directory: %m");
        else
            p->report(p->user, list[i], p->dry_run ? "would go" : "removed", what);
    }
    free(list);
    return st;
}

/* Only proof of damage counts: what cannot be read now may be whole, and stays. */
static accel_status_t move_damaged(const struct ckpt_prune *p, int rootfd,
                                   const char *name, accel_error_t *err)
{
    char to[CKPT_DIR_MAX], why[CKPT_DIR_MAX + 600];
    accel_error_t e = { 0 };
    accel_status_t st = read_all(p, name, &e);

    if (ckpt_may_pass(st)) {
        snprintf(why, sizeof(why), "it cannot be read now: %.500s", e.text);
        p->report(p->user, name, "left", why);
        *err = e;
    }
    if (st != ACCEL_ECORRUPT)
        return ckpt_may_pass(st) ? st : ACCEL_OK;
    st = ACCEL_OK;
    if (!p->dry_run)
        st = ckpt_set_aside(rootfd, name, true, to, err);
    if (st)
        return st;
    if (p->dry_run)
        snprintf(why, sizeof(why), "%.500s", e.text);
    else
        snprintf(why, sizeof(why), "it is %s now: %.500s", to, e.text);
    p->report(p->user, name, p->dry_run ? "would be moved" : "moved aside", why);
    return ACCEL_OK;
}

static accel_status_t repair(const struct ckpt_prune *p, int rootfd, accel_error_t *err)
{
    accel_ckpt_info_t *list = NULL;
    accel_error_t first = { 0 };
    size_t n = 0;
    accel_status_t st =
        remove_left(p, rootfd, ".tmp-step_", "a save that ended in its middle", err);

    if (!p->dry_run)
        ckpt_settle_old(rootfd);
    ACCEL_TRY(st, remove_left(p, rootfd, ".trash-",
                              "a deletion that ended in its middle", err));
    ACCEL_TRY(st, accel_ckpt_list(p->root, &list, &n, err));
    for (size_t i = 0; i < n && !st; i++) {
        accel_error_t e = { 0 };

        if (move_damaged(p, rootfd, list[i].name, &e) && !first.code)
            first = e;
    }
    free(list);
    if (st || !first.code)
        return st;
    if (err)
        *err = first;
    return first.code;
}

accel_status_t ckpt_repair(const struct ckpt_prune *p, accel_error_t *err)
{
    return tidy(p, repair, err);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoints stay, the values that decide it, and the lock of a root.
 */
#ifndef ACCEL_CKPT_RETENTION_H
#define ACCEL_CKPT_RETENTION_H

#include "ckpt_internal.h"

/* ---- keep_file.c: ROOT/retention ------------------------------------------------- */

#define CKPT_KEEP_FILE "retention"

struct ckpt_rule {
    /* how many of the newest */
    int keep;
    accel_ckpt_rule_t also;
};
/* NULL, or the reason why a rule may not be noted. */
const char *ckpt_rule_problem(const accel_ckpt_rule_t *rule);
/* The text of the file: one malloc with a NUL at its end; "" where there is none.
 * ACCEL_EIO, ACCEL_EPERM, ACCEL_ENOMEM. */
accel_status_t ckpt_keep_read(int rootfd, char **text_out, accel_error_t *err);
/* The rule that was noted last for a run; false: none. */
bool ckpt_keep_rule(const char *text, const char *run_id, struct ckpt_rule *r_out);
/* Calls found(user, step, value) for every value of the metric, in the order of the
 * file. */
void ckpt_keep_values(const char *text, const char *run_id, const char *metric,
                      void (*found)(void *user, int64_t step, double value),
                      void *user);
/* Notes the rule of a run, unless it is the one noted last. Failures are left to the
 * next save. */
void ckpt_keep_note(int rootfd, const char *run_id, const struct ckpt_rule *r);

/* ---- root_lock.c ----------------------------------------------------------------- */

/* Opens the root to delete in it, and takes the lock of the run that saves there, if
 * there is one; dry_run: not. The caller closes both, where they are not -1. A0822:
 * a run holds it. */
accel_status_t ckpt_lease_open(const char *root, bool dry_run, int *rootfd_out,
                               int *lease_out, accel_error_t *err);

/* ---- keep_rule.c: what stays ----------------------------------------------------- */

/* One step directory, and whether it stays. */
struct ckpt_kept {
    char name[64];
    int64_t step;
    /* as in struct ckpt_identity */
    accel_status_t status;
    /* of the run, and in the directory of its step */
    bool ours;
    /* NAN: it has none of the rule's metric */
    double value;
    /* among the best, from 1; 0: it is none of those that stay for that */
    int place;
    /* the rule keeps it not */
    bool goes;
    /* why it stays; "" when it goes */
    char why[160];
};
struct ckpt_survey {
    struct ckpt_kept *list;
    size_t count;
    /* what was applied; rule.keep is 0 where there was none: then everything stays */
    struct ckpt_rule rule;
    char run_id[CKPT_RUN_ID_MAX + 1];
};
/* Judges all step directories of rootfd, newest first. run_id NULL: the run of the
 * newest complete one. rule NULL: the one noted last
 * for that run. Steps beyond `newest` are
 * no business of the rule and stay. Free it in either case. ACCEL_EIO, ACCEL_EPERM,
 * ACCEL_ENOMEM. */
accel_status_t ckpt_survey(struct ckpt_survey *s_out, int rootfd, const char *run_id,
                           const struct ckpt_rule *rule, int64_t newest,
                           accel_error_t *err);
void ckpt_survey_free(struct ckpt_survey *s);

#endif

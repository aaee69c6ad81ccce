/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run may resume from, as all ranks see it: the checkpoints of a directory, and
 * those that an earlier attempt left on the nodes.
 */
#ifndef ACCEL_STATE_RESUME_LIST_H
#define ACCEL_STATE_RESUME_LIST_H

#include "handle/run.h"

/* A checkpoint that the run may resume from. */
struct candidate {
    accel_ckpt_info_t at;
    /* its record, if an earlier attempt left it on the nodes; "": none */
    accel_ckpt_staged_t staged;
    /* it is on nodes that this run does not have */
    bool away;
};

/* The candidates of one directory, the same list on every rank. */
struct found {
    /* newest first; one malloc */
    struct candidate *list;
    int64_t count;
    /* how many of them are in the directory itself */
    int64_t here;
    /* earlier starts of this job: if there were any, nobody is there to ask */
    long restarts;
};

static inline bool is_staged(const struct candidate *c)
{
    return c->staged.name[0] != '\0';
}

/* Proof that what a save wrote is no longer there. No other error proves that: falling
 * back to an older checkpoint could lose a newer, intact one. */
static inline bool is_damage(accel_status_t st)
{
    return st == ACCEL_ECORRUPT;
}

/* Does a checkpoint with this identity, at `where`, belong to this run? A0818: no. */
accel_status_t resume_same_run(const accel_t *run, const char *id, const char *where,
                               accel_error_t *err);
/* Lists the candidates of directory `dir` as rank 0 sees it, so that all ranks try the
 * same ones in the same order. own: `dir` is the run's own, so the list includes
 * checkpoints on the nodes; A0818: one there is another run's. The caller frees
 * found_out->list. Changes nothing. Collective. */
accel_status_t resume_list(accel_t *run, const char *dir, bool own,
                           struct found *found_out, accel_error_t *err);
/* Call this once the run has resumed or started from scratch. Removes what is on the
 * nodes: it has been copied, is damaged, was given up by a person, or is older. Renames
 * the records of what is on other nodes. Logs what is lost. Collective. */
accel_status_t resume_settle(accel_t *run, const struct found *own, accel_error_t *err);

#endif

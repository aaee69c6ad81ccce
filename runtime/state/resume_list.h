/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run may resume from, as all ranks see it: the checkpoints of a directory, and
 * those that an earlier life left on the nodes.
 */
#ifndef ACCEL_STATE_RESUME_LIST_H
#define ACCEL_STATE_RESUME_LIST_H

#include "handle/run.h"

/* One that may be resumed from. */
struct candidate {
    accel_ckpt_info_t at;
    /* its record, where an earlier life left it on the nodes; "": none */
    accel_ckpt_staged_t staged;
    /* its nodes are not those of this run */
    bool away;
};

/* The checkpoints of one directory, the same list on every rank. */
struct found {
    /* newest first; one malloc */
    struct candidate *list;
    int64_t count;
    /* of them in the directory itself */
    int64_t here;
    /* earlier starts of this job: nobody is there to ask */
    long restarts;
};

static inline bool is_staged(const struct candidate *c)
{
    return c->staged.name[0] != '\0';
}

/* Proof that what a save wrote is no longer there. No other error says anything about
 * the checkpoint: falling back to an older one could lose a newer one that is whole. */
static inline bool is_damage(accel_status_t st)
{
    return st == ACCEL_ECORRUPT;
}

/* Does a checkpoint with this identity, at `where`, belong to this run? A0818. */
accel_status_t resume_same_run(const accel_t *run, const char *id, const char *where,
                               accel_error_t *err);
/* Rank 0's view of directory `dir` decides which names are tried, so that all ranks try
 * the same ones in the same order. own: it is the run's, to which those on the nodes
 * belong; another run's there are A0818. The caller frees found_out->list. Changes
 * nothing. Collective. */
accel_status_t resume_list(accel_t *run, const char *dir, bool own,
                           struct found *found_out, accel_error_t *err);
/* The run has resumed, or begins: what is on the nodes is copied, damaged, given up by
 * a person, or older, and goes; what is on other nodes gets another name. Says what is
 * lost. Collective. */
accel_status_t resume_settle(accel_t *run, const struct found *own, accel_error_t *err);

#endif

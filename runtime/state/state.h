/* SPDX-License-Identifier: Apache-2.0
 *
 * state/: what a checkpoint of a run holds, how it is saved, and how a run resumes from
 * it.
 */
#ifndef ACCEL_STATE_H
#define ACCEL_STATE_H

#include "handle/run.h"

/* ---- state.c: identity and progress as text -------------------------------------- */

/* Fills in progress.run_id (name, model, data and seed), settings and sharding of a run
 * whose units and groups are known. Not collective; reads samples of a program's own
 * dataset. */
accel_status_t state_identity(accel_t *run, accel_error_t *err);
/* Frees what state_identity made. */
void state_identity_free(accel_t *run);
/* Collective. Refuses ranks that were started with different jobs, models or configs,
 * and names the difference: such ranks would silently train different things. */
accel_status_t state_same_on_all(accel_t *run, accel_error_t *err);
/* Text of the trainer state, one malloc; the caller frees *text_out. */
accel_status_t state_encode(const accel_t *run, char **text_out, size_t *bytes_out,
                            accel_error_t *err);
/* Checks that the checkpoint in `dir` has the optimizer state that this run needs: the
 * same optimizer, the same trained parameters. `text` is its trainer state. */
accel_status_t state_check_optimizer(const accel_t *run, const char *dir,
                                     const char *text, accel_error_t *err);
/* Restores step and cursor from `text`; warns about settings that differ. On error
 * nothing is restored. */
accel_status_t state_decode(accel_t *run, const char *text, accel_error_t *err);
/* ---- settings_lines.c ------------------------------------------------------------ */

/* Warns, on rank 0, about every setting in which the run differs from the trainer state
 * `text`, or that only one of them has. */
void settings_compare(const accel_t *run, const char *text);

/* ---- model_lines.c: the model in that text --------------------------------------- */

#define STATE_MODEL_KEY "model_config"
void model_put(const accel_t *run, struct strbuf *b);

/* ---- local_lines.c: flat shards in that text ------------------------------------- */

void local_put(const accel_t *run, struct strbuf *b);
/* *local_out: the trainer state `text` says that the checkpoint has flat shards. A0847:
 * they are not the shards of this run's layout. */
accel_status_t local_find(const accel_t *run, const char *dir, const char *text,
                          bool *local_out, accel_error_t *err);
/* A0847: the checkpoint has flat shards, so its weights cannot be loaded by name. */
accel_status_t local_refuse(const char *dir, const accel_ckpt_t *c, accel_error_t *err);

/* ---- state_dirs.c ---------------------------------------------------------------- */

/* Rank 0. Writes to buf[len] where accel_save_state(dir) saves; `dir` NULL: the next
 * checkpoint_N. A0835: `dir` holds a checkpoint already. */
accel_status_t state_dirs_choose(accel_t *run, const char *dir, char *buf, size_t len,
                                 accel_error_t *err);
/* Rank 0. Deletes the lowest checkpoint_N; retention_keep complete ones stay. */
void state_dirs_drop_lowest(accel_t *run);
/* The checkpoint that `dir` names, as rank 0 sees it: `dir` itself, or the newest
 * complete one in it. Collective. A0837: there is none. */
accel_status_t state_dirs_find(accel_t *run, const char *dir, char *buf, size_t len,
                               accel_error_t *err);
/* Ends a call with status st, whose error is *e. Only the loss of a peer leaves the run
 * unable to go on. Returns st. */
accel_status_t state_call_end(accel_t *run, accel_status_t st, const accel_error_t *e,
                              accel_error_t *err);
/* Ends a load with status st: a failure is the run's if any rank has overwritten
 * something. Returns st. Collective. */
accel_status_t state_dirs_end(accel_t *run, accel_status_t st, const accel_error_t *e,
                              accel_error_t *err);

/* ---- registered.c: objects of the program in checkpoints ------------------------- */

#define STATE_OBJECTS_BLOB "objects"
/* Collective. Calls the save function of every object. Rank 0 gets the blob of all of
 * them, one malloc; NULL on other ranks, or without objects. An error of one rank is
 * the error of all. */
accel_status_t registered_save(accel_t *run, char **data_out, size_t *bytes_out,
                               accel_error_t *err);
/* Not collective. Checks that checkpoint `c` of directory `dir` has every object, and
 * keeps their data for registered_load. A0972: one is missing or does not fit. */
accel_status_t registered_find(accel_t *run, const char *dir, const accel_ckpt_t *c,
                               accel_error_t *err);
/* Collective. Calls the load functions with what registered_find kept. */
accel_status_t registered_load(accel_t *run, accel_error_t *err);
void registered_free(accel_t *run);

/* ---- state_hooks.c --------------------------------------------------------------- */

/* Collective. Call the program's functions before a save to, or a load from, `dir`. An
 * error of one rank is the error of all. */
accel_status_t state_hooks_save(accel_t *run, const char *dir, accel_error_t *err);
accel_status_t state_hooks_load(accel_t *run, const char *dir, accel_error_t *err);

/* ---- load/resume.c --------------------------------------------------------------- */

/* Resumes as ACCEL_RESUME says: from the newest intact checkpoint of this run, from
 * none, or from another one. ACCEL_OK with step 0 and `resumed` false when the run
 * starts from scratch. Falls back to an older checkpoint only after proven damage, and
 * moves the damaged one aside. A checkpoint that cannot be read now, or has another
 * format, is an error. Never deletes or overwrites a checkpoint. Collective. */
accel_status_t resume_run(accel_t *run, accel_error_t *err);
/* Loads checkpoint `dir`, which is a checkpoint itself and not a directory of them, on
 * all ranks, and notes the resume. Collective: all ranks return the same. */
accel_status_t resume_from(accel_t *run, const char *dir, accel_error_t *err);
/* Rank 0. Moves checkpoints of steps later than the run's aside, because the run went
 * back to an earlier one. */
accel_status_t resume_later_aside(accel_t *run, accel_error_t *err);

/* ---- resume_list.c --------------------------------------------------------------- */

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

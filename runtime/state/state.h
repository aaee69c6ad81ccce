/* SPDX-License-Identifier: Apache-2.0
 *
 * state/: what a checkpoint of a run holds, how it is saved, and how a run resumes from
 * it.
 */
#ifndef ACCEL_STATE_H
#define ACCEL_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accel.h"
#include "accel_ckpt.h"
#include "common/common.h"

/* How far the training has come. */
struct progress {
    /* optimizer steps done */
    int64_t step;
    /* training samples consumed, by all ranks together */
    int64_t cursor;
    /* weights and progress came from a checkpoint */
    bool resumed;
    /* step of the newest checkpoint in the run's own directory; -1: none */
    int64_t saved_step;
    /* saves that failed in a row */
    int64_t failed_saves;
    /* clock_ns of the last save, also of one that failed */
    int64_t last_save_ns;
    /* What every save writes and no step changes, made once by state_identity. The
     * identity of the run: "key=value" words; must agree to resume. */
    char run_id[512];
    /* lines "key=value": optimizer, trained parameters and settings; owned */
    char *settings;
    /* sharding strategy, as a checkpoint names it */
    const char *sharding;
};

#define STATE_MAX_OBJECTS 64
#define STATE_MAX_HOOKS   8
#define STATE_NAME_BYTES  64

/* What a load function of the program gets: a blob of a checkpoint, or its copy. */
struct accel_saved {
    int version, ranks;
    enum accel_state_kind kind;
    /* [ranks]: bytes of each rank, one after the other in `data` */
    size_t *bytes;
    const char *data;
};

/* An object that the program has registered (registered.c). */
struct state_object {
    char name[STATE_NAME_BYTES];
    int version;
    enum accel_state_kind kind;
    accel_state_save_f save;
    accel_state_load_f load;
    void *user;
    /* between the check of a checkpoint and the call of `load`: what it has, in
     * program_state.blob */
    struct accel_saved found;
};

/* A function of the program around a save or a load. */
struct state_hook {
    accel_state_hook_f fn;
    void *user;
};

/* What the program has added to the state of the run. */
struct program_state {
    /* [STATE_MAX_OBJECTS], made with the first; owned */
    struct state_object *object;
    int objects;
    /* a copy of the blob that registered_find has checked; NULL: none */
    char *blob;
    struct state_hook on_save[STATE_MAX_HOOKS], on_load[STATE_MAX_HOOKS];
    int save_hooks, load_hooks;
    /* a load has begun to write into the run, on this rank */
    bool overwritten;
    /* this rank's function was the one that failed */
    bool function_failed;
};

/* Place in the global sample order of the first sample that `rank` takes in micro-batch
 * `micro` of a step that starts at `cursor`. In each micro-batch the ranks take `batch`
 * samples one after the other. With micro = the number of micro-batches and rank 0 this
 * is where the next step starts, whatever the number of ranks. */
static inline int64_t run_first_sample(int64_t cursor, int micro, int world, int rank,
                                       int batch)
{
    return cursor + ((int64_t)micro * world + rank) * batch;
}

/* ---- state.c: identity and progress as text -------------------------------------- */

/* Fills in progress.run_id (name, model, data and seed), settings and sharding, from a
 * run whose units and groups are known. Not collective; reads samples of a program's
 * own dataset. */
accel_status_t state_identity(accel_t *run, accel_error_t *err);
/* Frees what state_identity made. */
void state_identity_free(accel_t *run);
/* Collective. Refuses ranks that were started with different jobs, models or configs,
 * and names what differs: they would silently train on different things. */
accel_status_t state_same_on_all(accel_t *run, accel_error_t *err);
/* Text of the trainer state, one malloc; the caller frees *text_out. */
accel_status_t state_encode(const accel_t *run, char **text_out, size_t *bytes_out,
                            accel_error_t *err);
/* Checks that the checkpoint in `dir` has the optimizer state that this run needs: the
 * same optimizer, the same trained parameters. text[bytes] is its trainer state. */
accel_status_t state_check_optimizer(const accel_t *run, const char *dir,
                                     const char *text, size_t bytes,
                                     accel_error_t *err);
/* Restores step and cursor from text[bytes]; warns about settings that differ. On error
 * nothing is restored. */
accel_status_t state_decode(accel_t *run, const char *text, size_t bytes,
                            accel_error_t *err);
/* ---- state_text.c ---------------------------------------------------------------- */

/* Value of `key` in lines "key=value", copied to buf[len]; false: there is none. */
bool state_lookup(const char *text, const char *key, char *buf, size_t len);
/* The same as a whole number, 0 or more. */
bool state_lookup_i64(const char *text, const char *key, int64_t *value_out);

/* ---- average_lines.c: averages of weights in that text --------------------------- */

/* The optimizer's rule, as a line of the settings; `of` is its optim_suffix. */
void average_put_rule(const struct accel_optim *o, const char *of, struct strbuf *b);
/* The steps between two means of local SGD, the same. */
void average_put_local(const accel_t *run, struct strbuf *b);
/* Where the averages stand. */
void average_put_progress(const accel_t *run, struct strbuf *b);
/* A0987: the trainer state `text` of checkpoint `dir` has no average for an optimizer
 * that keeps one. */
accel_status_t average_check(const struct accel_optim *o, const char *dir,
                             const char *text, accel_error_t *err);
void average_take_progress(accel_t *run, const char *text);

/* ---- run_boxes.c: the tensors of a checkpoint ------------------------------------ */

/* The tensors of a checkpoint as boxes in host memory. */
struct run_boxes {
    /* `all` has `count` boxes; it is `shards` where there are no buffers */
    accel_ckpt_box_t *all, *shards;
    /* the boxes of the shards come first */
    size_t count, shard_count;
    /* With a device: the host memory that boxes point to. */
    char *image;
    /* [count]: the device memory that each box is a copy of; NULL: it has none */
    void **device;
};

/* What this rank stores in a checkpoint or, for_load, reads from one: the run's own
 * memory, or a host copy of the device's, which is complete when the call returns. Not
 * collective. Free it in either case, also after an error. */
accel_status_t run_boxes(accel_t *run, bool for_load, struct run_boxes *boxes_out,
                         accel_error_t *err);
/* After a load: copies what was read into the device's memory, and drops gathered
 * copies of the old values. */
void run_boxes_store(accel_t *run, const struct run_boxes *boxes);
/* Frees the boxes and the copy, not the run's memory. */
void run_boxes_free(struct run_boxes *boxes);

/* ---- registered.c: objects of the program ---------------------------------------- */

#define STATE_OBJECTS_BLOB "objects"
/* Collective. Calls the save function of every object. Rank 0 gets the blob of all of
 * them, one malloc; NULL on other ranks, or without objects. An error of one rank is
 * the error of all. */
accel_status_t registered_save(accel_t *run, char **data_out, size_t *bytes_out,
                               accel_error_t *err);
/* Not collective. Checks that checkpoint `c` of directory `dir` has every object, and
 * keeps what it has for registered_load. A0972: it does not. */
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

/* ---- save.c ---------------------------------------------------------------------- */

/* Saves a checkpoint of the current step; does nothing if that step is saved or the
 * run saves none. Collective: every rank gets the same status. On failure older
 * checkpoints are untouched. */
accel_status_t save_checkpoint(accel_t *run, accel_error_t *err);
/* Writes the current step below `root`, which keeps the newest `keep` of its
 * checkpoints. Collective: every rank gets the same status. */
accel_status_t save_below(accel_t *run, const char *root, int keep,
                          accel_ckpt_stats_t *stats_out, accel_error_t *err);
/* save_checkpoint in the middle of a run. A save that fails and may succeed later (disk
 * full) is counted and warned about, and training goes on with the older
 * checkpoint. Collective. */
accel_status_t save_or_go_on(accel_t *run, accel_error_t *err);
/* The same at the end of a life, where no later save can make up for it: up to 4 tries
 * with 7 s of pauses, then the failure is the run's error. Collective. */
accel_status_t save_last(accel_t *run, accel_error_t *err);

/* ---- resume.c -------------------------------------------------------------------- */

/* Resumes as ACCEL_RESUME says: from the newest intact checkpoint of this run, from
 * none, or from another one. ACCEL_OK with step 0 and `resumed` false when the run
 * starts anew. Falls back to an older checkpoint only after proven damage, and moves
 * the damaged one aside. A checkpoint that cannot be read now, or has another format,
 * is an error. Never deletes or overwrites a checkpoint. Collective. */
accel_status_t resume_run(accel_t *run, accel_error_t *err);
/* Loads checkpoint `dir` (one of them, not a directory of them) on all ranks and notes
 * that the run is resumed. Collective: all ranks return the same. */
accel_status_t resume_from(accel_t *run, const char *dir, accel_error_t *err);

/* ---- state_dirs.c ---------------------------------------------------------------- */

/* Rank 0's word on which checkpoint `dir` names: itself, or the newest complete one of
 * that directory. Collective. A0837: there is none. */
accel_status_t state_dirs_find(accel_t *run, const char *dir, char *buf, size_t len,
                               accel_error_t *err);
/* Ends a load with status st: its failure is the run's where a rank has overwritten
 * something. Returns st. Collective. */
accel_status_t state_dirs_end(accel_t *run, accel_status_t st, const accel_error_t *e,
                              accel_error_t *err);

#endif

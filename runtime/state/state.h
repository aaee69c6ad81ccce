/* SPDX-License-Identifier: Apache-2.0
 *
 * state/: what a checkpoint of a run holds, how it is saved, and how a run resumes from
 * it.
 */
#ifndef ACCEL_STATE_H
#define ACCEL_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "accel.h"
#include "accel_ckpt.h"
#include "common/common.h"
#include "life/life.h"
#include "shard/shard.h"

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
 * same optimizer, the same trained parameters. `text` is its trainer state. */
accel_status_t state_check_optimizer(const accel_t *run, const char *dir,
                                     const char *text, accel_error_t *err);
/* Restores step and cursor from `text`; warns about settings that differ. On error
 * nothing is restored. */
accel_status_t state_decode(accel_t *run, const char *text, accel_error_t *err);
/* ---- settings_lines.c ------------------------------------------------------------ */

/* Warns, on rank 0, of every setting that the run has otherwise than the trainer state
 * `text`, or that only one of them has. */
void settings_compare(const accel_t *run, const char *text);

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

/* ---- compression_lines.c: PowerSGD in that text ---------------------------------- */

void compression_put_rule(const accel_t *run, struct strbuf *b);
/* How many sums each optimizer has been through. */
void compression_put_progress(const accel_t *run, struct strbuf *b);
/* A0991: the trainer state `text` of checkpoint `dir` is of another rule. */
accel_status_t compression_find(const accel_t *run, const char *dir, const char *text,
                                accel_error_t *err);
void compression_take_progress(accel_t *run, const char *text);

/* ---- scaler_lines.c: the loss scale in that text --------------------------------- */

void scaler_put_rule(const accel_t *run, struct strbuf *b);
void scaler_put_progress(const accel_t *run, struct strbuf *b);
/* A0996: the trainer state `text` of checkpoint `dir` has an unreadable one. */
accel_status_t scaler_find(const accel_t *run, const char *dir, const char *text,
                           accel_error_t *err);
void scaler_take_progress(accel_t *run, const char *text);

/* ---- fp8_state.c: the scales of linears in 8 bits -------------------------------- */

void fp8_put_rule(const accel_t *run, struct strbuf *b);
void fp8_put_progress(const accel_t *run, struct strbuf *b);
/* The tensors of a save, as boxes in box[] with their names in `text`; NULL: they are
 * counted only. Returns how many there are; *text_bytes_out: of all names. */
size_t fp8_boxes(const accel_t *run, accel_ckpt_box_t *box, char *text,
                 size_t *text_bytes_out);
/* The scales that a checkpoint has for linears of this run, before and after they are
 * read. Zeros: none. fp8_stored_free frees what it points to. */
struct fp8_stored {
    /* [count] boxes, and the linear of each */
    accel_ckpt_box_t *box;
    int *linear;
    size_t count;
    /* length of the histories there; 0: the checkpoint has no scales */
    int64_t history;
    char *names;
    float *data;
};
/* Lists the scales that checkpoint `c` of directory `dir` has; `text` is its trainer
 * state. Not collective. A0998: they have a wrong form. */
accel_status_t fp8_find(accel_t *run, const char *dir, accel_ckpt_t *c,
                        const char *text, struct fp8_stored *stored_out,
                        accel_error_t *err);
/* Reads them from storage once, for all ranks and for fp8_take_progress. Collective;
 * errors are this rank's own. A0998: they are damaged. */
accel_status_t fp8_read(accel_t *run, const char *dir, accel_ckpt_t *c,
                        const struct fp8_stored *s, accel_error_t *err);
void fp8_stored_free(struct fp8_stored *s);
/* Scales that the checkpoint does not have begin anew. */
void fp8_take_progress(accel_t *run, const char *text);

/* ---- moments_lines.c: the form of optimizer state in that text ------------------- */

void moments_put_rule(const struct accel_optim *o, const char *of, struct strbuf *b);
/* forms_out[i]: that of the state of optimizer i of the run. */
void moments_own(const accel_t *run, accel_moments_t forms_out[ACCEL_MAX_OPTIMS]);
/* The same of the checkpoint with that text. A0999: its word is none. */
accel_status_t moments_find(const accel_t *run, const char *dir, const char *text,
                            accel_moments_t forms_out[ACCEL_MAX_OPTIMS],
                            accel_error_t *err);
/* Rank 0 warns of what a load with another form loses. */
void moments_warn(const accel_t *run, const accel_moments_t theirs[ACCEL_MAX_OPTIMS]);

/* ---- masters_lines.c: the form of master weights in that text -------------------- */

void masters_put(const accel_t *run, struct strbuf *b);
/* The type of masters in the checkpoint with that text. A0999: its word is none. */
accel_status_t masters_find(const char *dir, const char *text, accel_dtype_t *type_out,
                            accel_error_t *err);
/* Rank 0 warns of what a load with another type loses. part: of weights alone. */
void masters_warn(const accel_t *run, accel_dtype_t theirs, bool part);

/* ---- model_lines.c: the model in that text --------------------------------------- */

#define STATE_MODEL_KEY "model_config"
void model_put(const accel_t *run, struct strbuf *b);

/* ---- local_lines.c: flat shards in that text ------------------------------------- */

void local_put(const accel_t *run, struct strbuf *b);
/* *local_out: the trainer state `text` is of flat shards. A0847: of others than those
 * that this run has. */
accel_status_t local_find(const accel_t *run, const char *dir, const char *text,
                          bool *local_out, accel_error_t *err);
/* A0847: the checkpoint has flat shards, and its weights are asked for by name. */
accel_status_t local_refuse(const char *dir, const accel_ckpt_t *c, accel_error_t *err);

/* ---- run_boxes.c: the tensors of a checkpoint ------------------------------------ */

/* The tensors of a checkpoint as boxes in host memory. */
struct run_boxes {
    /* of run_boxes_saved: room for state in another form than the run's */
    struct shard_saved saved;
    /* `all` has `count` boxes; it is `shards` where there are no buffers */
    accel_ckpt_box_t *all, *shards;
    /* the boxes of the shards come first; buffers and scales, the host's, follow */
    size_t count, shard_count, scale_count;
    /* With a device: the host memory that boxes point to. */
    char *image;
    /* [count]: the device memory that each box is a copy of; NULL: it has none */
    void **device;
};

/* What this rank stores in a checkpoint: the run's own memory, or a host copy of the
 * device's, which is complete when the call returns. Not collective. Free it in either
 * case, also after an error. */
accel_status_t run_boxes(accel_t *run, struct run_boxes *boxes_out, accel_error_t *err);
/* What it reads from a checkpoint, whose masters have that type, and its
 * optimizers' state those forms: [ACCEL_MAX_OPTIMS] as in struct shard_saved. local:
 * it has the flat shards of this run. */
accel_status_t run_boxes_saved(accel_t *run, bool local, accel_dtype_t masters,
                               const accel_moments_t *moments,
                               struct run_boxes *boxes_out, accel_error_t *err);
/* The collectives of communicator c, for libaccelckpt. */
accel_ckpt_coll_t state_collectives(struct comm *c);
/* Fills the boxes from checkpoint `c`. Collective: all ranks have opened the same one;
 * an error may be of this rank alone (accel_ckpt_read_together). */
accel_status_t run_boxes_read(accel_t *run, accel_ckpt_t *c, const struct run_boxes *b,
                              accel_error_t *err);
/* After a load: copies what was read into the device's memory, and drops gathered
 * copies of the old values. */
void run_boxes_store(accel_t *run, const struct run_boxes *boxes);
/* Frees the boxes and the copy, not the run's memory. */
void run_boxes_free(struct run_boxes *boxes);

/* The boxes of a save as the run's memory has them, on whatever device that is. */
accel_status_t run_boxes_list(accel_t *run, struct run_boxes *boxes_out,
                              accel_error_t *err);
/* Bytes of a box in memory. */
size_t run_box_bytes(const accel_ckpt_box_t *box);
/* Is box i in device memory? */
bool run_box_on_device(const accel_t *run, const struct run_boxes *boxes, size_t i);

/* ---- retention.c: what stays when a save is durable ------------------------------ */

struct retention {
    /* as the config says */
    accel_ckpt_rule_t rule;
    /* of the metric, after `step`, which is not saved yet; step -1: none */
    double value;
    int64_t step;
    /* rank 0 has written a value; saves without one; it has warned of them */
    bool noted, warned;
    int saves;
};
/* Takes the rule from the config. */
void retention_open(accel_t *run);
/* How many of the newest stay: never fewer than two, so that one is left when the
 * newest proves to be damaged. */
int retention_keep(const accel_t *run);
/* The program's, or accel_evaluate's; other metrics than the rule's are dropped. */
void retention_note(accel_t *run, const char *name, double value);
/* The current step is about to be saved: writes its value down. Warns once where the
 * rule goes by values and there are none. */
void retention_save(accel_t *run);
/* The value is of another history. */
void retention_forget(accel_t *run);
/* For accel_ckpt_save_t: no, once a stop has been asked for. Any thread. */
int retention_may_delete(void);

/* ---- background.c: a save that is written while training goes on ----------------- */

struct background {
    /* there is a pool; the same on all ranks */
    bool on;
    /* a save at once has been timed, so that a stop knows how long one takes; the same
     * on all ranks */
    bool timed;
    /* [pool_bytes]: the copy of the tensors */
    char *pool;
    size_t pool_bytes;
    /* the device has not yet made the copy; the same on all ranks */
    bool copying;
    /* being copied or written, or waiting for its commit; the same on all ranks */
    bool in_flight;
    int64_t step;
    /* NULL: none; it outlives in_flight while older checkpoints are deleted */
    accel_ckpt_saving_t *saving;
    pthread_t thread;
    bool running;
    /* it goes to the nodes' own disks */
    bool local;
    /* of background_do */
    accel_t *run;
    void (*work)(accel_t *run);
    /* this rank's file is complete, or failed */
    atomic_bool written, failed;
    /* when its thread began and ended; clock_ns, 0: never */
    int64_t begun;
    _Atomic int64_t ended;
    /* what the blobs of `saving` point to, owned */
    char *state, *objects;
    /* seconds that the training waited for the copy, the begin and the commit */
    double stall;
    /* a periodic save came before in this life: the time between two is known */
    bool regular;
    /* saves that were due since it began and left out */
    int64_t skipped;
};
/* Copies the boxes to the pool and points them there. From a device the copy goes on
 * behind the call: background_copied ends it. None may be in flight. Not collective. */
accel_status_t background_snapshot(accel_t *run, struct run_boxes *boxes,
                                   accel_error_t *err);
/* Waits until the copy from a device is complete; its write begins. Does nothing where
 * there is none. Not collective. */
accel_status_t background_copied(accel_t *run, accel_error_t *err);
/* The same, collective: every rank gets the same status. */
accel_status_t background_all_copied(accel_t *run, accel_error_t *err);
/* Begins to write, once the copy is complete; none may be in flight. What `s` points to
 * must stay until it is published. Collective: every rank gets the same status. */
accel_status_t background_begin(accel_t *run, const accel_ckpt_save_t *s,
                                const accel_ckpt_coll_t *coll, accel_error_t *err);
/* Lets the thread write b->saving, the caller's, which saves `step`. */
void background_write(struct background *b, int64_t step);
/* Lets the thread write as fast as it can, if it writes: somebody waits for it. Not
 * collective. */
void background_hurry(struct background *b);
/* Has this rank's write failed? The other ranks need not take their time then. Not
 * collective. */
bool background_failed(const struct background *b);
/* Does this rank's thread still write, also what was given up? Not collective. */
bool background_writes(const struct background *b);
/* How long this rank's thread wrote the last one, or has written so far. ns; 0: there
 * was none. */
int64_t background_ns(const struct background *b);
/* Waits for the write and commits. Older checkpoints are then deleted by the thread.
 * Collective: every rank gets the same status. */
accel_status_t background_publish(struct background *b, const accel_ckpt_coll_t *coll,
                                  accel_ckpt_stats_t *stats_out, accel_error_t *err);
/* A save at once, durable when the call returns. Older checkpoints are then deleted by
 * the thread. None may be in flight. Collective: every rank gets the same status. */
accel_status_t background_save_now(accel_t *run, const accel_ckpt_save_t *s,
                                   const accel_ckpt_coll_t *coll,
                                   accel_ckpt_stats_t *stats_out, accel_error_t *err);
/* Lets the thread do work(run), which must not touch what the training uses. None may
 * be in flight. Not collective. */
void background_do(struct background *b, accel_t *run, void (*work)(accel_t *run));
/* Waits until nothing is deleted any more; does nothing about a save in flight. Not
 * collective. */
void background_settle(struct background *b);
/* Tells the thread to leave the save in flight; there must be one. No other is begun.
 * Not collective, but all ranks call it or none. */
void background_give_up(struct background *b);
/* Waits for the thread and frees everything; a save in flight is not committed. */
void background_close(accel_t *run);

/* ---- background_pool.c: its memory ----------------------------------------------- */

/* Makes the pool as accel.checkpoint.async has it. auto: background.on is false where
 * memory is short, which rank 0 logs, and that is no error. Collective: every rank gets
 * the same status. */
accel_status_t background_open(accel_t *run, accel_error_t *err);
/* The copy of `step` could not be had: frees the pool, and says that saves are at once
 * from here on. Not collective, but all ranks call it or none. */
void background_drop(accel_t *run, int64_t step);
/* Where a box of so many bytes begins that comes behind `at`. */
size_t pool_place(size_t at, size_t bytes);
/* Bytes of a copy of all boxes. */
size_t pool_bytes(const struct run_boxes *b);
/* A pool of at least so many bytes; on a device it is page-locked. */
accel_status_t pool_make(accel_t *run, size_t bytes, accel_error_t *err);
void pool_free(accel_t *run);

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

/* ---- save_notes.c ---------------------------------------------------------------- */

/* This life's name in the names of what it saves: rank 0's word. Collective. */
accel_status_t save_owner(accel_t *run, char *buf, size_t len, accel_error_t *err);
/* For accel_ckpt_save_t, whose may_commit_user is the run: a later life ends it. */
accel_status_t save_may_commit(void *user, accel_error_t *err);
/* Notes and logs what is known once the checkpoint of `step` is durable: also how long
 * it took, for stops of this life and of later ones. */
void save_note(accel_t *run, int64_t step, enum save_kind kind,
               const accel_ckpt_stats_t *stats);
/* Notes that a save of `kind` took `seconds`, without the time that it left to others,
 * for the deadlines of this life and of later ones. */
void save_measure(accel_t *run, int64_t step, enum save_kind kind, double seconds);
/* Is it an error that another try may cure: a full disk, a file system that is away? */
bool save_may_pass(accel_status_t st);

/* ---- save.c ---------------------------------------------------------------------- */

/* Saves a checkpoint of the current step, which replaces one of that step: the program
 * may have changed weights or objects since. Does nothing if the run saves none.
 * Collective: every rank gets the same status. On failure older checkpoints, and that
 * of this step, are untouched. */
accel_status_t save_checkpoint(accel_t *run, accel_error_t *err);
/* Waits until the save in flight is written, and commits it; does nothing if there is
 * none. A failure that may pass is warned about, and no error. Collective: every rank
 * gets the same status. */
accel_status_t save_finish(accel_t *run, accel_error_t *err);
/* Writes the current step below `root`, which keeps the newest `keep` of its
 * checkpoints and what the rule adds. Collective: every rank gets the same status. */
accel_status_t save_below(accel_t *run, const char *root, int keep,
                          accel_ckpt_stats_t *stats_out, accel_error_t *err);
/* save_checkpoint in the middle of a run. A save that fails and may succeed later (disk
 * full) is counted and warned about, and training goes on with the older
 * checkpoint. With accel.checkpoint.async it is only begun, and save_finish ends it.
 * Collective. */
accel_status_t save_or_go_on(accel_t *run, accel_error_t *err);
/* Saves the current step on the nodes; staging.on is true. A failure ends the staging
 * of this life, with a warning, and is the caller's. Collective: every rank gets the
 * same status. */
accel_status_t save_staged(accel_t *run, accel_error_t *err);

/* ---- last_save.c ----------------------------------------------------------------- */

/* save_checkpoint at the end of a run, where no later save can make up for it: up to 4
 * tries with 7 s of pauses, then the failure is the run's error. Collective. */
accel_status_t save_last(accel_t *run, accel_error_t *err);
/* The same for a stop by `sig`, and the save in flight before it, as far as there is
 * time for them. ACCEL_OK with progress.saved_step below the run's step: there was not,
 * and life.declined says why. Collective. */
accel_status_t save_stop(accel_t *run, int sig, accel_error_t *err);

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
/* Rank 0. Moves the checkpoints of later steps than the run's aside, as the run was set
 * back. */
accel_status_t resume_later_aside(accel_t *run, accel_error_t *err);

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

/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_state.h: the program's access to the state of a run. Objects of the program in
 * checkpoints, saving and loading at any moment, parts of a checkpoint, and single
 * parameters by name.
 */
#include "accel.h" /* which includes this header at its end */

#ifndef ACCEL_STATE_PUBLIC_H
#define ACCEL_STATE_PUBLIC_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- objects of the program ---------------------------------------------------------
 * What a program keeps besides weights (a vocabulary, a history, a random stream) goes
 * into every checkpoint under a name, and is restored from it. */

/* Whose bytes a checkpoint stores. */
typedef enum accel_state_kind {
    ACCEL_STATE_COMMON = 0,     /* rank 0's, for all ranks */
    ACCEL_STATE_PER_RANK = 1,   /* every rank's; load gets those of all saved ranks */
    ACCEL_STATE_SAME_RANKS = 2, /* every rank's; refused with another number of ranks */
} accel_state_kind_t;

/* Receives what a save function writes; grows as needed; freed by the library. */
typedef struct accel_bytes accel_bytes_t;
/* Appends data[bytes]. After a failure all later calls fail too, and so does the
 * save. */
accel_status_t accel_bytes_put(accel_bytes_t *to, const void *data, size_t bytes,
                               accel_error_t *err);
/* What a load function gets, valid during the call: the version it was saved with, the
 * number of ranks with bytes (1 for ACCEL_STATE_COMMON), and the bytes of rank `rank`
 * of that save; NULL if there is no such rank. */
typedef struct accel_saved accel_saved_t;
int accel_saved_version(const accel_saved_t *from);
int accel_saved_ranks(const accel_saved_t *from);
const void *accel_saved_bytes(const accel_saved_t *from, int rank, size_t *bytes_out);

/* Called on every rank. An error (accel_error_set) on one rank ends the save or the
 * load on all, with its text. */
typedef accel_status_t (*accel_state_save_f)(void *user, accel_bytes_t *to,
                                             accel_error_t *err);
typedef accel_status_t (*accel_state_load_f)(void *user, const accel_saved_t *from,
                                             accel_error_t *err);
/* Puts an object under `name` (1 to 63 letters, digits, underscores, dots and hyphens)
 * into every checkpoint of the run, and restores it when the run resumes or loads one:
 * `load` is called after the weights are loaded. At most 64 objects, 512 MiB in total
 * over all ranks. Before accel_prepare; `user` must outlive the run. A checkpoint
 * without the object, or with a newer version of it, is refused. The library warns
 * about an object of the checkpoint that is not registered, and later saves omit it.
 * Errors: ACCEL_EINVAL (name, functions, a second object of that name, after
 * accel_prepare). */
accel_status_t accel_register(accel_t *run, const char *name, int version,
                              accel_state_kind_t kind, accel_state_save_f save,
                              accel_state_load_f load, void *user, accel_error_t *err);

/* `dir`: the directory below which the checkpoint is written, or from which it is
 * read. */
typedef accel_status_t (*accel_state_hook_f)(void *user, const char *dir,
                                             accel_error_t *err);
/* Calls `fn` on every rank before any part of a checkpoint is written, or read. An
 * error on one rank ends the save or the load on all, with its text. At most 8 of each,
 * called in the order they were added; `user` must outlive the run. ACCEL_EINVAL (no
 * function, a ninth). */
accel_status_t accel_on_save(accel_t *run, accel_state_hook_f fn, void *user,
                             accel_error_t *err);
accel_status_t accel_on_load(accel_t *run, accel_state_hook_f fn, void *user,
                             accel_error_t *err);

/* ---- saving and loading at any moment -------------------------------------------- */

/* Writes a checkpoint of the run between two steps into directory `dir`, which is
 * created when missing and must hold no checkpoint. The checkpoint is complete or
 * absent. NULL: into checkpoint_N of the checkpoint directory, N one more than the
 * highest there, from 0; when it is durable, the lowest numbers beyond
 * accel.checkpoint.keep are deleted. It also saves when the config has
 * accel.checkpoint.save: false. The run's own checkpoints, from which it resumes, are
 * not affected. A failure leaves the run unchanged, unless a peer was lost. Collective.
 * Errors: ACCEL_EINVAL (in the middle of a step, a directory that holds a checkpoint),
 * those of accel_save. */
accel_status_t accel_save_state(accel_t *run, const char *dir, accel_error_t *err);
/* Notes the value of a metric of the current weights, after the last completed step:
 * accel.checkpoint.keep_best uses it if `name` is accel.checkpoint.metric. It applies
 * to a checkpoint of this step, saved already or later, and is stored with the next
 * save. accel_evaluate notes its result as "eval_loss". A value that is not finite
 * counts as none. Rank 0's value counts. Not collective. Errors: ACCEL_EINVAL (no name,
 * before accel_prepare). */
accel_status_t accel_note_metric(accel_t *run, const char *name, double value,
                                 accel_error_t *err);
/* Sets the run back to one of its own checkpoints: weights, optimizer state, step, data
 * position, loaders, objects. `dir`: as given to accel_save_state, a checkpoint
 * directory, or one checkpoint in it; NULL: the newest complete checkpoint_N. The run's
 * own checkpoints of later steps are moved aside, so that a restart does not resume
 * from them. Between two steps. A failure before anything was read leaves the run
 * unchanged; a later one ends it. Collective. Errors: ACCEL_EINVAL (in the middle of a
 * step), ACCEL_ENOENT, ACCEL_EMISMATCH, ACCEL_ECORRUPT, ACCEL_EIO, ACCEL_EPERM. */
accel_status_t accel_load_state(accel_t *run, const char *dir, accel_error_t *err);

/* ---- parts of a checkpoint ------------------------------------------------------- */

/* A name in the checkpoint and the corresponding name in the run. If `from` ends in '.'
 * or is empty, it stands for all names that begin with it, and `to` replaces that
 * prefix; otherwise it is one whole name. */
typedef struct accel_rename {
    const char *from, *to;
} accel_rename_t;
/* All zero: all weights that fit, under their own names. */
typedef struct accel_part {
    size_t bytes;
    const char *match;            /* glob of names in the checkpoint; NULL: all */
    const accel_rename_t *rename; /* the first that fits counts */
    int rename_count;
    int strict; /* a missing or unexpected name is an error, and nothing is read */
} accel_part_t;
/* What accel_load_part has loaded. Owned by the caller; accel_part_report_free frees
 * the lists. */
typedef struct accel_part_report {
    size_t bytes;
    size_t loaded;     /* parameters and buffers that were read */
    char **missing;    /* [missing_count]: in the run, but not in the part */
    char **unexpected; /* [unexpected_count]: only in the part, by checkpoint names */
    size_t missing_count, unexpected_count;
} accel_part_report_t;
void accel_part_report_free(accel_part_report_t *report);
/* Fills parameters and buffers from a checkpoint of any run, written by any number of
 * ranks; `dir` as for accel_load_state, not NULL. Optimizer state, step and objects are
 * unchanged. `part` NULL: all zero. `report` may be NULL; a strict refusal fills it
 * too. Between micro-batches. A failure before anything was read leaves the run
 * unchanged; a later one ends it. Collective. Errors: ACCEL_EMISMATCH (strict; another
 * shape; two names in the checkpoint for one in the run), ACCEL_EINVAL, ACCEL_ENOENT,
 * ACCEL_ECORRUPT, ACCEL_EIO, ACCEL_EPERM. */
accel_status_t accel_load_part(accel_t *run, const char *dir, const accel_part_t *part,
                               accel_part_report_t *report, accel_error_t *err);

/* ---- one parameter ------------------------------------------------------------------
 * A parameter or a buffer by its full name ("h.0.attn.c_attn.weight"; for your own
 * units "unit.name"), whole, whatever the sharding strategy and the device. A failure
 * is the same on all ranks and leaves the run unchanged, unless a peer was lost. */

/* Reads the master weights of parameter `name`, or the values of buffer `name`, into
 * dst[elems], row-major, on rank `to`; ACCEL_ALL_RANKS: on all ranks. Other ranks do
 * not use dst, which may be NULL there. `elems` must be the number of elements. Values
 * of int32 buffers beyond 2^24 are rounded to float32. After accel_prepare, outside a
 * forward. Collective. Errors: ACCEL_EINVAL (no such name, another size, ranks that
 * give different names). */
#define ACCEL_ALL_RANKS (-1)
accel_status_t accel_param_read(accel_t *run, const char *name, int to, float *dst,
                                int64_t elems, accel_error_t *err);
/* Replaces them with src[elems], the same on all ranks. Each rank takes its part;
 * optimizer state and gradients are unchanged. Values for bfloat16 buffers are rounded;
 * int32 buffers accept whole numbers only. Between micro-batches. Collective. Errors:
 * as above. */
accel_status_t accel_param_write(accel_t *run, const char *name, const float *src,
                                 int64_t elems, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_state.h: the state of a run in the program's hands. Objects of the program in
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
 * What a program keeps beside weights (a vocabulary, a history, a random stream) goes
 * into every checkpoint under a name, and comes back with it. */

/* Whose bytes a checkpoint has. */
typedef enum accel_state_kind {
    ACCEL_STATE_COMMON = 0,     /* rank 0's, for all ranks */
    ACCEL_STATE_PER_RANK = 1,   /* every rank's; load sees those of all old ranks */
    ACCEL_STATE_SAME_RANKS = 2, /* every rank's; refused at another number of ranks */
} accel_state_kind_t;

/* Takes what a save function writes; grows by itself, freed by the library. */
typedef struct accel_bytes accel_bytes_t;
/* Appends data[bytes]. After a failure all later calls fail, too, and so does the
 * save. */
accel_status_t accel_bytes_put(accel_bytes_t *to, const void *data, size_t bytes,
                               accel_error_t *err);
/* What a load function gets, valid during the call: the version that it was saved with,
 * how many ranks' bytes there are (1 for ACCEL_STATE_COMMON), and those of old rank
 * `rank`; NULL where there is no such rank. */
typedef struct accel_saved accel_saved_t;
int accel_saved_version(const accel_saved_t *from);
int accel_saved_ranks(const accel_saved_t *from);
const void *accel_saved_bytes(const accel_saved_t *from, int rank, size_t *bytes_out);

/* Called on every rank. An error (accel_error_set) of one rank ends the save or the
 * load on all, with its text. */
typedef accel_status_t (*accel_state_save_f)(void *user, accel_bytes_t *to,
                                             accel_error_t *err);
typedef accel_status_t (*accel_state_load_f)(void *user, const accel_saved_t *from,
                                             accel_error_t *err);
/* Puts an object under `name` (1 to 63 letters, digits, underscores, dots and hyphens)
 * into every checkpoint of the run, and restores it when the run resumes or loads one:
 * `load` is called when the weights are there. At most 64 objects, of all ranks 512 MiB
 * together. Before accel_prepare; `user` must outlive the run. A checkpoint without the
 * object, or with a newer version of it, is refused; an object of the checkpoint that
 * is not registered is warned of, and later saves are without it. Errors: ACCEL_EINVAL
 * (name, functions, a second object of that name, after accel_prepare). */
accel_status_t accel_register(accel_t *run, const char *name, int version,
                              accel_state_kind_t kind, accel_state_save_f save,
                              accel_state_load_f load, void *user, accel_error_t *err);

/* `dir`: the directory that the checkpoint is written below, or read from. */
typedef accel_status_t (*accel_state_hook_f)(void *user, const char *dir,
                                             accel_error_t *err);
/* Calls fn on every rank before anything of a checkpoint is written, or read. An error
 * of one rank ends the save or the load on all, with its text. At most 8 of each,
 * called in the order they were added; `user` must outlive the run. ACCEL_EINVAL (no
 * function, a ninth). */
accel_status_t accel_on_save(accel_t *run, accel_state_hook_f fn, void *user,
                             accel_error_t *err);
accel_status_t accel_on_load(accel_t *run, accel_state_hook_f fn, void *user,
                             accel_error_t *err);

/* ---- saving and loading at any moment -------------------------------------------- */

/* Writes a checkpoint of the run as it is between two steps into directory `dir`, made
 * when missing, which must hold none; it is complete or not there. NULL: into
 * checkpoint_N of the checkpoint directory, N one more than the highest there, from 0;
 * when it is durable, the lowest numbers beyond accel.checkpoint.keep are deleted. Also
 * where the config has accel.checkpoint.save: false. What the run saves by itself and
 * resumes from stays as it is. A failure leaves the run as it was, unless a peer was
 * lost. Collective. Errors: ACCEL_EINVAL (in the middle of a step, a directory that
 * holds a checkpoint), those of accel_save. */
accel_status_t accel_save_state(accel_t *run, const char *dir, accel_error_t *err);
/* The value of a metric of the weights as they are now, after the step that was done
 * last: accel.checkpoint.keep_best goes by it, if `name` is accel.checkpoint.metric. It
 * counts for a checkpoint of this step, whether that is saved already or comes later,
 * and is stored with the next save. accel_evaluate notes its result as "eval_loss". A
 * value that is not finite is none. Rank 0's value counts. Not collective. Errors:
 * ACCEL_EINVAL (no name, before accel_prepare). */
accel_status_t accel_note_metric(accel_t *run, const char *name, double value,
                                 accel_error_t *err);
/* Sets the run back to a checkpoint of its own: weights, optimizer state, step, place
 * in the data, loaders, objects. `dir`: as given to accel_save_state, a checkpoint
 * directory, or one checkpoint in it; NULL: the newest complete checkpoint_N.
 * Checkpoints of later steps that the run has saved by itself are moved aside, so that
 * a restart does not resume from them. Between two steps. A failure before anything was
 * read leaves the run as it was, a later one ends it. Collective. Errors: ACCEL_EINVAL
 * (in the middle of a step), ACCEL_ENOENT, ACCEL_EMISMATCH, ACCEL_ECORRUPT, ACCEL_EIO,
 * ACCEL_EPERM. */
accel_status_t accel_load_state(accel_t *run, const char *dir, accel_error_t *err);

/* ---- parts of a checkpoint ------------------------------------------------------- */

/* A name of the checkpoint and its name in the run. Where `from` ends in '.' or is
 * empty it stands for all names that begin with it, and `to` replaces that beginning;
 * else for one whole name. */
typedef struct accel_rename {
    const char *from, *to;
} accel_rename_t;
/* Zero: all weights, under their own names, whatever fits. */
typedef struct accel_part {
    const char *match;            /* glob of names in the checkpoint; NULL: all */
    const accel_rename_t *rename; /* the first that fits counts */
    int rename_count;
    int strict; /* a missing or unexpected name is an error, and nothing is read */
} accel_part_t;
/* Owned by the caller; accel_part_report_free frees the lists. */
typedef struct accel_part_report {
    size_t loaded;     /* parameters and buffers that were read */
    char **missing;    /* [missing_count]: of the run, without values in the part */
    char **unexpected; /* [unexpected_count]: of the part, in the checkpoint's names */
    size_t missing_count, unexpected_count;
} accel_part_report_t;
void accel_part_report_free(accel_part_report_t *report);
/* Fills parameters and buffers from a checkpoint of any run, written by any number of
 * ranks; `dir` as for accel_load_state, not NULL. Optimizer state, step and objects
 * stay. `part` NULL: zero; `report` may be NULL and is filled on a strict refusal, too.
 * Between micro-batches. A failure before anything was read leaves the run as it was, a
 * later one ends it. Collective. Errors: ACCEL_EMISMATCH (strict; another shape; two
 * names of the checkpoint for one of the run), ACCEL_EINVAL, ACCEL_ENOENT,
 * ACCEL_ECORRUPT, ACCEL_EIO, ACCEL_EPERM. */
accel_status_t accel_load_part(accel_t *run, const char *dir, const accel_part_t *part,
                               accel_part_report_t *report, accel_error_t *err);

/* ---- one parameter ------------------------------------------------------------------
 * A parameter or a buffer by its full name ("h.0.attn.c_attn.weight"; of a unit of own
 * compute "unit.name"), whole, whatever the sharding strategy and the device. A failure
 * is the same on all ranks and leaves the run as it was, unless a peer was lost. */

/* The master weights of parameter `name`, or the values of buffer `name`, into
 * dst[elems], row-major, on rank `to` or, where `to` is ACCEL_ALL_RANKS, on all; dst is
 * read on no other rank and may be NULL there. `elems` must be the number of elements.
 * int32 buffers are rounded to float32 beyond 2^24. After accel_prepare, outside a
 * forward. Collective. Errors: ACCEL_EINVAL (no such name, another size, ranks that
 * name different ones). */
#define ACCEL_ALL_RANKS (-1)
accel_status_t accel_param_read(accel_t *run, const char *name, int to, float *dst,
                                int64_t elems, accel_error_t *err);
/* Replaces them with src[elems], the same on all ranks. Each rank takes its part; the
 * optimizer's state and the gradients stay. bfloat16 buffers round; int32 ones take
 * whole numbers only. Between micro-batches. Collective. Errors: as above. */
accel_status_t accel_param_write(accel_t *run, const char *name, const float *src,
                                 int64_t elems, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif

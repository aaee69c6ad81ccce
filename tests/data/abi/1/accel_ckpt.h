/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ckpt.h: the public header of libaccelckpt. Sharded checkpoints on disk: write,
 * commit, find, verify, and read at any world size. Format: doc/checkpoint-format.md.
 *
 * The library does not depend on the runtime: collectives are callbacks, tensors are
 * (name, box, pointer). The load path never calls libhdf5. Nothing is printed. A box
 * is an n-dimensional sub-array of a tensor: offset[ndim] and shape[ndim] in elements
 * of the global tensor; in memory it is row-major and contiguous.
 *
 * Every function takes `err` last. It may be NULL, belongs to the caller, and is
 * written only on failure. Outputs (`_out`) are written only on success, unless stated
 * otherwise.
 */
#ifndef ACCEL_CKPT_H
#define ACCEL_CKPT_H

#include "accel.h" /* of it, accel_report, _status_name, _exit_code and _version */

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define ACCEL_CKPT_MAX_DIMS 8

/* The caller's collectives. All ranks call the library's collective functions in the
 * same order; the library then calls these in the same order on every rank. A NULL
 * pointer to the struct means one process. The contracts are those of comm.h. */
typedef struct accel_ckpt_coll {
    /* passed back as the first argument of each callback */
    void *user;
    /* 0 <= rank < size */
    int rank, size;
    /* Gathers blocks of any size on `root`. There *all is one malloc with the blocks in
     * rank order, which the library frees, and sizes[size] gets their bytes; on other
     * ranks *all is NULL and sizes may be NULL. */
    accel_status_t (*gather)(void *user, const void *mine, size_t bytes, int root,
                             void **all, size_t *sizes, accel_error_t *err);
    accel_status_t (*broadcast)(void *user, void *buf, size_t bytes, int root,
                                accel_error_t *err);
    /* the maximum over all ranks, in place */
    accel_status_t (*max_i64)(void *user, int64_t *value, accel_error_t *err);
} accel_ckpt_coll_t;

/* One piece of a tensor that this rank holds. The strings and arrays are the caller's
 * and are read only during the call. */
typedef struct accel_ckpt_box {
    /* path in the shard file, such as "model/h.0.attn.c_attn.weight" or
     * "optim/wte.weight/exp_avg" */
    const char *name;
    accel_dtype_t dtype; /* any */
    int ndim;
    /* the whole tensor, in elements; the same on every rank */
    int64_t global_shape[ACCEL_CKPT_MAX_DIMS];
    /* this piece of the tensor */
    int64_t offset[ACCEL_CKPT_MAX_DIMS];
    int64_t shape[ACCEL_CKPT_MAX_DIMS];
    /* product(shape) elements, row-major; a save reads them, a load writes them */
    void *data;
} accel_ckpt_box_t;

/* Named opaque bytes ("trainer", "rng", "data"). Only rank 0's are stored. */
typedef struct accel_ckpt_blob {
    const char *name;
    const void *data;
    size_t bytes;
} accel_ckpt_blob_t;

/* Splits elements [begin, end) of a row-major tensor into at most 2*ndim-1 boxes, in
 * memory order. boxes_out[2*ndim-1] gets offset and shape only. Returns the number of
 * boxes; 0 for an empty range. Not collective. */
int accel_ckpt_boxes_of_range(int ndim, const int64_t *shape, int64_t begin,
                              int64_t end, accel_ckpt_box_t *boxes_out);

/* What a run keeps besides its newest checkpoints. Recorded in the file ROOT/retention,
 * so that `accel ckpt` knows it. */
typedef struct accel_ckpt_rule {
    /* checkpoints of steps that are multiples of it are never deleted; 0: none */
    int64_t every;
    /* number of checkpoints to keep with the best values of a metric; 0: none */
    int best;
    /* the metric's name: letters, digits, '_', '.', '-' and '/' */
    char metric[64];
    /* 1: larger values are better; 0: smaller ones */
    int larger;
} accel_ckpt_rule_t;

typedef struct accel_ckpt_save {
    /* its size; see accel.h */
    size_t bytes;
    /* the directory of all checkpoints; created when missing */
    const char *root;
    int64_t step;
    /* "JOBID.RESTART": names the directory in progress; the same on all ranks */
    const char *owner;
    /* identity of the run: printable, at most 1024 bytes, the same on all ranks */
    const char *run_id;
    /* "FULL_SHARD" ...: a word for the header; not interpreted */
    const char *sharding;
    /* this rank's pieces; the boxes of all ranks must tile every tensor exactly */
    const accel_ckpt_box_t *boxes;
    size_t box_count;
    /* Not 0: rank 0 receives all tensors, some at a time, and writes them whole into
     * one file. The write is then collective. */
    int one_file;
    /* rank 0's */
    const accel_ckpt_blob_t *blobs;
    size_t blob_count;
    /* complete checkpoints to keep: the newest ones, including this one (at least 1) */
    int keep;
    /* which others to keep; copied. NULL: none, and nothing is recorded */
    const accel_ckpt_rule_t *rule;
    /* Asked on rank 0 after all ranks have written, right before the commit. An error
     * ends the save with nothing visible changed. NULL: always yes. */
    accel_status_t (*may_commit)(void *user, accel_error_t *err);
    void *may_commit_user;
    /* Whether there is time (not 0). Asked before each deletion of an older checkpoint,
     * in the thread that deletes; after 0 the next save deletes the rest. Also asked in
     * a write that is spread. NULL: always yes. */
    int (*may_delete)(void);
    /* NULL, on all ranks: a normal checkpoint. Otherwise an absolute path on a local
     * disk of the node: the checkpoint is staged. Each rank writes its file there, in a
     * directory for this root. The commit writes a record in the root instead of a step
     * directory. The checkpoint can be opened after accel_ckpt_drain_begin and the
     * calls that follow it have copied it. Not together with one_file. */
    const char *local;
    /* Seconds over which the write of this rank's file is spread, to leave disk and
     * memory bandwidth to others; until accel_ckpt_save_hurry, or until may_delete
     * returns 0. A slow disk takes longer. At most 30 days; 0: as fast as possible. */
    double spread_seconds;
    /* Not 0: replaces a checkpoint of this step and run that an earlier attempt wrote,
     * because this attempt resumed from it. 0: replaces only one that this attempt
     * wrote. Anything else of that name moves aside. */
    int replaces;
} accel_ckpt_save_t;

typedef struct accel_ckpt_stats {
    /* tensor data written by this rank */
    int64_t bytes;
    /* until the commit was durable, before older checkpoints are deleted */
    double seconds;
    /* of these, the time that this rank waited to spread its write */
    double spread_seconds;
    /* 1: O_DIRECT; 0: the file system refused it, so the page cache was used */
    int direct_io;
    /* Rank 0: the new name of a directory that had this step's name and that the save
     * must not replace; "": there was none. */
    char aside[192];
    /* the record of a staged checkpoint; "": not staged */
    char staged[192];
} accel_ckpt_stats_t;

/* Whether this build can write checkpoints. ACCEL_EUNAVAIL without
 * HDF5. Not collective. */
accel_status_t accel_ckpt_can_save(accel_error_t *err);

/* Saves a checkpoint of step s->step. Collective. Returns when the commit is durable,
 * or with an error on every rank and nothing visible changed. `stats_out` may be NULL.
 * Errors: ACCEL_EINVAL (arguments), ACCEL_EMISMATCH (the ranks disagree, or the boxes
 * do not tile the tensors), ACCEL_ECREATE, ACCEL_EPERM, ACCEL_EIO, ACCEL_ENOMEM,
 * ACCEL_EUNAVAIL (no HDF5), and whatever the callbacks return. */
accel_status_t accel_ckpt_save(const accel_ckpt_save_t *s,
                               const accel_ckpt_coll_t *coll,
                               accel_ckpt_stats_t *stats_out, accel_error_t *err);

/* The same in parts, so that training can go on while the data is written:
 *   begin    collective, short;
 *   write    not collective, in any thread; with one_file collective;
 *   publish  collective, after all ranks have written.
 * All ranks begin and publish saves in the same order, and a rank has one save in
 * progress at a time. */
typedef struct accel_ckpt_saving accel_ckpt_saving_t;

/* Begins a save. Collective. Names, shapes and pointers of `s` are copied; the memory
 * of boxes and blobs must stay valid and unchanged until the write has returned. The
 * caller frees *saving_out. Errors: those of accel_ckpt_save, the same on every rank;
 * nothing visible is changed then, and there is nothing to free. */
accel_status_t accel_ckpt_save_begin(accel_ckpt_saving_t **saving_out,
                                     const accel_ckpt_save_t *s,
                                     const accel_ckpt_coll_t *coll, accel_error_t *err);
/* Writes this rank's file, durably. Not collective; once per save, by one thread. A
 * failure is kept for the publish, which must follow in any case. With one_file it is
 * collective and uses the `coll` of the begin, whose callbacks must still be valid. */
accel_status_t accel_ckpt_save_write(accel_ckpt_saving_t *g, accel_error_t *err);
/* Makes the write end soon, with an error; a finished write is not affected. From any
 * thread. A cancelled save is freed, not published. */
void accel_ckpt_save_cancel(accel_ckpt_saving_t *g);
/* Stops spreading the write, because somebody waits for it. From any thread. */
void accel_ckpt_save_hurry(accel_ckpt_saving_t *g);
/* Makes the checkpoint visible, if all ranks have written. Collective; once per save,
 * after the write. On failure nothing visible has changed, and the error is the same on
 * every rank. `stats_out` may be NULL. */
accel_status_t accel_ckpt_save_publish(accel_ckpt_saving_t *g,
                                       const accel_ckpt_coll_t *coll,
                                       accel_ckpt_stats_t *stats_out,
                                       accel_error_t *err);
/* On rank 0, after the publish: deletes the checkpoint of this step that the save
 * replaced, and the older ones that neither `keep` nor the rule keeps. Not collective;
 * in any thread. */
void accel_ckpt_save_retain(accel_ckpt_saving_t *g);
/* Records the value of a metric for the checkpoint of `step` of run `run_id`, whether
 * it is saved already or not; a later value for that step replaces it. The rule of
 * later saves uses it. Rank 0 alone calls this. ACCEL_EINVAL (a metric name, step or
 * value out of range), ACCEL_ECREATE, ACCEL_EPERM, ACCEL_EIO. */
accel_status_t accel_ckpt_note_value(const char *root, const char *run_id,
                                     const char *metric, int64_t step, double value,
                                     accel_error_t *err);
/* Frees a save; no other thread may be in a call with it. For a save that was not
 * published, rank 0 removes the directory in progress. Not collective. NULL is fine. */
void accel_ckpt_save_free(accel_ckpt_saving_t *g);

/* A checkpoint that is staged on nodes. */
typedef struct accel_ckpt_staged {
    int64_t step;
    /* name of its record in the root */
    char name[192];
} accel_ckpt_staged_t;

/* The records of staged checkpoints below root, newest first. *list_out is one malloc,
 * freed by the caller. A missing root is an empty list. Not collective. ACCEL_EIO,
 * ACCEL_EPERM. */
accel_status_t accel_ckpt_list_staged(const char *root, accel_ckpt_staged_t **list_out,
                                      size_t *count_out, accel_error_t *err);
/* Begins to copy the staged checkpoint `name` from the nodes into the root. It
 * continues like a save that accel_ckpt_save_begin began: the write copies the files
 * assigned to this rank, each only if all its hashes are right, and the publish makes a
 * checkpoint of them, byte for byte the one that was saved. Any number of ranks, on any
 * nodes that together have all files. Of `s`, only root, owner, keep, rule, the
 * callbacks and local are used. Collective: all ranks give the same name. The caller
 * frees *saving_out; the record stays. Errors, also of the write: ACCEL_ECORRUPT: the
 * record or a file is damaged or missing. ACCEL_EIO, ACCEL_EPERM: one cannot be read
 * now, belongs to another user, or is not where it was saved. ACCEL_ENOENT: all missing
 * files are on nodes that these ranks do not have (A0861). */
accel_status_t accel_ckpt_drain_begin(accel_ckpt_saving_t **saving_out,
                                      const char *name, const accel_ckpt_save_t *s,
                                      const accel_ckpt_coll_t *coll,
                                      accel_error_t *err);
/* Removes the record of a staged checkpoint; a missing record is fine. Rank 0 calls
 * this; then each rank calls accel_ckpt_local_remove. Not collective. A0846. */
accel_status_t accel_ckpt_unstage(const char *root, const char *name,
                                  accel_error_t *err);
/* Renames the record to .away-..., durably, so that no later attempt finds it; the
 * files on the nodes stay. buf[len] gets the new name. Not collective. ACCEL_EIO,
 * ACCEL_ECREATE. */
accel_status_t accel_ckpt_staged_away(const char *root, const char *name, char *buf,
                                      size_t len, accel_error_t *err);
/* Puts the identity of the run that saved staged checkpoint `name` into buf[len]. Not
 * collective. ACCEL_ECORRUPT: its record is damaged. ACCEL_EIO, ACCEL_EPERM,
 * ACCEL_ENOMEM. */
accel_status_t accel_ckpt_staged_run(const char *root, const char *name, char *buf,
                                     size_t len, accel_error_t *err);
/* Removes this node's files of staged checkpoint `name` of root; NULL: of all that have
 * no record there. Skips files that cannot be removed or belong to another user.
 * Returns 0, or -1 if nothing was done because the record exists or the root cannot be
 * opened. Not collective. */
int accel_ckpt_local_remove(const char *root, const char *local, const char *name);

/* The line in ROOT/.lock begins with this while a tool such as `accel ckpt repair`
 * changes the root; a run that starts then waits for it. */
#define ACCEL_CKPT_TOOL "accel ckpt"

/* Makes every save in progress below `root` fail at its commit, on whatever node its
 * ranks run. A process that has just become the only writer of `root` calls this first.
 * A missing root is fine. Not collective. ACCEL_EIO: a save cannot be stopped. */
accel_status_t accel_ckpt_fence(const char *root, accel_error_t *err);

/* Moves step directory `name` of `root` aside, durably. The new name is
 * step_N.damaged-TIME if damage is proven, by a check here or by the caller (`damaged`
 * not 0), else step_N.aside-TIME. Lists and saves ignore it from then on. buf[len], len
 * >= 192, gets the new name. Not collective. ACCEL_ECREATE, ACCEL_EIO: it still has its
 * old name. */
accel_status_t accel_ckpt_set_aside(const char *root, const char *name, int damaged,
                                    char *buf, size_t len, accel_error_t *err);

/* An open checkpoint: its manifest, parsed and checked against its own hash. */
typedef struct accel_ckpt accel_ckpt_t;

typedef enum accel_ckpt_state {
    /* the manifest parses, its hash matches, and the files have the right sizes */
    ACCEL_CKPT_COMPLETE = 0,
    /* proven: something is missing, truncated, or differs from the manifest */
    ACCEL_CKPT_DAMAGED = 1,
    /* cannot be read now: no permission, an I/O error */
    ACCEL_CKPT_UNREADABLE = 2,
    /* written by another version, which can perhaps read it */
    ACCEL_CKPT_OTHER_FORMAT = 3,
} accel_ckpt_state_t;

typedef struct accel_ckpt_info {
    /* "step_00001200" */
    char name[64];
    int64_t step;
    /* of the run that wrote it; 0: unknown */
    int world_size;
    /* 1: state is ACCEL_CKPT_COMPLETE */
    int complete;
    accel_ckpt_state_t state;
    /* of all shard files together */
    int64_t bytes;
    /* why it is not complete */
    char problem[256];
} accel_ckpt_info_t;

/* Lists all step directories below root, newest first. *list_out is one malloc, freed
 * by the caller. A missing root is an empty list. Failed reads are retried for up to
 * two seconds. Not collective. ACCEL_EIO, ACCEL_EPERM: the root itself cannot be
 * read. */
accel_status_t accel_ckpt_list(const char *root, accel_ckpt_info_t **list_out,
                               size_t *count_out, accel_error_t *err);
/* Puts the path of the best checkpoint below root into dir_out (len bytes). It is
 * chosen among the complete checkpoints of the run that saved the newest one: the best
 * value of the run's metric (accel_ckpt_note_value, accel.checkpoint.metric and
 * metric_mode), and of equal ones the newest. *value_out (may be NULL) is its value.
 * Checkpoints that the run has deleted are not considered; with keep_best 1 or more the
 * best one is kept. Not collective. ACCEL_ENOENT: no root, or no checkpoint with a
 * value. ACCEL_EINVAL: the path does not fit. ACCEL_EIO, ACCEL_EPERM: the root cannot
 * be read. */
accel_status_t accel_ckpt_best(const char *root, char *dir_out, size_t len,
                               double *value_out, accel_error_t *err);
/* Opens one checkpoint directory; accel_ckpt_close frees it. The handle uses one file
 * descriptor, however many shard files there are. Not collective: each rank opens for
 * itself. ACCEL_ENOENT: no such directory. ACCEL_ECORRUPT: proven damage.
 * ACCEL_EUNSUPPORTED: another format. ACCEL_EPERM, ACCEL_EIO, ACCEL_ENOMEM: it cannot
 * be read now, even after several tries. */
accel_status_t accel_ckpt_open(accel_ckpt_t **ckpt_out, const char *dir,
                               accel_error_t *err);
/* The same on all ranks of `coll`, which pass one path. Collective. Blobs are read as
 * by accel_ckpt_read_together. An error is about what this rank sees: other ranks may
 * get ACCEL_OK. Errors: those of accel_ckpt_open and of the callbacks. */
accel_status_t accel_ckpt_open_together(accel_ckpt_t **ckpt_out, const char *dir,
                                        const accel_ckpt_coll_t *coll,
                                        accel_error_t *err);
/* NULL is fine. */
void accel_ckpt_close(accel_ckpt_t *c);
int64_t accel_ckpt_step(const accel_ckpt_t *c);
/* The number of ranks that wrote it, which is the number of shard files; 1 for
 * one_file. */
int accel_ckpt_world_size(const accel_ckpt_t *c);
/* Owned by c. */
const char *accel_ckpt_run_id(const accel_ckpt_t *c);
/* The stored bytes of a blob, or NULL if there is none of that name. Owned by c;
 * accel_ckpt_open has checked the hash. */
const void *accel_ckpt_blob(const accel_ckpt_t *c, const char *name, size_t *bytes_out);
/* Tensors are numbered in the order of their names. */
size_t accel_ckpt_tensor_count(const accel_ckpt_t *c);
/* Tensor i; *name_out and (*shape_out)[*ndim_out] are owned by c. ACCEL_EINVAL: i is
 * beyond the count. */
accel_status_t accel_ckpt_tensor(const accel_ckpt_t *c, size_t i, const char **name_out,
                                 accel_dtype_t *dtype_out, int *ndim_out,
                                 const int64_t **shape_out);
/* Fills boxes[n].data from the stored boxes, whatever the world size of the writer was.
 * Not collective. Every chunk touched is hashed; a mismatch is ACCEL_ECORRUPT and names
 * file and tensor. ACCEL_EIO, ACCEL_EPERM: a read failed repeatedly. ACCEL_EMISMATCH:
 * the checkpoint does not have the tensor, or has it with another shape or dtype. */
accel_status_t accel_ckpt_read(accel_ckpt_t *c, const accel_ckpt_box_t *boxes, size_t n,
                               accel_error_t *err);
/* The same on all ranks of `coll` together, each with its own boxes. Collective: all
 * pass a checkpoint that they opened at one path. Data that more than half of the ranks
 * want is read from storage by one of them, in shares of about equal bytes, checked,
 * and sent to the others in blocks of up to 4 MiB; each rank reads the rest itself. If
 * the reader of a block fails, every rank reads that block itself, so that an error is
 * about what this rank sees: other ranks may get ACCEL_OK. Errors: those of
 * accel_ckpt_read, and whatever the callbacks return; a request that is wrong on one
 * rank fails on all. */
accel_status_t accel_ckpt_read_together(accel_ckpt_t *c, const accel_ckpt_box_t *boxes,
                                        size_t n, const accel_ckpt_coll_t *coll,
                                        accel_error_t *err);
/* Reads everything and checks every hash. report(user, what, line) is called once per
 * finding; NULL is fine. `what` is ACCEL_ECORRUPT for damage, otherwise the reason why
 * something cannot be read now. Not collective. Returns:
 *   ACCEL_OK        no findings;
 *   ACCEL_ECORRUPT  something is damaged, and `err` has the first damage;
 *   ACCEL_EIO, ACCEL_EPERM and the like
 *                   what was read is right, but not everything could be read;
 *   ACCEL_ENOENT    there is no such directory, or it was removed or replaced
 *                   meanwhile, which is not a finding. */
accel_status_t accel_ckpt_verify(const char *dir,
                                 void (*report)(void *user, accel_status_t what,
                                                const char *line),
                                 void *user, accel_error_t *err);
/* Compares the HDF5 structures of shard file `file` (0 ... world size - 1) with the
 * manifest: the same datasets, types, shapes and file offsets and nothing else, so that
 * HDF5 tools read what accel reads. report(user, what, line) is called once per
 * finding, as by accel_ckpt_verify; NULL is fine. `err` gets the first damage, else the
 * first finding. Not collective. The HDF5 library reads the file, and may crash or hang
 * on a forged one, so call this in a process of its own with limits, as `accel ckpt
 * verify` does; this library never forks. No other thread may call libhdf5 meanwhile.
 * ACCEL_OK, ACCEL_ECORRUPT, ACCEL_EIO, ACCEL_EPERM, ACCEL_ENOMEM; ACCEL_EINVAL: no such
 * file; ACCEL_EUNAVAIL: no HDF5. */
accel_status_t accel_ckpt_verify_hdf5(const accel_ckpt_t *c, int file,
                                      void (*report)(void *user, accel_status_t what,
                                                     const char *line),
                                      void *user, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif

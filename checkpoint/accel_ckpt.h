/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ckpt.h: the public header of libaccelckpt. Sharded checkpoints on disk: write,
 * commit, find, verify, and read at any world size. Format: doc/checkpoint-format.md.
 *
 * The library knows nothing of the runtime: collectives come in as callbacks, tensors
 * as (name, box, pointer). The load path never calls libhdf5. Nothing is printed. A box
 * is an n-dimensional sub-array of a tensor: offset[ndim] and shape[ndim] in elements
 * of the global tensor; in memory it is row-major and contiguous.
 *
 * Every function takes `err` last. It may be NULL, belongs to the caller, and is
 * written only on failure. Outputs (`_out`) are written only on success unless it says
 * otherwise.
 */
#ifndef ACCEL_CKPT_H
#define ACCEL_CKPT_H

#include "accel.h"

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
    accel_status_t (*barrier)(void *user, accel_error_t *err);
    /* Blocks of any size to `root`. There *all is one malloc with the blocks in rank
     * order, which the library frees, and sizes[size] gets their bytes; elsewhere *all
     * is NULL and sizes may be NULL. */
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
    /* path inside the shard file, such as "model/h.0.attn.c_attn.weight" or
     * "optim/wte.weight/exp_avg" */
    const char *name;
    accel_dtype_t dtype;
    int ndim;
    /* the whole tensor, in elements; the same on every rank */
    int64_t global_shape[ACCEL_CKPT_MAX_DIMS];
    /* this piece of it */
    int64_t offset[ACCEL_CKPT_MAX_DIMS];
    int64_t shape[ACCEL_CKPT_MAX_DIMS];
    /* product(shape) elements, row-major; a save reads them, a load writes them */
    void *data;
} accel_ckpt_box_t;

/* Opaque bytes with a name ("trainer", "rng", "data"). Only rank 0's are stored. */
typedef struct accel_ckpt_blob {
    const char *name;
    const void *data;
    size_t bytes;
} accel_ckpt_blob_t;

/* Cuts elements [begin, end) of a row-major tensor into at most 2*ndim-1 boxes, in
 * memory order. boxes_out[2*ndim-1] gets offset and shape only. Returns the number of
 * boxes; 0 for an empty range. Not collective. */
int accel_ckpt_boxes_of_range(int ndim, const int64_t *shape, int64_t begin,
                              int64_t end, accel_ckpt_box_t *boxes_out);

typedef struct accel_ckpt_save {
    /* the directory of all checkpoints; created when missing */
    const char *root;
    int64_t step;
    /* "JOBID.RESTART": names the directory in progress; the same on all ranks */
    const char *owner;
    /* identity of the run: printable, at most 1024 bytes, the same on all ranks */
    const char *run_id;
    /* "FULL_SHARD" ...: a word for the header, not interpreted */
    const char *sharding;
    /* this rank's pieces; the boxes of all ranks must tile every tensor exactly */
    const accel_ckpt_box_t *boxes;
    size_t box_count;
    /* rank 0's */
    const accel_ckpt_blob_t *blobs;
    size_t blob_count;
    /* complete checkpoints to keep, this one included (>= 1) */
    int keep;
    /* Asked on rank 0 when all is written, right before the commit. An error ends the
     * save with nothing visible changed. NULL: always yes. */
    accel_status_t (*may_commit)(void *user, accel_error_t *err);
    void *may_commit_user;
} accel_ckpt_save_t;

typedef struct accel_ckpt_stats {
    /* tensor data written by this rank */
    int64_t bytes;
    /* until the commit was durable; older checkpoints are deleted after that */
    double seconds;
    /* 1: O_DIRECT; 0: the file system refused it, the page cache was used */
    int direct_io;
    /* Rank 0: the new name of a directory that had this step's name and was not written
     * by this run in this life; "" when there was none. */
    char aside[192];
} accel_ckpt_stats_t;

/* Whether this build can write checkpoints. ACCEL_EUNAVAIL without
 * HDF5. Not collective. */
accel_status_t accel_ckpt_can_save(accel_error_t *err);

/* Saves a checkpoint of step s->step. Collective. Returns when the commit is durable,
 * or an error on every rank with nothing visible changed. `stats_out` may be NULL.
 * Errors: ACCEL_EINVAL (arguments), ACCEL_EMISMATCH (the ranks disagree, or the boxes
 * do not tile), ACCEL_ECREATE, ACCEL_EPERM, ACCEL_EIO, ACCEL_ENOMEM, ACCEL_EUNAVAIL (no
 * HDF5), and whatever the callbacks return. */
accel_status_t accel_ckpt_save(const accel_ckpt_save_t *s,
                               const accel_ckpt_coll_t *coll,
                               accel_ckpt_stats_t *stats_out, accel_error_t *err);

/* Makes every save in progress below `root` fail at its commit, on whatever node its
 * ranks run. A process that has just become the only writer there calls this first. A
 * missing root is fine. Not collective. ACCEL_EIO when a save cannot be stopped. */
accel_status_t accel_ckpt_fence(const char *root, accel_error_t *err);

/* Moves step directory `name` of `root` out of the way, durably. The new name is
 * step_N.damaged-TIME where damage is proven, by a look at it or by the caller
 * (`damaged` not 0), else step_N.aside-TIME. Lists and saves ignore it from then on.
 * buf[len], len >= 192, gets the new name. Not collective. ACCEL_ECREATE, ACCEL_EIO: it
 * still has its old name. */
accel_status_t accel_ckpt_set_aside(const char *root, const char *name, int damaged,
                                    char *buf, size_t len, accel_error_t *err);

/* An open checkpoint: its manifest, parsed and checked against its own hash. */
typedef struct accel_ckpt accel_ckpt_t;

typedef enum accel_ckpt_state {
    /* the manifest parses, its hash holds, and the files have their sizes */
    ACCEL_CKPT_COMPLETE = 0,
    /* proven: something is missing, cut, or not what the manifest says */
    ACCEL_CKPT_DAMAGED = 1,
    /* cannot be read now: no permission, an I/O error */
    ACCEL_CKPT_UNREADABLE = 2,
    /* written by another version, which may be able to read it */
    ACCEL_CKPT_OTHER_FORMAT = 3,
} accel_ckpt_state_t;

typedef struct accel_ckpt_info {
    /* "step_00001200" */
    char name[64];
    int64_t step;
    /* of the run that wrote it; 0: not known */
    int world_size;
    /* 1: state is ACCEL_CKPT_COMPLETE */
    int complete;
    accel_ckpt_state_t state;
    /* of all shard files together */
    int64_t bytes;
    /* why it is not complete */
    char problem[256];
} accel_ckpt_info_t;

/* All step directories below root, newest first. *list_out is one malloc, freed by
 * the caller. A missing root is an empty list. What cannot be read is tried again
 * for up to two seconds. Not collective. ACCEL_EIO, ACCEL_EPERM: the root itself
 * cannot be read. */
accel_status_t accel_ckpt_list(const char *root, accel_ckpt_info_t **list_out,
                               size_t *count_out, accel_error_t *err);
/* Opens one checkpoint directory; accel_ckpt_close frees it. It holds one file
 * descriptor however many shard files there are. Not collective: each rank opens for
 * itself. ACCEL_ENOENT: no such directory. ACCEL_ECORRUPT: proven damage.
 * ACCEL_EUNSUPPORTED: another format. ACCEL_EPERM, ACCEL_EIO, ACCEL_ENOMEM: it cannot
 * be read now, although it was tried several times. */
accel_status_t accel_ckpt_open(accel_ckpt_t **ckpt_out, const char *dir,
                               accel_error_t *err);
/* NULL is fine. */
void accel_ckpt_close(accel_ckpt_t *c);
int64_t accel_ckpt_step(const accel_ckpt_t *c);
/* Ranks that wrote it, which is the number of shard files. */
int accel_ckpt_world_size(const accel_ckpt_t *c);
/* Owned by c. */
const char *accel_ckpt_run_id(const accel_ckpt_t *c);
/* The stored bytes of a blob, or NULL when there is none of that name. Owned by c; the
 * hash was checked when it was opened. */
const void *accel_ckpt_blob(const accel_ckpt_t *c, const char *name, size_t *bytes_out);
/* Tensors are numbered in the order of their names. */
size_t accel_ckpt_tensor_count(const accel_ckpt_t *c);
/* Tensor i; *name_out and (*shape_out)[*ndim_out] are owned by c. ACCEL_EINVAL for an i
 * beyond the count. */
accel_status_t accel_ckpt_tensor(const accel_ckpt_t *c, size_t i, const char **name_out,
                                 accel_dtype_t *dtype_out, int *ndim_out,
                                 const int64_t **shape_out);
/* Fills boxes[n].data from the stored boxes, whatever the world size of the
 * writer was. Not collective. Every chunk touched is hashed; a mismatch is
 * ACCEL_ECORRUPT and names file and tensor. ACCEL_EIO, ACCEL_EPERM: a read
 * failed again and again. ACCEL_EMISMATCH: the checkpoint has no such tensor, or
 * with another shape or dtype. */
accel_status_t accel_ckpt_read(accel_ckpt_t *c, const accel_ckpt_box_t *boxes, size_t n,
                               accel_error_t *err);
/* Reads everything and checks every hash. report(user, what, line) is called once per
 * finding; NULL is fine. `what` is ACCEL_ECORRUPT for damage, else the reason why
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
 * manifest: the same datasets, types, shapes and places and nothing else, so that HDF5
 * tools read what accel reads. report(user, line) is called once per finding; NULL is
 * fine, and `err` gets the first. Not collective. The HDF5 library reads the file, and
 * may crash or hang on a forged one. Call this in a process of its own with limits, as
 * `accel ckpt verify` does; this library never forks. No other thread may call libhdf5
 * meanwhile. ACCEL_OK, ACCEL_ECORRUPT, ACCEL_EIO, ACCEL_ENOMEM; ACCEL_EINVAL when there
 * is no such file; ACCEL_EUNAVAIL without HDF5. */
accel_status_t accel_ckpt_verify_hdf5(const accel_ckpt_t *c, int file,
                                      void (*report)(void *user, const char *line),
                                      void *user, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif

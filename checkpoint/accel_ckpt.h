/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ckpt.h: the public header of libaccelckpt. Sharded checkpoints on disk: write,
 * commit, find, verify, read at any world size. Format: doc/checkpoint-format.md.
 *
 * The library knows nothing of the runtime: collectives come in as callbacks, tensors as
 * (name, box, pointer). The load path never calls libhdf5. Nothing is printed.
 * A box is an n-dimensional sub-array: offset[n], shape[n] of the global tensor, row-major
 * and contiguous in memory.
 */
#ifndef ACCEL_CKPT_H
#define ACCEL_CKPT_H

#include "accel.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

#define ACCEL_CKPT_MAX_DIMS 8

/* Collectives of the caller; all ranks call the library's collective functions in the same
 * order. NULL pointer: one process. Same contracts as comm.h. */
typedef struct accel_ckpt_coll {
    void *user;
    int rank, size;
    accel_status_t (*barrier)(void *user, accel_error_t *err);
    accel_status_t (*gather)(void *user, const void *mine, size_t bytes, int root,
                             void **all, size_t *sizes, accel_error_t *err);
    accel_status_t (*broadcast)(void *user, void *buf, size_t bytes, int root,
                                accel_error_t *err);
    accel_status_t (*max_i64)(void *user, int64_t *value, accel_error_t *err);
} accel_ckpt_coll_t;

/* One piece of a tensor that this rank holds. name: path inside the shard file, such as
 * "model/h.0.attn.c_attn.weight" or "optim/wte.weight/exp_avg". */
typedef struct accel_ckpt_box {
    const char *name;
    accel_dtype_t dtype;
    int ndim;
    int64_t global_shape[ACCEL_CKPT_MAX_DIMS];
    int64_t offset[ACCEL_CKPT_MAX_DIMS];
    int64_t shape[ACCEL_CKPT_MAX_DIMS];
    void *data; /* save: read from; load: written to */
} accel_ckpt_box_t;

/* Opaque bytes with a name, rank 0's are stored ("trainer", "rng", "data"). */
typedef struct accel_ckpt_blob {
    const char *name;
    const void *data;
    size_t bytes;
} accel_ckpt_blob_t;

/* Cuts elements [begin, end) of a row-major tensor into at most 2*ndim-1 boxes, in
 * memory order; out[2*ndim-1] gets offset and shape only. Returns the number of boxes. */
int accel_ckpt_boxes_of_range(int ndim, const int64_t *shape, int64_t begin,
                              int64_t end, accel_ckpt_box_t *out);

typedef struct accel_ckpt_save {
    const char *root; /* created when missing */
    int64_t step;
    const char *owner;    /* "JOBID.RESTART": names the directory in progress */
    const char *run_id;   /* identity of the run, printable, <= 1024 bytes */
    const char *sharding; /* "FULL_SHARD" ... for the header */
    const accel_ckpt_box_t *boxes; /* this rank's pieces; boxes of all ranks must tile
                                      every tensor exactly */
    size_t box_count;
    const accel_ckpt_blob_t *blobs; /* rank 0's */
    size_t blob_count;
    int keep; /* complete checkpoints kept (>= 1) */
    /* Asked on rank 0 when all is written, right before the commit; an error ends the save
     * with nothing visible changed. NULL: yes. */
    accel_status_t (*may_commit)(void *user, accel_error_t *err);
    void *may_commit_user;
} accel_ckpt_save_t;

typedef struct accel_ckpt_stats {
    int64_t bytes;   /* written by this rank */
    double seconds;  /* until the commit was durable; deleting older
                                checkpoints comes after it */
    int direct_io;   /* 1: O_DIRECT, 0: buffered fallback */
    char aside[192]; /* rank 0: the name given to what had this step's name and was not
                        this save's own; "": there was nothing */
} accel_ckpt_stats_t;

/* Whether this build writes checkpoints: ACCEL_EUNAVAIL without HDF5. Not collective. */
accel_status_t accel_ckpt_can_save(accel_error_t *err);

/* Collective. Returns after the commit is durable, or an error on every rank with nothing
 * visible changed. `stats` may be NULL. */
accel_status_t accel_ckpt_save(const accel_ckpt_save_t *s,
                               const accel_ckpt_coll_t *coll, accel_ckpt_stats_t *stats,
                               accel_error_t *err);

/* Every save in progress below `root` fails at its commit, wherever its ranks run: for
 * whoever has just become the only writer there. A missing root is fine. Not collective.
 * ACCEL_EIO when one cannot be stopped. */
accel_status_t accel_ckpt_fence(const char *root, accel_error_t *err);

/* Moves step directory `name` of `root` out of the way, durably: step_N.damaged-TIME where
 * damage is proven, by a look at it or by whoever read it (`damaged` not 0), else
 * step_N.aside-TIME. No list or save looks at it any more. out[len], len >= 192: its new name.
 * Not collective. ACCEL_ECREATE, ACCEL_EIO: it is where it was. */
accel_status_t accel_ckpt_set_aside(const char *root, const char *name, int damaged,
                                    char *out, size_t len, accel_error_t *err);

/* A complete checkpoint: its manifest, parsed and self-checked. */
typedef struct accel_ckpt accel_ckpt_t;

typedef enum accel_ckpt_state {
    ACCEL_CKPT_COMPLETE =
        0,                  /* manifest parses, its hash holds, files have their size */
    ACCEL_CKPT_DAMAGED = 1, /* proven: something is missing, cut, or not what it says */
    ACCEL_CKPT_UNREADABLE = 2,   /* cannot be read now: no permission, an I/O error */
    ACCEL_CKPT_OTHER_FORMAT = 3, /* written by another version, which may read it */
} accel_ckpt_state_t;

typedef struct accel_ckpt_info {
    char name[64]; /* "step_00001200" */
    int64_t step;
    int world_size; /* 0: not known */
    int complete;   /* 1: state is ACCEL_CKPT_COMPLETE */
    accel_ckpt_state_t state;
    int64_t bytes;
    char problem[256]; /* why not complete */
} accel_ckpt_info_t;

/* All step directories below root, newest first; *out is one malloc. A missing root is an
 * empty list. What cannot be read is tried again for up to two seconds. ACCEL_EIO,
 * ACCEL_EPERM: the list itself cannot be read. */
accel_status_t accel_ckpt_list(const char *root, accel_ckpt_info_t **out, size_t *count,
                               accel_error_t *err);
/* Opens one checkpoint directory. It holds one descriptor, whatever the number of files.
 * ACCEL_ENOENT: it is not there. ACCEL_ECORRUPT: proven damage. ACCEL_EUNSUPPORTED: another
 * format. ACCEL_EPERM, ACCEL_EIO, ACCEL_ENOMEM: it cannot be read now, and was tried again. */
accel_status_t accel_ckpt_open(accel_ckpt_t **out, const char *dir, accel_error_t *err);
void accel_ckpt_close(accel_ckpt_t *c);
int64_t accel_ckpt_step(const accel_ckpt_t *c);
int accel_ckpt_world_size(const accel_ckpt_t *c);
const char *accel_ckpt_run_id(const accel_ckpt_t *c);
/* The stored bytes of a blob (owned by c, hash already checked), or NULL. */
const void *accel_ckpt_blob(const accel_ckpt_t *c, const char *name, size_t *bytes_out);
/* Names and shapes of all tensors, sorted by name. */
size_t accel_ckpt_tensor_count(const accel_ckpt_t *c);
accel_status_t accel_ckpt_tensor(const accel_ckpt_t *c, size_t i, const char **name,
                                 accel_dtype_t *dtype, int *ndim,
                                 const int64_t **shape);
/* Fills boxes[n].data from the stored boxes, whatever the world size was. Hashes of every
 * chunk touched are checked; a mismatch is ACCEL_ECORRUPT naming file and tensor, a read
 * that fails again and again ACCEL_EIO or ACCEL_EPERM. */
accel_status_t accel_ckpt_read(accel_ckpt_t *c, const accel_ckpt_box_t *boxes, size_t n,
                               accel_error_t *err);
/* Reads everything and checks every hash. report(user, what, line) is called per finding;
 * NULL is fine. what: ACCEL_ECORRUPT for damage, else why something cannot be read now.
 * ACCEL_OK; ACCEL_ECORRUPT when anything is damaged, and `err` names the first of it;
 * ACCEL_EIO, ACCEL_EPERM and the like when what was read is right, but not all could be;
 * ACCEL_ENOENT when there is no such directory, or it was removed or replaced meanwhile (not
 * a finding). */
accel_status_t accel_ckpt_verify(const char *dir,
                                 void (*report)(void *user, accel_status_t what,
                                                const char *line),
                                 void *user, accel_error_t *err);
/* Compares the HDF5 structures of shard file `file` (0 ... world size - 1) with the
 * manifest: the same datasets, types, shapes and places and nothing else, so that HDF5
 * tools read what accel reads. report(user, line) is called per finding; NULL is fine, and
 * `err` gets the first. The HDF5 library reads the file, and may
 * crash or hang on one made for that: call it in a process of its own with limits, as
 * `accel ckpt verify` does; this library never forks. Other calls of libhdf5 by other
 * threads must wait. ACCEL_OK, ACCEL_ECORRUPT, ACCEL_EIO, ACCEL_ENOMEM; ACCEL_EINVAL for a
 * file that there is not; ACCEL_EUNAVAIL in a build without HDF5. */
accel_status_t accel_ckpt_verify_hdf5(const accel_ckpt_t *c, int file,
                                      void (*report)(void *user, const char *line),
                                      void *user, accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to checkpoint/: the manifest in memory and the steps of save and load.
 * Everything here has the prefix ckpt_ and hidden visibility.
 */
#ifndef ACCEL_CKPT_INTERNAL_H
#define ACCEL_CKPT_INTERNAL_H

#include <stdbool.h>
#include <sys/types.h>

#include "accel_ckpt.h"
#include "ckpt_io.h"
#include "common/common.h"

#define CKPT_FORMAT       1
#define CKPT_PIECE_BYTES  (1 << 20)  /* unit of hashing */
#define CKPT_IO_BYTES     (4 << 20)  /* unit of reading and writing */
#define CKPT_PAGE         4096       /* O_DIRECT: memory, offset and length */
#define CKPT_ALIGN_FROM   (64 << 10) /* datasets this large start on a page */
#define CKPT_MANIFEST_MAX (256 << 20)
#define CKPT_BLOBS_MAX    (1 << 30) /* all blobs together: open reads them */
#define CKPT_NAME_MAX     511
#define CKPT_RUN_ID_MAX   1024
#define CKPT_WORLD_MAX    99999
#define CKPT_STEP_MAX     INT64_C(999999999999)
#define CKPT_DIR_MAX      192 /* "step_...", ".tmp-step_....OWNER" */

/* ---- boxes.c ------------------------------------------------------------------------ */

/* Product of shape[ndim]; -1 for a negative extent or beyond INT64_MAX. */
int64_t ckpt_volume(int ndim, const int64_t *shape);
bool ckpt_box_inside(int ndim, const int64_t *offset, const int64_t *shape,
                     const int64_t *global);
/* Common part of boxes a and b in global coordinates; false: they do not meet. */
bool ckpt_box_intersect(int ndim, const int64_t *a_off, const int64_t *a_shape,
                        const int64_t *b_off, const int64_t *b_shape, int64_t *off_out,
                        int64_t *shape_out);

/* Walks the runs of a sub-box that are contiguous in both a source and a destination box,
 * in source memory order. All offsets in bytes from the start of either box's memory. */
struct ckpt_runs {
    int outer; /* dimensions that are looped over */
    int64_t count[ACCEL_CKPT_MAX_DIMS], index[ACCEL_CKPT_MAX_DIMS];
    int64_t src_stride[ACCEL_CKPT_MAX_DIMS], dst_stride[ACCEL_CKPT_MAX_DIMS];
    int64_t src, dst;  /* of the current run */
    int64_t run_bytes; /* length of every run */
    bool done;
};
void ckpt_runs_start(struct ckpt_runs *r, int ndim, size_t elem_bytes,
                     const int64_t *src_off, const int64_t *src_shape,
                     const int64_t *dst_off, const int64_t *dst_shape,
                     const int64_t *part_off, const int64_t *part_shape);
void ckpt_runs_next(struct ckpt_runs *r);

/* ---- manifest.c: the manifest in memory ---------------------------------------------- */

struct ckpt_hash {
    uint64_t hi, lo;
};

struct ckpt_file {
    char name[40]; /* ckpt_shard_name(); empty: not yet known */
    int64_t bytes;
    struct ckpt_hash meta; /* of all bytes outside boxes, in file order */
};

struct ckpt_tensor {
    char *name;
    accel_dtype_t dtype;
    bool blob; /* u8[bytes], kept apart from tensors */
    int ndim;
    int64_t shape[ACCEL_CKPT_MAX_DIMS];
    size_t box, boxes; /* its range of manifest.box, sorted by offset */
};

struct ckpt_mbox {
    size_t tensor;
    int file;
    int64_t offset[ACCEL_CKPT_MAX_DIMS], shape[ACCEL_CKPT_MAX_DIMS];
    int64_t at, bytes;    /* where in the file */
    size_t piece, pieces; /* its range of manifest.piece */
    const void *data;     /* save only */
};

struct ckpt_manifest {
    int64_t step;
    int world;
    char version[32], owner[64], sharding[64], run_id[CKPT_RUN_ID_MAX + 1];
    struct ckpt_file *file; /* [world] */
    struct ckpt_tensor *tensor;
    struct ckpt_mbox *box;
    struct ckpt_hash *piece;
    size_t tensors, boxes, pieces;
    size_t tensor_cap, box_cap, piece_cap;
};

void ckpt_manifest_free(struct ckpt_manifest *m);
/* "rank_00001-of-00004.h5" */
void ckpt_shard_name(char name_out[40], int rank, int world);
/* NULL, or why `name` may not name a tensor. */
const char *ckpt_name_problem(const char *name);
/* Header word: printable, no blanks, shorter than `cap`. */
bool ckpt_word_ok(const char *s, size_t cap);
accel_status_t ckpt_manifest_add_tensor(struct ckpt_manifest *m,
                                        const struct ckpt_tensor *t,
                                        accel_error_t *err);
/* Adds a box with its (still empty) pieces to tensor b->tensor. b->bytes must be set. */
accel_status_t ckpt_manifest_add_box(struct ckpt_manifest *m, const struct ckpt_mbox *b,
                                     accel_error_t *err);
/* Sorts tensors and boxes, joins tensors of one name. ACCEL_EMISMATCH when two boxes
 * disagree about dtype or shape of their tensor. */
accel_status_t ckpt_manifest_sort(struct ckpt_manifest *m, accel_error_t *err);
/* Moves the boxes of rank's fragment into m; the caller sorts when all are in. */
accel_status_t ckpt_manifest_merge(struct ckpt_manifest *m,
                                   const struct ckpt_manifest *part, int rank,
                                   accel_error_t *err);
/* Canonical text with self hash. only_file >= 0: a fragment with that file alone. */
accel_status_t ckpt_manifest_format(const struct ckpt_manifest *m, int only_file,
                                    struct strbuf *text_out, accel_error_t *err);
const struct ckpt_tensor *ckpt_manifest_find(const struct ckpt_manifest *m, bool blob,
                                             const char *name);

/* ---- manifest_check.c ---------------------------------------------------------------- */

/* Boxes inside their tensor, tiling it exactly; bytes = volume * element; ranges inside
 * their file and disjoint there. `code`: what a violation is called. */
accel_status_t ckpt_manifest_check(const struct ckpt_manifest *m, enum message code,
                                   accel_error_t *err);
/* Indices of all boxes ordered by (file, at); *out is one malloc. */
accel_status_t ckpt_boxes_by_place(const struct ckpt_manifest *m, size_t **order_out,
                                   accel_error_t *err);

/* ---- manifest_parse.c ------------------------------------------------------------------ */

/* fragment: one file, no tiling. `where` names the text in errors. ACCEL_ECORRUPT. */
accel_status_t ckpt_manifest_parse(struct ckpt_manifest *m, const char *text,
                                   size_t len, bool fragment, const char *where,
                                   accel_error_t *err);

/* ---- hash.c ------------------------------------------------------------------------------ */

uint64_t ckpt_box_seed(const struct ckpt_manifest *m, const struct ckpt_mbox *b);
struct ckpt_hash ckpt_piece_hash(uint64_t seed, size_t index, const void *data,
                                 size_t bytes);
int64_t ckpt_piece_bytes(const struct ckpt_mbox *b, size_t index);
bool ckpt_hash_equal(struct ckpt_hash a, struct ckpt_hash b);
/* Hash of the bytes of file f outside boxes. order[count]: its boxes by place. */
accel_status_t ckpt_meta_hash(const struct ckpt_manifest *m, int f, int fd,
                              const size_t *order, size_t count,
                              struct ckpt_hash *hash_out, accel_error_t *err);

/* ---- h5_layout.c, h5_tree.c: what calls libhdf5; no_hdf5.c in a build without it ----------- */

/* Creates m's file `rank` in dirfd with one contiguous dataset per box, and sets box.at
 * and file.bytes. The data are not written. */
accel_status_t ckpt_layout(int dirfd, struct ckpt_manifest *m, int rank,
                           accel_error_t *err);

/* ---- write.c -------------------------------------------------------------------------------- */

/* Writes the data of all boxes into the laid out file, hashes them, fsyncs. */
accel_status_t ckpt_write_shard(int dirfd, struct ckpt_manifest *m, int rank,
                                int *direct_out, accel_error_t *err);

/* ---- stage.c -------------------------------------------------------------------------------- */

/* Zeroed memory aligned to 2 MiB, of its own mapping; NULL: none left. */
void *ckpt_stage_map(size_t bytes);
void ckpt_stage_unmap(void *p, size_t bytes); /* accepts NULL */

/* ---- dirs.c ----------------------------------------------------------------------------------- */

int ckpt_open_dir(int at, const char *name);
/* Makes the root and what is missing above it, durably. */
accel_status_t ckpt_make_root(const char *root, accel_error_t *err);
accel_status_t ckpt_fsync(int fd, const char *what, accel_error_t *err);
/* Removes directory `name` and the plain files in it, MANIFEST first. 0 or -1. */
int ckpt_remove_dir(int rootfd, const char *name);
/* Does a live process hold the lock of directory `name`? `unknown`: the answer where locks
 * do not work on directories (NFS). */
bool ckpt_is_locked(int rootfd, const char *name, bool unknown);
/* Renames `name` to a free .trash-name... and removes that. 0 or -1. */
int ckpt_trash(int rootfd, const char *name);
/* "step_00001200" */
void ckpt_step_name(char name_out[64], int64_t step);
/* The step of a directory name; -1: not one. */
int64_t ckpt_step_of_name(const char *name);
/* The name that the directory has now, whatever it was opened by; "" when that cannot be
 * told. */
void ckpt_path_of(int dirfd, char *buf, size_t len);
/* The one rule about names: a directory called step_N holds step N. ACCEL_ECORRUPT. */
accel_status_t ckpt_check_name(int dirfd, int64_t step, const char *shown,
                               accel_error_t *err);
/* Names in rootfd that begin with `prefix`; *out is one malloc of fixed-size entries. */
accel_status_t ckpt_list_names(int rootfd, const char *prefix,
                               char (**names_out)[CKPT_DIR_MAX], size_t *count_out,
                               accel_error_t *err);

/* ---- access.c: reading what may be damaged or out of reach ------------------------------------------ */

/* O_RDONLY, never through a link. -1 with errno. */
int ckpt_open_plain(int dirfd, const char *name);
/* `error` met while `doing` something with the file or directory `where` of a checkpoint.
 * ACCEL_ECORRUPT: proof that it is not what a save left there. ACCEL_EPERM, ACCEL_EIO: it
 * cannot be read now. */
accel_status_t ckpt_fail_access(accel_error_t *err, const char *where,
                                const char *doing, int error);
/* The same of the directory of all checkpoints: never damage. */
accel_status_t ckpt_fail_root(accel_error_t *err, const char *root, const char *doing,
                              int error);
/* Says nothing about the checkpoint: it cannot be read now. */
bool ckpt_may_pass(accel_status_t st);
/* How often something may be tried again: CKPT_TRIES times, and only while `left` lasts,
 * which several things may share; `used` is 0 before each of them. */
struct ckpt_tries {
    int left, used;
};
#define CKPT_TRIES 3
/* Waits a little longer each time; false, at once, when no try is left. */
bool ckpt_try_again(struct ckpt_tries *t);
/* A shard file with the size that the manifest says; the caller closes it. */
accel_status_t ckpt_open_shard(const accel_ckpt_t *c, int file, int *fd_out,
                               accel_error_t *err);

/* ---- commit.c, retain.c (rank 0 only) ------------------------------------------------------------ */

struct ckpt_commit {
    int rootfd, tmpfd; /* -1: not open */
    bool made;         /* by us (rank 0), and not yet in place: ours to remove */
    char tmp[CKPT_DIR_MAX], final[64], owner[64];
    const char *run_id;       /* the caller's */
    char aside[CKPT_DIR_MAX]; /* where what had the final name was moved; "": nowhere */
};
/* Step 1: root, stale directories of dead owners, room for `bytes`, .tmp-step_N.OWNER. */
accel_status_t ckpt_commit_begin(struct ckpt_commit *c, const char *root, int64_t step,
                                 const char *owner, int64_t bytes, accel_error_t *err);
/* Every rank but 0: opens what rank 0 made. */
accel_status_t ckpt_commit_join(struct ckpt_commit *c, const char *root, int64_t step,
                                const char *owner, accel_error_t *err);
/* Steps 4 and 5. On error nothing visible has changed. */
accel_status_t ckpt_commit_publish(struct ckpt_commit *c, const struct strbuf *manifest,
                                   accel_error_t *err);
/* Removes the directory in progress (rank 0). */
void ckpt_commit_abandon(struct ckpt_commit *c);
void ckpt_commit_close(struct ckpt_commit *c);
/* Renames directory `name`, durably, so that it is no checkpoint of the run any more; its
 * new name into out. `damaged`: whoever read it has proof. */
accel_status_t ckpt_set_aside(int rootfd, const char *name, bool damaged,
                              char name_out[CKPT_DIR_MAX], accel_error_t *err);
/* Of the checkpoints of run `run_id` deletes all but the `keep` newest whole ones up to
 * step `saved`, which was just saved. */
void ckpt_retain(int rootfd, int64_t saved, const char *run_id, int keep);

/* ---- list.c ------------------------------------------------------------------------------------------ */

struct accel_ckpt {
    int dirfd; /* the only descriptor it holds: files are opened when they are read */
    char *dir;
    struct ckpt_manifest m;
    size_t *by_place;    /* boxes by (file, at) */
    size_t *file_first;  /* [world+1]: range of by_place of each file */
    unsigned char *blob; /* all blobs, one after the other */
    size_t *blob_at;     /* [tensors] */
};
/* Opens and parses; that each file can be opened and has its size is checked; blobs not
 * read. What may pass is tried again. */
accel_status_t ckpt_open_at(accel_ckpt_t **ckpt_out, int at, const char *name,
                            const char *shown, accel_error_t *err);
/* What directory `name` of rootfd is, looked at once. */
struct ckpt_identity {
    accel_status_t status; /* ACCEL_OK: a whole checkpoint; else why it is not one */
    int64_t step;          /* what its manifest says, if that is whole; else -1 */
    char owner[64], run_id[CKPT_RUN_ID_MAX + 1];
};
void ckpt_identify(struct ckpt_identity *id_out, int rootfd, const char *name);

/* ---- read.c -------------------------------------------------------------------------------------------- */

/* Reads boxes of either kind. */
accel_status_t ckpt_read_boxes(accel_ckpt_t *c, const accel_ckpt_box_t *boxes, size_t n,
                               bool blobs, accel_error_t *err);
/* Reads all boxes of a file and checks them. `finding` is called once per damaged box and
 * the rest still read; the result is an error only when the check itself cannot run. */
typedef void ckpt_finding_fn(void *user, const accel_error_t *e);
accel_status_t ckpt_verify_file(accel_ckpt_t *c, int file, ckpt_finding_fn *finding,
                                void *user, accel_error_t *err);
accel_status_t ckpt_fail_damaged(const accel_ckpt_t *c, const struct ckpt_mbox *b,
                                 accel_error_t *err);

/* ---- h5_tree.c ------------------------------------------------------------------------------------------- */

/* Compares the HDF5 structures of a file with the manifest, through libhdf5: see
 * accel_ckpt_verify_hdf5. An error only when the comparing itself cannot run. */
accel_status_t ckpt_h5_compare(const accel_ckpt_t *c, int file,
                               ckpt_finding_fn *finding, void *user,
                               accel_error_t *err);

#endif

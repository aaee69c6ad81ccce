/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to checkpoint/: the manifest in memory and the steps of save and load.
 * Everything here has the prefix ckpt_ and hidden visibility. Outputs (`_out`) are
 * written only on success.
 */
#ifndef ACCEL_CKPT_INTERNAL_H
#define ACCEL_CKPT_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "accel_ckpt.h"
#include "common/ckpt_sizes.h"
#include "common/common.h"
#include "common/whole_io.h"

/* version of the format, in the first line of MANIFEST */
#define CKPT_FORMAT 1
/* Unit of hashing. Part of the format: a reader that wants any byte of a piece reads
 * and hashes all of it. */
#define CKPT_PIECE_BYTES (1 << 20)
/* datasets of at least this many bytes start on a page, so that
 * O_DIRECT can write them */
#define CKPT_ALIGN_FROM (64 << 10)
/* a manifest is parsed in memory; a larger one is refused before it is read */
#define CKPT_MANIFEST_MAX (256 << 20)
/* all blobs together, because opening a checkpoint reads them into memory */
#define CKPT_BLOBS_MAX (1 << 30)
/* longest tensor name, without its NUL */
#define CKPT_NAME_MAX   511
#define CKPT_RUN_ID_MAX 1024
#define CKPT_WORLD_MAX  99999
#define CKPT_STEP_MAX   INT64_C(999999999999)
/* names below the root: "step_...", ".tmp-step_....OWNER" */
#define CKPT_DIR_MAX 192
/* in a checkpoint's directory; and while it is made */
#define CKPT_INDEX      "index.h5"
#define CKPT_INDEX_PART ".index.h5.part"
/* names of moments, and of their scales */
#define CKPT_STATE_PREFIX "optim/"
#define CKPT_SCALE_SUFFIX ".scale"
/* the record of a staged checkpoint: ".local-step_....OWNER@ID", with a MANIFEST; and
 * one that a run gave up, because its files are on nodes that the run does not have */
#define CKPT_STAGED_PREFIX ".local-"
#define CKPT_AWAY_PREFIX   ".away-"
/* the file that has the ID of a root; bytes of an ID and of a node's name, with NUL */
#define CKPT_STAGING_FILE "staging"
#define CKPT_ID_MAX       17
#define CKPT_NODE_MAX     65

/* ---- boxes.c --------------------------------------------------------------------- */

/* Product of shape[ndim]; -1 for a negative extent or a product beyond INT64_MAX. */
int64_t ckpt_volume(int ndim, const int64_t *shape);
/* Does the box lie inside a tensor of shape global[ndim]? Safe for any
 * input: nothing overflows. */
bool ckpt_box_inside(int ndim, const int64_t *offset, const int64_t *shape,
                     const int64_t *global);
/* Common part of boxes a and b, in global coordinates. False: they do not meet, and the
 * outputs are undefined. */
bool ckpt_box_intersect(int ndim, const int64_t *a_off, const int64_t *a_shape,
                        const int64_t *b_off, const int64_t *b_shape, int64_t *off_out,
                        int64_t *shape_out);

/* Walks a sub-box as runs that are contiguous in both a source and a destination box,
 * in the order of the source's memory. Offsets and strides are bytes from the start of
 * either box's memory. */
struct ckpt_runs {
    /* dimensions 0 .. outer-1 are looped over; those behind are in the run */
    int outer;
    /* of each looped dimension: its extent, and where the walk stands */
    int64_t count[ACCEL_CKPT_MAX_DIMS], index[ACCEL_CKPT_MAX_DIMS];
    int64_t src_stride[ACCEL_CKPT_MAX_DIMS], dst_stride[ACCEL_CKPT_MAX_DIMS];
    /* start of the current run */
    int64_t src, dst;
    /* length of every run */
    int64_t run_bytes;
    bool done;
};
/* Starts at the first run of `part`, which must lie inside both boxes and not be empty.
 * All offsets and shapes are global coordinates in elements. */
void ckpt_runs_start(struct ckpt_runs *r, int ndim, size_t elem_bytes,
                     const int64_t *src_off, const int64_t *src_shape,
                     const int64_t *dst_off, const int64_t *dst_shape,
                     const int64_t *part_off, const int64_t *part_shape);
/* To the next run; sets `done` behind the last. */
void ckpt_runs_next(struct ckpt_runs *r);

/* ---- manifest.c: the manifest in memory ------------------------------------------ */

/* xxh3-128 */
struct ckpt_hash {
    uint64_t hi, lo;
};

struct ckpt_file {
    /* see ckpt_shard_name; "": not known yet (a fragment has one file) */
    char name[40];
    int64_t bytes;
    /* of all bytes outside boxes, in file order: HDF5's own structures */
    struct ckpt_hash meta;
};

struct ckpt_tensor {
    char *name;
    accel_dtype_t dtype;
    /* a blob is u8[bytes] and is kept apart: tensors first, blobs behind them */
    bool blob;
    int ndim;
    int64_t shape[ACCEL_CKPT_MAX_DIMS];
    /* its range of manifest.box, sorted by offset; set by ckpt_manifest_sort */
    size_t box, boxes;
};

/* One stored box: a dataset of one shard file. */
struct ckpt_mbox {
    /* index into manifest.tensor */
    size_t tensor;
    int file;
    int64_t offset[ACCEL_CKPT_MAX_DIMS], shape[ACCEL_CKPT_MAX_DIMS];
    /* where its bytes lie in the file */
    int64_t at, bytes;
    /* its range of manifest.piece: one hash per CKPT_PIECE_BYTES */
    size_t piece, pieces;
    /* the caller's memory, in a save only */
    const void *data;
};

/* A whole manifest, or one rank's fragment of it. Owns all arrays and the tensors'
 * names; ckpt_manifest_free frees them. */
struct ckpt_manifest {
    int64_t step;
    /* ranks that wrote it, one file each */
    int world;
    char version[32], owner[64], sharding[64], run_id[CKPT_RUN_ID_MAX + 1];
    /* [world], by rank */
    struct ckpt_file *file;
    struct ckpt_tensor *tensor;
    struct ckpt_mbox *box;
    struct ckpt_hash *piece;
    /* entries in use */
    size_t tensors, boxes, pieces;
    /* entries allocated */
    size_t tensor_cap, box_cap, piece_cap;
};

/* NULL is fine; leaves *m empty. */
void ckpt_manifest_free(struct ckpt_manifest *m);
/* "rank_00001-of-00004.h5" */
void ckpt_shard_name(char name_out[40], int rank, int world);
/* NULL, or the reason why `name` may not name a tensor. Names become HDF5 paths and
 * words of the manifest, so blanks, '@' and empty parts are out. */
const char *ckpt_name_problem(const char *name);
/* Is s fit to be a word of the header and part of a file name: printable, no blanks or
 * slashes, no leading dot, shorter than `cap`? */
bool ckpt_word_ok(const char *s, size_t cap);
/* Appends a copy of *t, its name included. Its range of boxes is empty. */
accel_status_t ckpt_manifest_add_tensor(struct ckpt_manifest *m,
                                        const struct ckpt_tensor *t,
                                        accel_error_t *err);
/* Appends a box of tensor b->tensor, with room for the hashes of its pieces (zeroed).
 * b->bytes must be set. */
accel_status_t ckpt_manifest_add_box(struct ckpt_manifest *m, const struct ckpt_mbox *b,
                                     accel_error_t *err);
/* Sorts tensors by name and boxes by offset, joins tensors of one name, and sets the
 * tensors' ranges of boxes. ACCEL_EMISMATCH when two boxes disagree about the dtype or
 * shape of their tensor. */
accel_status_t ckpt_manifest_sort(struct ckpt_manifest *m, accel_error_t *err);
/* Copies a rank's fragment into m. The caller sorts m when all ranks are in. */
accel_status_t ckpt_manifest_merge(struct ckpt_manifest *m,
                                   const struct ckpt_manifest *part, int rank,
                                   accel_error_t *err);
/* Appends the canonical text, its own hash in the last line, to text_out. only_file >=
 * 0: a fragment, with that file alone, which is file 0 of its box lines. */
accel_status_t ckpt_manifest_format(const struct ckpt_manifest *m, int only_file,
                                    struct strbuf *text_out, accel_error_t *err);
/* The tensor or blob of that name in a sorted manifest, or NULL. */
const struct ckpt_tensor *ckpt_manifest_find(const struct ckpt_manifest *m, bool blob,
                                             const char *name);
/* The type whose codes a tensor of uint8 holds, by the names that a run gives its
 * tensors: ACCEL_F8E4M3 of a moment "optim/NAME" whose scales "optim/NAME.scale" are
 * uint8; else the tensor's own. The manifest is sorted. */
accel_dtype_t ckpt_manifest_codes(const struct ckpt_manifest *m,
                                  const struct ckpt_tensor *t);
/* "optim/NAME.scale"? */
bool ckpt_is_scale(const char *name);

/* ---- manifest_check.c ------------------------------------------------------------ */

/* Checks the geometry of a sorted manifest: boxes lie inside their tensor and tile it
 * exactly, bytes are volume times element size, byte ranges lie inside their file and
 * do not overlap. `code` is the message of a violation. */
accel_status_t ckpt_manifest_check(const struct ckpt_manifest *m, enum message code,
                                   accel_error_t *err);
/* Indices of all boxes, ordered by (file, at). *order_out is one malloc of m->boxes. */
accel_status_t ckpt_boxes_by_place(const struct ckpt_manifest *m, size_t **order_out,
                                   accel_error_t *err);

/* ---- manifest_parse.c ------------------------------------------------------------ */

/* Parses text[len] into a new manifest. fragment: it has one file, and tiling is not
 * checked. `where` names the text in errors. ACCEL_ECORRUPT; ACCEL_EUNSUPPORTED for
 * another format; ACCEL_ENOMEM. */
accel_status_t ckpt_manifest_parse(struct ckpt_manifest *m, const char *text,
                                   size_t len, bool fragment, const char *where,
                                   accel_error_t *err);

/* ---- hash.c ---------------------------------------------------------------------- */

/* Seed of all pieces of a box: a digest of step, kind, name, dtype,
 * global shape and box. */
uint64_t ckpt_box_seed(const struct ckpt_manifest *m, const struct ckpt_mbox *b);
/* Hash of piece `index` of a box. */
struct ckpt_hash ckpt_piece_hash(uint64_t seed, size_t index, const void *data,
                                 size_t bytes);
/* Bytes of piece `index`: CKPT_PIECE_BYTES, less for the last one. */
int64_t ckpt_piece_bytes(const struct ckpt_mbox *b, size_t index);
/* xxh3-64 of a run-id, which names the run in ROOT/retention. */
uint64_t ckpt_run_hash(const char *run_id);
bool ckpt_hash_equal(struct ckpt_hash a, struct ckpt_hash b);
/* One number for the hashes of all bytes of a checkpoint: equal where two ranks have
 * read the same MANIFEST. */
uint64_t ckpt_manifest_digest(const struct ckpt_manifest *m);
/* Hash of the bytes of file f outside its boxes, read from fd. order[count]: the file's
 * boxes by place. */
accel_status_t ckpt_meta_hash(const struct ckpt_manifest *m, int f, int fd,
                              const size_t *order, size_t count,
                              struct ckpt_hash *hash_out, accel_error_t *err);

/* ---- h5_layout.c, h5_tree.c: what calls libhdf5; no_hdf5.c in a build without it - */

/* Creates file `rank` of m in dirfd with one contiguous dataset per box; sets at
 * of each box and bytes of the file. Writes no data. Local: the ranks lay out
 * their files side by side. */
accel_status_t ckpt_layout(int dirfd, struct ckpt_manifest *m, int rank,
                           accel_error_t *err);

/* ---- write.c --------------------------------------------------------------------- */

/* seconds: a month */
#define CKPT_SPREAD_MAX 2592000.0

/* How fast a file is written. Other threads set the flags meanwhile. */
struct ckpt_pace {
    /* the write is to end, with an error */
    atomic_bool cancelled;
    /* somebody waits: no more spreading */
    atomic_bool hurried;
    /* ns over which the data is spread; 0: as fast as it goes */
    int64_t spread;
    /* the caller's; 0: time has become short, no more spreading. NULL: it has not */
    int (*has_time)(void);
    /* the writer's: ns that it has waited */
    int64_t waited;
};

/* A laid out shard file that is being written, by a thread of its own. */
struct ckpt_writer;
/* Opens file `rank` of m, reserves its blocks and fills in its meta hash. *pace has to
 * stay until the close. */
accel_status_t ckpt_writer_open(struct ckpt_writer **writer_out, int dirfd,
                                struct ckpt_manifest *m, int rank,
                                struct ckpt_pace *pace, accel_error_t *err);
/* Writes a box and fills in its hashes. `data` is copied, unless it stays as it is
 * until the close. False: a write has failed, and the close says why. */
bool ckpt_writer_put(struct ckpt_writer *w, size_t box, const void *data, bool stays);
/* Ends the writing and frees w. complete: the file is made durable, and *direct_out
 * says whether O_DIRECT held to the end; else what was written is of no use. */
accel_status_t ckpt_writer_close(struct ckpt_writer *w, bool complete, int *direct_out,
                                 accel_error_t *err);

/* Writes the data of all boxes into the laid out file, fills in their hashes and the
 * file's meta hash, fsyncs. *direct_out: whether O_DIRECT held to the end. */
accel_status_t ckpt_write_shard(int dirfd, struct ckpt_manifest *m, int rank,
                                struct ckpt_pace *pace, int *direct_out,
                                accel_error_t *err);

/* ---- one_file.c ------------------------------------------------------------------ */

/* A save of all ranks into one file, which rank 0 writes. */
struct ckpt_one_file;
/* Takes over *m, this rank's fragment; on rank 0 *m becomes the manifest to be
 * written, whose file is not laid out yet. Collective: every rank gets the same
 * status. The caller frees *one_out in either case. */
accel_status_t ckpt_one_file_begin(struct ckpt_one_file **one_out,
                                   struct ckpt_manifest *m,
                                   const accel_ckpt_coll_t *coll, accel_error_t *err);
/* Lays out and writes the file of m in dirfd, durably; other ranks than 0 only send,
 * and pass an m and a dirfd that are not looked at. Collective; an error may be of this
 * rank alone. */
accel_status_t ckpt_one_file_write(struct ckpt_one_file *o, int dirfd,
                                   struct ckpt_manifest *m, struct ckpt_pace *pace,
                                   int *direct_out, accel_error_t *err);
/* NULL is fine. */
void ckpt_one_file_free(struct ckpt_one_file *o);

/* ---- stage.c --------------------------------------------------------------------- */

/* Zeroed memory aligned to 2 MiB, in a mapping of its own. NULL: there is none left. */
void *ckpt_stage_map(size_t bytes);
/* `bytes` as given to ckpt_stage_map. NULL is fine. */
void ckpt_stage_unmap(void *p, size_t bytes);

/* ---- dirs.c ---------------------------------------------------------------------- */

/* Opens directory `name` of `at`, never through a link. -1 with errno. */
int ckpt_open_dir(int at, const char *name);
/* Is errno `error` one of a full, failing or read-only disk? */
bool ckpt_is_disk_error(int error);
/* Makes the root and whatever is missing above it, durably. */
accel_status_t ckpt_make_root(const char *root, accel_error_t *err);
/* fsync of fd; `what` names it in the error. Never tried again: see dirs.c. */
accel_status_t ckpt_fsync(int fd, const char *what, accel_error_t *err);
/* Removes directory `name` and the plain files in it, MANIFEST first. 0, also when it
 * is not there, or -1. */
int ckpt_remove_dir(int rootfd, const char *name);
/* Does a live process hold the lock of directory `name`? `unknown` is the answer where
 * directories cannot be locked (NFS). */
bool ckpt_is_locked(int rootfd, const char *name, bool unknown);
/* Renames `name` to a free .trash-name... and removes that. 0 or -1. */
int ckpt_trash(int rootfd, const char *name);
/* "step_00001200" */
void ckpt_step_name(char name_out[64], int64_t step);
/* The step of a directory name, -1 when it is not the canonical name of one. */
int64_t ckpt_step_of_name(const char *name);
/* buf[len] gets the path that the open directory has now, under whatever name it was
 * opened; "" when that cannot be told. */
void ckpt_path_of(int dirfd, char *buf, size_t len);
/* The one rule about names: a directory called step_N holds step N. `shown` names it in
 * the error. ACCEL_ECORRUPT. */
accel_status_t ckpt_check_name(int dirfd, int64_t step, const char *shown,
                               accel_error_t *err);
/* Names in rootfd that begin with `prefix`, unsorted. *names_out is one malloc of
 * fixed-size entries; the caller frees it. */
accel_status_t ckpt_list_names(int rootfd, const char *prefix,
                               char (**names_out)[CKPT_DIR_MAX], size_t *count_out,
                               accel_error_t *err);

/* ---- access.c: reading what may be damaged or out of reach ----------------------- */

/* Opens a file to read, never through a link. -1 with errno. */
int ckpt_open_plain(int dirfd, const char *name);
/* All of a plain file: one malloc with a NUL at its end. `where` names it in errors,
 * `missing` says what it means that it is not there. ACCEL_ECORRUPT: it is missing, no
 * plain file, or longer than `most`. */
accel_status_t ckpt_read_file(int dirfd, const char *name, const char *where,
                              const char *missing, int64_t most, char **text_out,
                              size_t *len_out, accel_error_t *err);
/* The error for errno `error`, met while `doing` something with the file or directory
 * `where` of a checkpoint. ACCEL_ECORRUPT is proof that it is not what a save left
 * there; ACCEL_EPERM and ACCEL_EIO say that it cannot be read now. */
accel_status_t ckpt_fail_access(accel_error_t *err, const char *where,
                                const char *doing, int error);
/* The same for the directory of all checkpoints, which is never damaged. */
accel_status_t ckpt_fail_root(accel_error_t *err, const char *root, const char *doing,
                              int error);
/* Is the failure temporary? Then it says nothing about the checkpoint itself. */
bool ckpt_may_pass(accel_status_t st);
/* How often something is tried again: CKPT_TRIES times, and only while `left` lasts.
 * Several things may share `left`; `used` is set to 0 before each of them. */
struct ckpt_tries {
    int left, used;
};
#define CKPT_TRIES 3
/* Waits, longer each time. False, without waiting, when no try is left. */
bool ckpt_try_again(struct ckpt_tries *t);
/* Opens shard file `file` to read and checks that its size is that of the manifest. The
 * caller closes *fd_out. */
accel_status_t ckpt_open_shard(const accel_ckpt_t *c, int file, int *fd_out,
                               accel_error_t *err);

/* ---- staged_record.c: records of staged checkpoints ------------------------------ */

/* The ID of a root; false: it has none, or is a copy of the root that has it. */
bool ckpt_staging_id(int rootfd, char id_out[CKPT_ID_MAX]);
/* The same, or a new one. A0801. */
accel_status_t ckpt_staging_id_make(int rootfd, char id_out[CKPT_ID_MAX],
                                    accel_error_t *err);
/* ".local-step_00001200.OWNER@ID" */
void ckpt_staged_name(char name_out[CKPT_DIR_MAX], int64_t step, const char *owner,
                      const char *id);
/* Is the record there, also under the name of one that was given up? A root that cannot
 * be read may have it. */
bool ckpt_is_recorded(int rootfd, const char *record);
/* Name of this node, a word; "?": it has none. */
void ckpt_node_name(char name_out[CKPT_NODE_MAX]);
/* MANIFEST of a record, and what says where its files are ("": nothing does): one
 * malloc each with a NUL at its end. ACCEL_ECORRUPT: proven damage of the record. */
accel_status_t ckpt_record_read(const char *root, const char *record, char **text_out,
                                size_t *len_out, accel_error_t *err);
accel_status_t ckpt_places_read(const char *root, const char *record, char **text_out,
                                size_t *len_out, accel_error_t *err);
/* Where the files of a staged checkpoint are. */
struct ckpt_places {
    /* [world], owned: the node of each file, "" where that is not known; NULL: of
     * all */
    char (*node)[CKPT_NODE_MAX];
    /* the directory on the nodes, in the text; "" where that is not known */
    const char *local;
};
/* False: no memory. */
bool ckpt_places_parse(struct ckpt_places *p_out, const char *text, int world);

/* ---- commit.c (rank 0 only) ------------------------------------------------------ */

/* A save in progress, as seen by one rank. */
struct ckpt_commit {
    /* the root and the directory in progress; -1: not open */
    int rootfd, tmpfd;
    /* rank 0 made tmp and it is not in place yet: ours to remove */
    bool made;
    /* names in the root, and the owner "JOBID.RESTART" */
    char tmp[CKPT_DIR_MAX], final[CKPT_DIR_MAX], owner[64];
    /* the files are on the nodes: what becomes visible is a record of them */
    bool staged;
    /* of the root, where `staged`; on all ranks after the begin */
    char id[CKPT_ID_MAX];
    /* the caller's; `replaces`: as in accel_ckpt_save_t */
    const char *run_id;
    bool replaces;
    /* name of what was replaced, which the retention removes; "": nothing was */
    char replaced[CKPT_DIR_MAX];
    /* new name of whatever had the final name; "": nothing had it */
    char aside[CKPT_DIR_MAX];
};
/* Step 1, rank 0: makes the root, removes stale directories of dead owners, checks that
 * `bytes` are free, makes .tmp-step_N.OWNER. */
accel_status_t ckpt_commit_begin(struct ckpt_commit *c, const char *root, int64_t step,
                                 const char *owner, int64_t bytes, accel_error_t *err);
/* Step 1, all other ranks: opens the directory that rank 0 made. Called after the ranks
 * agreed that it is there. */
accel_status_t ckpt_commit_join(struct ckpt_commit *c, const char *root, int64_t step,
                                const char *owner, accel_error_t *err);
/* What a kill left of a replacement on a file system that cannot exchange names: the
 * replaced one has its name again, unless the new one has it. */
void ckpt_settle_old(int rootfd);
/* Steps 4 and 5, rank 0: writes the MANIFEST and puts the directory in place. On error
 * nothing visible has changed. */
accel_status_t ckpt_commit_publish(struct ckpt_commit *c, const struct strbuf *manifest,
                                   accel_error_t *err);
/* Rank 0: removes the directory in progress, if it is still ours. */
void ckpt_commit_abandon(struct ckpt_commit *c);
/* Closes the descriptors. Removes nothing. */
void ckpt_commit_close(struct ckpt_commit *c);
/* Renames directory `name`, durably, so that it is no checkpoint of the run any more;
 * its new name goes to name_out. `damaged`: the caller has proof of damage. */
accel_status_t ckpt_set_aside(int rootfd, const char *name, bool damaged,
                              char name_out[CKPT_DIR_MAX], accel_error_t *err);

/* ---- keep_file.c: ROOT/retention ------------------------------------------------- */

#define CKPT_KEEP_FILE "retention"

struct ckpt_rule {
    /* how many of the newest */
    int keep;
    accel_ckpt_rule_t also;
};
/* NULL, or the reason why a rule may not be noted. */
const char *ckpt_rule_problem(const accel_ckpt_rule_t *rule);
/* The text of the file: one malloc with a NUL at its end; "" where there is none.
 * ACCEL_EIO, ACCEL_EPERM, ACCEL_ENOMEM. */
accel_status_t ckpt_keep_read(int rootfd, char **text_out, accel_error_t *err);
/* The rule that was noted last for a run; false: none. */
bool ckpt_keep_rule(const char *text, const char *run_id, struct ckpt_rule *r_out);
/* Calls found(user, step, value) for every value of the metric, in the order of the
 * file. */
void ckpt_keep_values(const char *text, const char *run_id, const char *metric,
                      void (*found)(void *user, int64_t step, double value),
                      void *user);
/* Notes the rule of a run, unless it is the one noted last. Failures are left to the
 * next save. */
void ckpt_keep_note(int rootfd, const char *run_id, const struct ckpt_rule *r);

/* ---- root_lock.c ----------------------------------------------------------------- */

/* Opens the root to delete in it, and takes the lock of the run that saves there, if
 * there is one; dry_run: not. The caller closes both, where they are not -1. A0822:
 * a run holds it. */
accel_status_t ckpt_lease_open(const char *root, bool dry_run, int *rootfd_out,
                               int *lease_out, accel_error_t *err);

/* ---- keep_rule.c: what stays ----------------------------------------------------- */

/* One step directory, and whether it stays. */
struct ckpt_kept {
    char name[64];
    int64_t step;
    /* as in struct ckpt_identity */
    accel_status_t status;
    /* of the run, and in the directory of its step */
    bool ours;
    /* NAN: it has none of the rule's metric */
    double value;
    /* among the best, from 1; 0: it is none of those that stay for that */
    int place;
    /* the rule keeps it not */
    bool goes;
    /* why it stays; "" when it goes */
    char why[160];
};
struct ckpt_survey {
    struct ckpt_kept *list;
    size_t count;
    /* what was applied; rule.keep is 0 where there was none: then everything stays */
    struct ckpt_rule rule;
    char run_id[CKPT_RUN_ID_MAX + 1];
};
/* Judges all step directories of rootfd, newest first. run_id NULL: the run of the
 * newest complete one. rule NULL: the one noted last
 * for that run. Steps beyond `newest` are
 * no business of the rule and stay. Free it in either case. ACCEL_EIO, ACCEL_EPERM,
 * ACCEL_ENOMEM. */
accel_status_t ckpt_survey(struct ckpt_survey *s_out, int rootfd, const char *run_id,
                           const struct ckpt_rule *rule, int64_t newest,
                           accel_error_t *err);
void ckpt_survey_free(struct ckpt_survey *s);

/* ---- retain.c -------------------------------------------------------------------- */

/* Deletes what rule `r` does not keep of the checkpoints of run `run_id` below step
 * `saved`, which was just saved, while may_delete (or NULL) says yes. */
void ckpt_retain(int rootfd, int64_t saved, const char *run_id,
                 const struct ckpt_rule *r, int (*may_delete)(void));

/* ---- agree.c --------------------------------------------------------------------- */

/* ckpt_agree, and *failed_out: the lowest failing rank; -1: none, or the collective
 * itself has failed. */
accel_status_t ckpt_agree_whose(const accel_ckpt_coll_t *c, accel_status_t mine,
                                int *failed_out, accel_error_t *err);

/* Collective. The error of the lowest failing rank becomes everyone's; `mine` is this
 * rank's status, with its error in *err, which may not be NULL. */
accel_status_t ckpt_agree(const accel_ckpt_coll_t *c, accel_status_t mine,
                          accel_error_t *err);

/* Rank 0: the manifest of all ranks, of the texts of their fragments, one after the
 * other in `all`. Its boxes tile every tensor. Each text is parsed as strictly as a
 * file. `mine` has what the header must agree with. */
accel_status_t ckpt_join_fragments(const struct ckpt_manifest *mine, const char *all,
                                   const size_t *sizes, struct ckpt_manifest *m_out,
                                   accel_error_t *err);

/* ---- list.c ---------------------------------------------------------------------- */

struct accel_ckpt {
    /* the only descriptor it holds: shard files are opened while they are read */
    int dirfd;
    /* as shown in messages */
    char *dir;
    struct ckpt_manifest m;
    /* [boxes], ordered by (file, at) */
    size_t *by_place;
    /* [world+1]: boxes of file f are by_place[file_first[f] .. file_first[f+1]) */
    size_t *file_first;
    /* all blobs, one after the other; NULL until accel_ckpt_open reads them */
    unsigned char *blob;
    /* [tensors]: where in `blob` the bytes of a blob begin */
    size_t *blob_at;
};
/* by_place and file_first, from the manifest. */
accel_status_t ckpt_index_places(accel_ckpt_t *c, accel_error_t *err);
/* Opens directory `name` of `at` (or AT_FDCWD) and parses its manifest. Checks that
 * every shard file can be opened and has its size; does not read blobs. A temporary
 * failure is tried again. `shown` is its name in messages. */
accel_status_t ckpt_open_at(accel_ckpt_t **ckpt_out, int at, const char *name,
                            const char *shown, accel_error_t *err);
/* What directory `name` of rootfd is, by a single look at it. */
struct ckpt_identity {
    /* ACCEL_OK: a whole checkpoint; else the reason why it is not */
    accel_status_t status;
    /* from its manifest; -1 when that is not whole, and then the texts are empty */
    int64_t step;
    char owner[64], run_id[CKPT_RUN_ID_MAX + 1];
};
/* Always fills *id_out. */
void ckpt_identify(struct ckpt_identity *id_out, int rootfd, const char *name);

/* ---- read.c ---------------------------------------------------------------------- */

/* Fills boxes[n].data. blobs: the names are those of blobs, else of tensors. */
accel_status_t ckpt_read_boxes(accel_ckpt_t *c, const accel_ckpt_box_t *boxes, size_t n,
                               bool blobs, accel_error_t *err);
/* read_together.c: accel_ckpt_read_together of tensors or of blobs. */
accel_status_t ckpt_read_together(accel_ckpt_t *c, const accel_ckpt_box_t *boxes,
                                  size_t n, bool blobs, const accel_ckpt_coll_t *coll,
                                  accel_error_t *err);
/* Receives one finding; *e is valid only during the call. */
typedef void ckpt_finding_fn(void *user, const accel_error_t *e);
/* Reads all boxes of a file and checks their hashes. `finding` is called once per
 * damaged or unreadable box, and the rest is still read; `advance`, unless NULL, after
 * every read: false ends them. The result is an error only when the check itself cannot
 * run. */
accel_status_t ckpt_verify_file(accel_ckpt_t *c, int file, ckpt_finding_fn *finding,
                                bool (*advance)(void *user, int64_t bytes), void *user,
                                accel_error_t *err);
/* The error for a box whose bytes do not match their hash. */
accel_status_t ckpt_fail_damaged(const accel_ckpt_t *c, const struct ckpt_mbox *b,
                                 accel_error_t *err);

/* ---- verify.c -------------------------------------------------------------------- */

/* The same with the bytes around the boxes: all of the file. */
void ckpt_check_file(accel_ckpt_t *c, int file, ckpt_finding_fn *finding,
                     bool (*advance)(void *user, int64_t bytes), void *user);

/* ---- h5_tree.c ------------------------------------------------------------------- */

/* Compares the HDF5 structures of a file with the manifest, through libhdf5: see
 * accel_ckpt_verify_hdf5. An error only when the comparison itself cannot run. */
accel_status_t ckpt_h5_compare(const accel_ckpt_t *c, int file,
                               ckpt_finding_fn *finding, void *user,
                               accel_error_t *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest in memory, its boxes and hashes.
 */
#ifndef ACCEL_CKPT_MANIFEST_H
#define ACCEL_CKPT_MANIFEST_H

#include "ckpt_internal.h"

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
    /* dimensions 0 .. outer-1 are looped over; those after are in the run */
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
/* To the next run; sets `done` after the last. */
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
    /* a blob is u8[bytes] and is kept apart: tensors first, then blobs */
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

/* Fills an empty manifest's header, and makes room for its files. The caller frees it,
 * also after a failure. */
accel_status_t ckpt_manifest_start(struct ckpt_manifest *m, int64_t step, int world,
                                   const char *owner, const char *sharding,
                                   const char *run_id, accel_error_t *err);
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

#endif

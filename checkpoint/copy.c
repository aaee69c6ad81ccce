/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a checkpoint of any number of files in one process, from tensors that a
 * callback reads part by part: another cut of a checkpoint, or weights of another
 * format. The steps are those of a save; memory does not grow with the tensors.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "hdf5/ckpt_hdf5.h"
#include "save/ckpt_commit.h"
#include "ckpt_internal.h"
#include "ckpt_tools.h"
#include "common/plain_file.h"

/* bytes of a box in memory at a time; whole pieces */
#define PART_BYTES (32 << 20)

/* One call. */
struct copy {
    const struct ckpt_copy *x;
    struct ckpt_commit commit;
    /* the whole manifest, which grows by a file at a time */
    struct ckpt_manifest m;
    /* PART_BYTES */
    char *part;
    accel_error_t *err;
};

/* ---- what a file holds ----------------------------------------------------------- */

static accel_status_t copy_header(const struct copy *c, struct ckpt_manifest *m)
{
    return ckpt_manifest_start(m, c->x->step, c->x->shards, c->commit.owner,
                               c->x->sharding, c->x->run_id, c->err);
}

/* One box of the tensor that was added last. `source`: the caller's tensor or blob. */
static accel_status_t copy_box(const struct copy *c, struct ckpt_manifest *m,
                               const struct ckpt_tensor *t,
                               const accel_ckpt_box_t *part, const void *source,
                               int file)
{
    struct ckpt_mbox b = { .tensor = m->tensors - 1, .file = file, .data = source };

    memcpy(b.offset, part->offset, (size_t)t->ndim * sizeof(int64_t));
    memcpy(b.shape, part->shape, (size_t)t->ndim * sizeof(int64_t));
    b.bytes = ckpt_volume(t->ndim, b.shape) * (int64_t)accel_dtype_bytes(t->dtype);
    return ckpt_manifest_add_box(m, &b, c->err);
}

/* Tensor x of this file: its flat range, as boxes. The first file names every tensor,
 * so that empty ones are there, and all name the scales, which tell what codes are. */
static accel_status_t copy_tensor(const struct copy *c, struct ckpt_manifest *m,
                                  const accel_ckpt_box_t *x, int file)
{
    struct ckpt_tensor t = { .name = (char *)x->name,
                             .dtype = x->dtype,
                             .ndim = x->ndim };
    accel_ckpt_box_t part[2 * ACCEL_CKPT_MAX_DIMS] = { 0 };
    const char *problem = ckpt_name_problem(x->name);
    int64_t elems = ckpt_volume(x->ndim, x->global_shape), each, bytes;
    accel_status_t st;
    int n;

    if (problem)
        return accel_fail_at(c->err, A0815, x->name, "rename the tensor",
                             "invalid name: %s", problem);
    if (elems < 0 ||
        __builtin_mul_overflow(elems, (int64_t)accel_dtype_bytes(x->dtype), &bytes))
        return accel_fail_at(c->err, A0815, x->name, "see doc/checkpoint-format.md",
                             "the tensor is too large");
    each = elems / c->x->shards + (elems % c->x->shards != 0);
    memcpy(t.shape, x->global_shape, (size_t)x->ndim * sizeof(int64_t));
    /* the last files of a tensor with few elements have none of it */
    n = file <= (each ? elems / each : 0)
            ? accel_ckpt_boxes_of_range(
                  x->ndim, x->global_shape, file * each,
                  elems - file * each < each ? elems : (file + 1) * each, part)
            : 0;
    if (n == 0 && file > 0 && !ckpt_is_scale(x->name))
        return ACCEL_OK;
    st = ckpt_manifest_add_tensor(m, &t, c->err);
    for (int k = 0; k < n && !st; k++)
        st = copy_box(c, m, &t, &part[k], x, file);
    return st;
}

/* Blobs lie in the first file, as a save has them. */
static accel_status_t copy_blob(const struct copy *c, struct ckpt_manifest *m,
                                const accel_ckpt_blob_t *blob)
{
    struct ckpt_tensor t = {
        .name = (char *)blob->name, .dtype = ACCEL_U8, .blob = true, .ndim = 1
    };
    accel_ckpt_box_t whole = { .ndim = 1 };
    accel_status_t st;

    t.shape[0] = whole.shape[0] = (int64_t)blob->bytes;
    st = ckpt_manifest_add_tensor(m, &t, c->err);
    return st || blob->bytes == 0 ? st : copy_box(c, m, &t, &whole, blob, 0);
}

static accel_status_t copy_plan(const struct copy *c, struct ckpt_manifest *m, int file)
{
    accel_status_t st = copy_header(c, m);

    if (st)
        return st;
    ckpt_shard_name(m->file[file].name, file, m->world);
    for (size_t i = 0; i < c->x->tensor_count && !st; i++)
        st = copy_tensor(c, m, &c->x->tensors[i], file);
    for (size_t i = 0; file == 0 && i < c->x->blob_count && !st; i++)
        st = copy_blob(c, m, &c->x->blobs[i]);
    return st ? st : ckpt_manifest_sort(m, c->err);
}

/* ---- its bytes ------------------------------------------------------------------- */

/* Bytes [from, from + n) of a box into c->part. */
static accel_status_t fetch_box(const struct copy *c, const struct ckpt_tensor *t,
                                const struct ckpt_mbox *b, int64_t from, size_t n)
{
    int64_t size = (int64_t)accel_dtype_bytes(t->dtype), first = 0;
    const accel_ckpt_blob_t *blob = b->data;
    const accel_ckpt_box_t *tensor = b->data;

    if (t->blob) {
        memcpy(c->part, (const char *)blob->data + from, n);
        return ACCEL_OK;
    }
    for (int d = 0; d < t->ndim; d++)
        first = first * t->shape[d] + b->offset[d];
    return c->x->read(c->x->user, (size_t)(tensor - c->x->tensors), first + from / size,
                      (int64_t)n / size, c->part, c->err);
}

/* A box is a flat range, whose elements follow each other in the tensor. */
static accel_status_t copy_bytes(const struct copy *c, struct ckpt_manifest *m,
                                 struct ckpt_mbox *b, int fd, const char *name)
{
    uint64_t seed = ckpt_box_seed(m, b);
    accel_status_t st = ACCEL_OK;
    size_t k = 0;

    for (int64_t from = 0; from < b->bytes && !st; from += PART_BYTES) {
        size_t n =
            b->bytes - from < PART_BYTES ? (size_t)(b->bytes - from) : PART_BYTES;

        st = fetch_box(c, &m->tensor[b->tensor], b, from, n);
        for (size_t done = 0; !st && done < n; k++) {
            size_t bytes = (size_t)ckpt_piece_bytes(b, k);

            m->piece[b->piece + k] = ckpt_piece_hash(seed, k, c->part + done, bytes);
            done += bytes;
        }
        if (!st && pwrite_all(fd, c->part, n, b->at + from))
            st = accel_fail_at(c->err, errno == ENOSPC ? A0802 : A0801, name,
                               "check the disk and the quota", "write: %m");
    }
    return st;
}

/* All bytes of a laid out file, and its hashes. */
static accel_status_t copy_fill(const struct copy *c, struct ckpt_manifest *m, int file)
{
    const char *name = m->file[file].name;
    size_t *order = NULL;
    int fd = plain_open(c->commit.tmpfd, name, O_RDWR);
    accel_status_t st;

    if (fd < 0)
        return accel_fail_at(c->err, A0801, name, "check the disk", "cannot open: %m");
    st = ckpt_boxes_by_place(m, &order, c->err);
    ACCEL_TRY(
        st, ckpt_meta_hash(m, file, fd, order, m->boxes, &m->file[file].meta, c->err));
    for (size_t i = 0; i < m->boxes && !st; i++)
        st = copy_bytes(c, m, &m->box[order[i]], fd, name);
    ACCEL_TRY(st, ckpt_fsync(fd, name, c->err));
    if (close(fd) && !st)
        st = accel_fail_at(c->err, A0801, name, "check the disk", "close: %m");
    free(order);
    return st;
}

/* One file from its plan to its records in the manifest. */
static accel_status_t copy_file(struct copy *c, int file)
{
    struct ckpt_manifest m = { 0 };
    accel_status_t st = copy_plan(c, &m, file);

    ACCEL_TRY(st, ckpt_layout(c->commit.tmpfd, &m, file, c->err));
    ACCEL_TRY(st, copy_fill(c, &m, file));
    ACCEL_TRY(st, ckpt_manifest_merge(&c->m, &m, file, c->err));
    ckpt_manifest_free(&m);
    return st;
}

/* ---- the call -------------------------------------------------------------------- */

static int64_t bytes_needed(const struct ckpt_copy *x)
{
    int64_t sum = 0, bytes;

    for (size_t i = 0; i < x->tensor_count; i++) {
        int64_t elems = ckpt_volume(x->tensors[i].ndim, x->tensors[i].global_shape);

        if (!__builtin_mul_overflow(
                elems, (int64_t)accel_dtype_bytes(x->tensors[i].dtype), &bytes) &&
            bytes > 0 && sum <= INT64_MAX - bytes)
            sum += bytes;
    }
    return sum;
}

/* A step that is there is never replaced, whoever wrote it. */
static accel_status_t copy_is_new(const struct copy *c)
{
    if (faccessat(c->commit.rootfd, c->commit.final, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return ACCEL_OK;
    return accel_fail_at(c->err, A0845, c->x->root, "give another directory",
                         "%s already exists and is not replaced", c->commit.final);
}

static accel_status_t copy_all(struct copy *c)
{
    struct strbuf text = { 0 };
    accel_status_t st = copy_is_new(c);

    ACCEL_TRY(st, copy_header(c, &c->m));
    if (!st && !(c->part = malloc(PART_BYTES)))
        st = accel_fail_nomem(c->err, "a part of a tensor", PART_BYTES);
    for (int f = 0; f < c->x->shards && !st; f++)
        st = copy_file(c, f);
    ACCEL_TRY(st, ckpt_manifest_sort(&c->m, c->err));
    ACCEL_TRY(st, ckpt_manifest_check(&c->m, A0815, c->err));
    ACCEL_TRY(st, ckpt_manifest_format(&c->m, -1, &text, c->err));
    ACCEL_TRY(st, copy_is_new(c));
    ACCEL_TRY(st, ckpt_commit_publish(&c->commit, &text, c->err));
    strbuf_free(&text);
    return st;
}

accel_status_t ckpt_copy(const struct ckpt_copy *x, accel_error_t *err)
{
    struct copy c = { .x = x,
                      .commit = { .rootfd = -1, .tmpfd = -1, .run_id = x->run_id },
                      .err = err };
    const bool there = access(x->root, F_OK) == 0;
    char owner[64];
    sigset_t before;
    accel_status_t st;

    if (x->shards < 1 || x->shards > CKPT_WORLD_MAX)
        return accel_fail(err, A0815, "give 1 to 99999",
                          "a checkpoint cannot have %d files", x->shards);
    snprintf(owner, sizeof(owner), "local.%ld", (long)getpid());
    st = ckpt_commit_begin(&c.commit, x->root, x->step, owner, bytes_needed(x), err);
    file_limit_hold(&before);
    ACCEL_TRY(st, copy_all(&c));
    file_limit_release(&before);
    if (st)
        ckpt_commit_abandon(&c.commit);
    /* what was made for it goes again, unless somebody else has put something there */
    if (st && !there)
        (void)rmdir(x->root);
    ckpt_commit_close(&c.commit);
    ckpt_manifest_free(&c.m);
    free(c.part);
    return st;
}

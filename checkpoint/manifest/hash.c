/* SPDX-License-Identifier: Apache-2.0
 *
 * Hashes: xxh3-128 of each piece of a box, and of a file's bytes outside boxes. The
 * seed is the box's identity, so that a right piece in the wrong place does not pass.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "manifest/ckpt_manifest.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"

/* Everything that says which bytes these are. Part of the format: an entry added here
 * makes every older checkpoint look damaged. */
uint64_t ckpt_box_seed(const struct ckpt_manifest *m, const struct ckpt_mbox *b)
{
    const struct ckpt_tensor *t = &m->tensor[b->tensor];
    /* step, kind, dtype, ndim, then global shape, offset and shape, zero-padded */
    int64_t id[4 + 3 * ACCEL_CKPT_MAX_DIMS] = { m->step, t->blob, t->dtype, t->ndim };
    int64_t *dims = id + 4;

    for (int d = 0; d < t->ndim; d++) {
        dims[d] = t->shape[d];
        dims[ACCEL_CKPT_MAX_DIMS + d] = b->offset[d];
        dims[2 * ACCEL_CKPT_MAX_DIMS + d] = b->shape[d];
    }
    return XXH3_64bits_withSeed(id, sizeof(id), XXH3_64bits(t->name, strlen(t->name)));
}

/* The index goes into the seed, so that two exchanged pieces of a box are found. */
struct ckpt_hash ckpt_piece_hash(uint64_t seed, size_t index, const void *data,
                                 size_t bytes)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(data, bytes, seed + index);

    return (struct ckpt_hash){ h.high64, h.low64 };
}

uint64_t ckpt_run_hash(const char *run_id)
{
    return XXH3_64bits(run_id, strlen(run_id));
}

int64_t ckpt_piece_bytes(const struct ckpt_mbox *b, size_t index)
{
    int64_t rest = b->bytes - (int64_t)index * CKPT_PIECE_BYTES;

    return rest < CKPT_PIECE_BYTES ? rest : CKPT_PIECE_BYTES;
}

bool ckpt_hash_equal(struct ckpt_hash a, struct ckpt_hash b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* The hashes of pieces know the step and the boxes, and those of files their layout. */
uint64_t ckpt_manifest_digest(const struct ckpt_manifest *m)
{
    uint64_t h = m->pieces ? XXH3_64bits(m->piece, m->pieces * sizeof(*m->piece)) : 0;

    for (int f = 0; f < m->world; f++)
        h = XXH3_64bits_withSeed(&m->file[f].meta, sizeof(m->file[f].meta), h);
    return h;
}

/* Feeds bytes [at, end) of fd to the hash, through
 * buf[CKPT_PIECE_BYTES]. -1 with errno. */
static int feed(XXH3_state_t *state, int fd, int64_t at, int64_t end, void *buf)
{
    while (at < end) {
        size_t want =
            end - at < CKPT_PIECE_BYTES ? (size_t)(end - at) : CKPT_PIECE_BYTES;
        ssize_t got = pread_all(fd, buf, want, at);

        if (got != (ssize_t)want) {
            if (got >= 0)
                /* shorter than it was when it was opened */
                errno = ENODATA;
            return -1;
        }
        XXH3_128bits_update(state, buf, want);
        at += (int64_t)want;
    }
    return 0;
}

/* The gaps between boxes in file order, the last one up to the end of the file.
 * The seed holds the file's name and the step: HDF5 structures of another rank
 * or step do not pass. */
accel_status_t ckpt_meta_hash(const struct ckpt_manifest *m, int f, int fd,
                              const size_t *order, size_t count,
                              struct ckpt_hash *hash_out, accel_error_t *err)
{
    const struct ckpt_file *file = &m->file[f];
    XXH3_state_t *state = XXH3_createState();
    void *buf = malloc(CKPT_PIECE_BYTES);
    accel_status_t st = ACCEL_OK;
    int64_t at = 0;
    XXH128_hash_t h;

    if (!state || !buf) {
        st = accel_fail_nomem(err, "hashing", CKPT_PIECE_BYTES);
        goto hash_out;
    }
    XXH3_128bits_reset_withSeed(state, XXH3_64bits(file->name, strlen(file->name)) +
                                           (uint64_t)m->step);
    for (size_t i = 0; i <= count && !st; i++) {
        int64_t end = i < count ? m->box[order[i]].at : file->bytes;

        if (feed(state, fd, at, end, buf))
            st = ckpt_fail_access(err, file->name, "cannot read", errno);
        at = i < count ? end + m->box[order[i]].bytes : end;
    }
    h = XXH3_128bits_digest(state);
    *hash_out = (struct ckpt_hash){ h.high64, h.low64 };
hash_out:
    XXH3_freeState(state);
    free(buf);
    return st;
}

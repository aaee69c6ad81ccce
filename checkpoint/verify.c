/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ckpt_verify: reads every byte of every file and checks every hash; goes on after a
 * finding, so that all damage is named. Changes nothing.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt_internal.h"

struct findings {
    void (*report)(void *user, const char *line);
    void *user;
    size_t count;
    accel_error_t *err; /* gets the first */
};

static void finding(struct findings *f, const accel_error_t *e)
{
    char line[1100];

    snprintf(line, sizeof(line), "%s%s%s", e->where, e->where[0] ? ": " : "", e->text);
    if (f->report)
        f->report(f->user, line);
    if (f->count++ == 0 && f->err)
        *f->err = *e;
}

static void check_box(accel_ckpt_t *c, const struct ckpt_mbox *b, char *buf,
                      struct findings *f)
{
    uint64_t seed = ckpt_box_seed(&c->m, b);
    accel_error_t e = { 0 };

    for (size_t k = 0; k < b->pieces; k++) {
        size_t bytes = (size_t)ckpt_piece_bytes(b, k);
        ssize_t got = ckpt_pread_all(c->fd[b->file], buf, bytes,
                                     b->at + (int64_t)k * CKPT_PIECE_BYTES);

        if (got == (ssize_t)bytes &&
            ckpt_hash_equal(ckpt_piece_hash(seed, k, buf, bytes),
                            c->m.piece[b->piece + k]))
            continue;
        if (got < 0)
            accel_fail_at(&e, ACCEL_EIO, c->m.file[b->file].name, "check the disk",
                          "tensor %s: read: %m", c->m.tensor[b->tensor].name);
        else
            ckpt_fail_damaged(c, b, &e);
        finding(f, &e);
        return;
    }
}

static void check_file(accel_ckpt_t *c, int file, char *buf, struct findings *f)
{
    size_t first = c->file_first[file], count = c->file_first[file + 1] - first;
    struct ckpt_hash h = { 0 };
    accel_error_t e = { 0 };

    posix_fadvise(c->fd[file], 0, 0, POSIX_FADV_SEQUENTIAL);
    for (size_t i = first; i < first + count; i++)
        check_box(c, &c->m.box[c->by_place[i]], buf, f);
    if (ckpt_meta_hash(&c->m, file, c->fd[file], c->by_place + first, count, &h, &e)) {
        finding(f, &e);
    } else if (!ckpt_hash_equal(h, c->m.file[file].meta)) {
        char where[256];

        snprintf(where, sizeof(where), "%.180s/%s", c->dir, c->m.file[file].name);
        accel_fail_at(&e, ACCEL_ECORRUPT, where,
                      "the data may be whole, HDF5 tools will not read them",
                      "the HDF5 structures around the tensors do not match their hash");
        finding(f, &e);
    }
}

accel_status_t accel_ckpt_verify(const char *dir,
                                 void (*report)(void *user, const char *line),
                                 void *user, accel_error_t *err)
{
    struct findings f = { report, user, 0, err };
    accel_ckpt_t *c = NULL;
    accel_error_t e = { 0 };
    char *buf = malloc(CKPT_PIECE_BYTES);
    accel_status_t s;

    if (!buf)
        return accel_fail_nomem(err, "verifying", CKPT_PIECE_BYTES);
    s = ckpt_open_at(&c, AT_FDCWD, dir, dir, &e);
    if (s)
        finding(&f, &e);
    for (int i = 0; !s && i < c->m.world; i++)
        check_file(c, i, buf, &f);
    accel_ckpt_close(c);
    free(buf);
    if (s)
        return s;
    return f.count ? ACCEL_ECORRUPT : ACCEL_OK;
}

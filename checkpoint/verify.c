/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ckpt_verify: reads every byte of every file and checks every hash; goes on after a
 * finding, so that all damage is named. Changes nothing.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt_internal.h"

struct findings {
    void (*report)(void *user, const char *line);
    void *user;
    size_t count;
    accel_error_t *err; /* gets the first */
};

static void finding(void *user, const accel_error_t *e)
{
    struct findings *f = user;
    char line[1100];

    snprintf(line, sizeof(line), "%s%s%s", e->where, e->where[0] ? ": " : "", e->text);
    if (f->report)
        f->report(f->user, line);
    if (f->count++ == 0 && f->err)
        *f->err = *e;
}

static void check_file(accel_ckpt_t *c, int file, struct findings *f)
{
    size_t first = c->file_first[file], count = c->file_first[file + 1] - first;
    struct ckpt_hash h = { 0 };
    accel_error_t e = { 0 };
    accel_status_t s;
    int fd;

    if (ckpt_verify_file(c, file, finding, f, &e))
        finding(f, &e);
    if (ckpt_open_shard(c, file, &fd, &e)) {
        finding(f, &e);
        return;
    }
    s = ckpt_meta_hash(&c->m, file, fd, c->by_place + first, count, &h, &e);
    close(fd);
    if (s) {
        finding(f, &e);
    } else if (!ckpt_hash_equal(h, c->m.file[file].meta)) {
        char where[256];

        snprintf(where, sizeof(where), "%.180s/%s", c->dir, c->m.file[file].name);
        accel_fail_at(&e, A0809, where,
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
    accel_status_t s = ckpt_open_at(&c, AT_FDCWD, dir, dir, &e);
    if (s)
        finding(&f, &e);
    for (int i = 0; !s && i < c->m.world; i++)
        check_file(c, i, &f);
    accel_ckpt_close(c);
    if (s)
        return s;
    return f.count ? ACCEL_ECORRUPT : ACCEL_OK;
}

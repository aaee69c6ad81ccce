/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ckpt_verify reads every byte of every file and checks every hash; it goes on
 * after a finding, so that all damage is named. accel_ckpt_verify_hdf5 does the same
 * for the HDF5 structures, through libhdf5. A checkpoint that is removed meanwhile is
 * not damaged. Changes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt_internal.h"

/* Where findings go, and what they amount to. */
struct findings {
    void (*report)(void *user, accel_status_t what, const char *line);
    void *user;
    size_t count;
    /* at least one of them is proven damage */
    bool damaged;
    /* the checkpoint's directory; -1: do not look whether it is gone */
    int dirfd;
    /* its path when it was opened */
    char path[PATH_MAX];
    /* the directory was removed or replaced: findings end here */
    bool gone;
    /* gets the first damage, else the first finding; never NULL */
    accel_error_t *err;
};

/* Is the directory no longer at its path? The path is resolved once, so a link
 * that leads elsewhere by now does not count. Retention may delete a checkpoint
 * while it is verified. */
static bool is_gone(const struct findings *f)
{
    struct stat held, named;

    if (f->dirfd < 0 || !f->path[0] || fstat(f->dirfd, &held))
        return false;
    return stat(f->path, &named) || held.st_dev != named.st_dev ||
           held.st_ino != named.st_ino;
}

/* Counts and reports a finding, unless the directory is gone. */
static void finding(void *user, const accel_error_t *e)
{
    struct findings *f = user;
    bool damage = e->code == ACCEL_ECORRUPT;
    char line[1100];

    f->gone = f->gone || is_gone(f);
    if (f->gone)
        return;
    snprintf(line, sizeof(line), "%s%s%s", e->where, e->where[0] ? ": " : "", e->text);
    if (f->report)
        f->report(f->user, e->code, line);
    if (f->err && (f->count == 0 || (damage && !f->damaged)))
        *f->err = *e;
    f->damaged = f->damaged || damage;
    f->count++;
}

/* One file: its boxes, then the bytes around them. */
static void check_file(accel_ckpt_t *c, int file, struct findings *f)
{
    size_t first = c->file_first[file], count = c->file_first[file + 1] - first;
    struct ckpt_hash h = { 0 };
    accel_error_t e = { 0 };
    accel_status_t st;
    int fd;

    if (ckpt_verify_file(c, file, finding, f, &e))
        finding(f, &e);
    if (ckpt_open_shard(c, file, &fd, &e)) {
        finding(f, &e);
        return;
    }
    st = ckpt_meta_hash(&c->m, file, fd, c->by_place + first, count, &h, &e);
    close(fd);
    if (st) {
        finding(f, &e);
    } else if (!ckpt_hash_equal(h, c->m.file[file].meta)) {
        char where[256];

        snprintf(where, sizeof(where), "%.180s/%s", c->dir, c->m.file[file].name);
        accel_fail_at(&e, A0809, where,
                      "the data may be intact, but HDF5 tools cannot read it",
                      "the HDF5 structures around the tensors do not match their hash");
        finding(f, &e);
    }
}

/* The result. `st`: why nothing could be looked at. Findings from before the directory
 * was gone still count. */
static accel_status_t conclude(const struct findings *f, accel_status_t st,
                               const char *dir)
{
    if (f->gone && !f->count)
        return accel_fail_at(
            f->err, A0843, dir, "verify one that no run is replacing",
            "the checkpoint was removed or replaced during verification");
    if (st)
        return st;
    return f->damaged ? ACCEL_ECORRUPT : f->count ? f->err->code : ACCEL_OK;
}

/* The directory is held open from the start, to notice its removal. */
accel_status_t accel_ckpt_verify(const char *dir,
                                 void (*report)(void *user, accel_status_t what,
                                                const char *line),
                                 void *user, accel_error_t *err)
{
    accel_error_t e = { 0 }, first = { 0 };
    struct findings f = { .report = report, .user = user, .err = err ? err : &first };
    accel_ckpt_t *c = NULL;
    accel_status_t st;

    f.dirfd = TEMP_FAILURE_RETRY(open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (f.dirfd >= 0)
        ckpt_path_of(f.dirfd, f.path, sizeof(f.path));
    st = ckpt_open_at(&c, AT_FDCWD, dir, dir, &e);
    if (st == ACCEL_ENOENT && f.dirfd < 0) { /* nothing that could be damaged */
        if (err)
            *err = e;
    } else if (st) {
        finding(&f, &e);
    }
    for (int i = 0; !st && i < c->m.world && !f.gone; i++)
        check_file(c, i, &f);
    accel_ckpt_close(c);
    if (f.dirfd >= 0)
        close(f.dirfd);
    return conclude(&f, st, dir);
}

/* accel_ckpt_verify_hdf5's report has no status: as_line adapts it */
struct lines {
    void (*report)(void *user, const char *line);
    void *user;
};

static void as_line(void *user, accel_status_t what, const char *line)
{
    const struct lines *l = user;

    (void)what;
    if (l->report)
        l->report(l->user, line);
}

accel_status_t accel_ckpt_verify_hdf5(const accel_ckpt_t *c, int file,
                                      void (*report)(void *user, const char *line),
                                      void *user, accel_error_t *err)
{
    struct lines lines = { report, user };
    accel_error_t first = { 0 };
    struct findings f = {
        .report = as_line, .user = &lines, .dirfd = -1, .err = err ? err : &first
    };
    accel_status_t st;

    if (file < 0 || file >= c->m.world)
        return accel_fail_at(err, A0815, c->dir, "see accel_ckpt.h",
                             "accel_ckpt_verify_hdf5: there is no file %d", file);
    st = ckpt_h5_compare(c, file, finding, &f, err);
    return conclude(&f, st, c->dir);
}

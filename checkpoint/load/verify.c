/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_ckpt_verify reads every byte of every file and checks every hash; it continues
 * after a finding, so that all damage is named. accel_ckpt_verify_hdf5 does the same
 * for the HDF5 structures, through libhdf5. A checkpoint that is removed meanwhile is
 * not damaged, and a file that is not the checkpoint's is not looked into. Changes
 * nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "hdf5/ckpt_hdf5.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"
#include "ckpt_tools.h"

/* Where findings go, and what they amount to. */
struct findings {
    ckpt_report_f *report;
    void *user;
    /* bytes read, and all there are; NULL: nothing is counted */
    const struct ckpt_check *check;
    int64_t done, total;
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

static bool advance(void *user, int64_t bytes)
{
    struct findings *f = user;
    const struct ckpt_check *x = f->check;

    f->done += bytes;
    if (x->progress)
        x->progress(x->user, x->name, f->done, f->total);
    return true;
}

/* One file: its boxes, then the bytes around them. */
void ckpt_check_file(accel_ckpt_t *c, int file, ckpt_finding_fn *finding,
                     bool (*advance)(void *user, int64_t bytes), void *user)
{
    size_t first = c->file_first[file], count = c->file_first[file + 1] - first;
    struct ckpt_hash h = { 0 };
    accel_error_t e = { 0 };
    accel_status_t st;
    int fd;

    if (ckpt_verify_file(c, file, finding, advance, user, &e))
        finding(user, &e);
    if (ckpt_open_shard(c, file, &fd, &e)) {
        finding(user, &e);
        return;
    }
    st = ckpt_meta_hash(&c->m, file, fd, c->by_place + first, count, &h, &e);
    close(fd);
    if (st) {
        finding(user, &e);
    } else if (!ckpt_hash_equal(h, c->m.file[file].meta)) {
        char where[256];

        snprintf(where, sizeof(where), "%.180s/%s", c->dir, c->m.file[file].name);
        accel_fail_at(&e, A0809, where,
                      "the data may be intact, but HDF5 tools cannot read it",
                      "the HDF5 structures around the tensors do not match their hash");
        finding(user, &e);
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

/* May a file of this name be there? */
static bool belongs(const accel_ckpt_t *c, const char *name)
{
    static const char *const others[] = { ".", "..", "MANIFEST", CKPT_INDEX,
                                          CKPT_INDEX_PART };

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(others); i++)
        if (strcmp(name, others[i]) == 0)
            return true;
    for (int i = 0; i < c->m.world; i++)
        if (strcmp(name, c->m.file[i].name) == 0)
            return true;
    return false;
}

/* Names what is in the directory and not the checkpoint's. */
static void find_strangers(const accel_ckpt_t *c, const struct ckpt_check *x,
                           struct findings *f)
{
    int fd =
        TEMP_FAILURE_RETRY(openat(c->dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    accel_error_t e = { 0 };
    struct dirent *entry;

    errno = d ? 0 : errno;
    while (d && (entry = readdir(d)) != NULL) {
        if (!belongs(c, entry->d_name)) {
            for (char *p = entry->d_name; *p; p++)
                if (*p < ' ' || *p > '~')
                    *p = '?';
            x->stranger(x->user, entry->d_name);
        }
        errno = 0;
    }
    if (errno) {
        ckpt_fail_access(&e, c->dir, "cannot list", errno);
        finding(f, &e);
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
}

/* The directory is held open from the start, to notice its removal. */
accel_status_t ckpt_check(const struct ckpt_check *x, accel_error_t *err)
{
    accel_error_t e = { 0 }, first = { 0 };
    struct findings f = {
        .report = x->report, .user = x->user, .check = x, .err = err ? err : &first
    };
    const char *dir = x->dir;
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
    for (int i = 0; !st && i < c->m.world; i++)
        f.total += c->m.file[i].bytes;
    for (int i = 0; !st && i < c->m.world && !f.gone; i++)
        ckpt_check_file(c, i, finding, advance, &f);
    if (!st && !f.gone && x->stranger)
        find_strangers(c, x, &f);
    accel_ckpt_close(c);
    if (f.dirfd >= 0)
        close(f.dirfd);
    return conclude(&f, st, dir);
}

accel_status_t accel_ckpt_verify(const char *dir, ckpt_report_f *report, void *user,
                                 accel_error_t *err)
{
    const struct ckpt_check x = { .dir = dir, .report = report, .user = user };

    return ckpt_check(&x, err);
}

accel_status_t accel_ckpt_verify_hdf5(const accel_ckpt_t *c, int file,
                                      ckpt_report_f *report, void *user,
                                      accel_error_t *err)
{
    accel_error_t first = { 0 };
    struct findings f = {
        .report = report, .user = user, .dirfd = -1, .err = err ? err : &first
    };
    accel_status_t st;

    if (file < 0 || file >= c->m.world)
        return accel_fail_at(err, A0815, c->dir, "see accel_ckpt.h",
                             "accel_ckpt_verify_hdf5: there is no file %d", file);
    st = ckpt_h5_compare(c, file, finding, &f, err);
    return conclude(&f, st, c->dir);
}

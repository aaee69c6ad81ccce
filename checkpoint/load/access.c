/* SPDX-License-Identifier: Apache-2.0
 *
 * Access to the files of a checkpoint: opens them one at a time for reading, and tells
 * lasting damage (a file is missing, cut, or no plain file) from failures that may pass
 * (no permission, no descriptor, an I/O error) and are worth another try. Writes
 * nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "manifest/ckpt_manifest.h"
#include "load/ckpt_load.h"
#include "ckpt_internal.h"
#include "common/plain_file.h"

/* The pauses before the tries are 20, 100 and 500 ms. A file system that is away for
 * longer needs a person. */
#define FIRST_PAUSE_MS 20
#define LONGER_BY      5

int ckpt_open_plain(int dirfd, const char *name)
{
    return plain_open(dirfd, name, O_RDONLY);
}

/* The split matters: a run falls back to an older checkpoint on damage only, so an
 * errno that may be temporary must never end up in A0807. */
accel_status_t ckpt_fail_access(accel_error_t *err, const char *where,
                                const char *doing, int error)
{
    const char *what = error == ELOOP         ? "the path is a symbolic link"
                       : error == ENOTDIR     ? "not a directory, or a symbolic link"
                       : error == EMEDIUMTYPE ? "not a regular file"
                       : error == ENODATA     ? "the file is truncated"
                                              : strerror(error);

    switch (error) {
    case ENOENT:
    case ELOOP:
    case ENOTDIR:
    case EMEDIUMTYPE:
    case ENODATA:
        return accel_fail_at(err, A0807, where, "use another checkpoint", "%s: %s",
                             doing, what);
    case EACCES:
    case EPERM:
        return accel_fail_at(err, A0832, where, "make it readable for you", "%s: %s",
                             doing, strerror(error));
    default:
        return accel_fail_at(err, A0810, where, "check the storage, then try again",
                             "%s: %s", doing, strerror(error));
    }
}

/* Always temporary or a matter of rights: a root that cannot be listed says nothing
 * about the checkpoints in it. */
accel_status_t ckpt_fail_root(accel_error_t *err, const char *root, const char *doing,
                              int error)
{
    return accel_fail_at(err, error == EACCES || error == EPERM ? A0832 : A0812, root,
                         "check accel.checkpoint.dir and its permissions", "%s: %s",
                         doing, strerror(error));
}

bool ckpt_may_pass(accel_status_t st)
{
    return st == ACCEL_EIO || st == ACCEL_EPERM || st == ACCEL_ENOMEM;
}

/* The pause grows with the tries that this thing has used, and `left` bounds the total
 * over all things that share it. */
bool ckpt_try_again(struct ckpt_tries *t)
{
    int64_t ms = FIRST_PAUSE_MS;
    struct timespec pause;

    if (t->left <= 0 || t->used >= CKPT_TRIES)
        return false;
    t->left--;
    for (int i = 0; i < t->used; i++)
        ms *= LONGER_BY;
    t->used++;
    pause = (struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    TEMP_FAILURE_RETRY(nanosleep(&pause, &pause));
    return true;
}

accel_status_t ckpt_read_file(int dirfd, const char *name, const char *where,
                              const char *missing, int64_t most, char **text_out,
                              size_t *len_out, accel_error_t *err)
{
    int fd = ckpt_open_plain(dirfd, name);
    accel_status_t st = ACCEL_OK;
    char *text = NULL;
    struct stat sb;
    ssize_t got;

    if (fd < 0)
        return ckpt_fail_access(err, where, errno == ENOENT ? missing : "cannot open",
                                errno);
    if (fstat(fd, &sb))
        st = ckpt_fail_access(err, where, "cannot stat", errno);
    else if (sb.st_size > most)
        st = accel_fail_at(err, A0808, where, "use another checkpoint",
                           "the file has more than %" PRId64 " bytes", most);
    if (!st) {
        text = calloc(1, (size_t)sb.st_size + 1);
        if (!text)
            st = accel_fail_nomem(err, "a file", (size_t)sb.st_size);
    }
    if (!st) {
        got = pread_all(fd, text, (size_t)sb.st_size, 0);
        if (got != sb.st_size)
            st = ckpt_fail_access(err, where, "cannot read", got < 0 ? errno : ENODATA);
    }
    close(fd);
    if (st) {
        free(text);
        return st;
    }
    *text_out = text;
    *len_out = (size_t)sb.st_size;
    return ACCEL_OK;
}

/* The size is compared on every open, so a file that was cut after the checkpoint was
 * opened is found before its bytes are hashed. */
accel_status_t ckpt_open_shard(const accel_ckpt_t *c, int file, int *fd_out,
                               accel_error_t *err)
{
    const struct ckpt_file *f = &c->m.file[file];
    accel_status_t st = ACCEL_OK;
    char where[300];
    struct stat sb;
    int fd;

    snprintf(where, sizeof(where), "%.200s/%s", c->dir, f->name);
    fd = ckpt_open_plain(c->dirfd, f->name);
    if (fd < 0)
        return ckpt_fail_access(err, where, "cannot open", errno);
    if (fstat(fd, &sb))
        st = ckpt_fail_access(err, where, "cannot stat", errno);
    else if (sb.st_size != f->bytes)
        st = accel_fail_at(err, A0807, where, "use another checkpoint",
                           "the file has %lld bytes, but the manifest says %" PRId64,
                           (long long)sb.st_size, f->bytes);
    if (st)
        close(fd);
    else
        *fd_out = fd;
    return st;
}

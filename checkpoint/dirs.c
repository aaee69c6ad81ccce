/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories: create the root, fsync, list, rename to trash, remove. Everything below
 * the root is reached by openat with O_NOFOLLOW; links are never followed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "load/ckpt_load.h"
#include "ckpt_internal.h"
#include "common/path_dir.h"

int ckpt_open_dir(int at, const char *name)
{
    return TEMP_FAILURE_RETRY(
        openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/* A full, failing or read-only disk, whatever call meets it: not a wrong path. */
bool ckpt_is_disk_error(int error)
{
    return error == EIO || error == ENOSPC || error == EDQUOT || error == EROFS;
}

/* `failed` is the longest part of the path that could not be made: the message names
 * that, not the whole. */
accel_status_t ckpt_make_root(const char *root, accel_error_t *err)
{
    char failed[sizeof(err->where)];
    size_t len = 0;
    int error = path_make_dirs(root, &len);

    if (!error)
        return ACCEL_OK;
    snprintf(failed, sizeof(failed), "%.*s", (int)len, root);
    if (ckpt_is_disk_error(error))
        return accel_fail_at(err, A0801, failed, "check the disk and the quota",
                             "cannot create the checkpoint directory: %s",
                             strerror(error));
    return accel_fail_at(
        err, A0803, failed,
        "check accel.checkpoint.dir and the permissions of its parent directories",
        "cannot create the checkpoint directory: %s", strerror(error));
}

accel_status_t ckpt_fsync(int fd, const char *what, accel_error_t *err)
{
    /* Only EINTR is worth another try: after any other error the kernel may have
     * dropped the data, and a second fsync would lie. */
    if (TEMP_FAILURE_RETRY(fsync(fd)))
        return accel_fail_at(err, A0801, what, "check the disk and the quota",
                             "fsync: %m");
    return ACCEL_OK;
}

/* Removes a file of ours or a leftover of one. Gone already is fine: another job may be
 * deleting the same trash. */
static int remove_entry(int fd, const char *name)
{
    return TEMP_FAILURE_RETRY(unlinkat(fd, name, 0)) && errno != ENOENT ? -1 : 0;
}

/* One level deep, as checkpoints are: a directory in it stays, and makes
 * the last unlinkat fail. */
int ckpt_remove_dir(int rootfd, const char *name)
{
    int fd = ckpt_open_dir(rootfd, name), r = 0;
    struct dirent *e;
    DIR *d;

    /* One that cannot be opened may still be empty. */
    if (fd < 0)
        return errno == ENOENT ? 0 : unlinkat(rootfd, name, AT_REMOVEDIR);
    /* First, so that a half-deleted checkpoint never looks complete. */
    r |= remove_entry(fd, "MANIFEST");
    d = fdopendir(fd);
    if (!d) {
        close(fd);
        return -1;
    }
    while ((e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            r |= remove_entry(fd, e->d_name);
    closedir(d);
    if (TEMP_FAILURE_RETRY(unlinkat(rootfd, name, AT_REMOVEDIR)) && errno != ENOENT)
        r = -1;
    return r;
}

/* The rename takes the checkpoint away at once; deleting gigabytes may be interrupted,
 * and then the trash is left to the next save. */
static int rename_and_remove(int rootfd, const char *name)
{
    char trash[CKPT_DIR_MAX + 32];

    for (int i = 0; i < 1000; i++) {
        snprintf(trash, sizeof(trash), ".trash-%s.%d", name + (name[0] == '.'), i);
        /* Onto an existing, non-empty directory rename fails: take the next number. */
        if (TEMP_FAILURE_RETRY(renameat(rootfd, name, rootfd, trash)) == 0)
            return ckpt_remove_dir(rootfd, trash);
        if (errno != ENOTEMPTY && errno != EEXIST)
            break;
    }
    return -1;
}

/* Takes the lock for a moment to find out. A directory that cannot be opened
 * has an unknown owner. */
bool ckpt_is_locked(int rootfd, const char *name, bool unknown)
{
    int fd = ckpt_open_dir(rootfd, name);
    bool locked = unknown;

    if (fd < 0)
        return unknown;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        locked = false;
    else if (errno == EWOULDBLOCK)
        locked = true;
    close(fd);
    return locked;
}

/* The lock tells other jobs that this one is deleting. */
int ckpt_trash(int rootfd, const char *name)
{
    int fd = ckpt_open_dir(rootfd, name), r;

    if (fd >= 0)
        flock(fd, LOCK_EX | LOCK_NB);
    r = rename_and_remove(rootfd, name);
    if (fd >= 0)
        close(fd);
    return r;
}

void ckpt_step_name(char name_out[64], int64_t step)
{
    snprintf(name_out, 64, "step_%08" PRId64, step);
}

/* Only the canonical spelling counts: step_7 and step_000000007 are not names of step
 * 7, and neither is step_00000007.aside-... */
int64_t ckpt_step_of_name(const char *name)
{
    char canonical[64];
    int64_t step = 0;
    const char *p = name;

    if (strncmp(p, "step_", 5) != 0)
        return -1;
    for (p += 5; *p; p++) {
        if (*p < '0' || *p > '9' || step > CKPT_STEP_MAX / 10)
            return -1;
        step = step * 10 + (*p - '0');
    }
    ckpt_step_name(canonical, step);
    return strcmp(canonical, name) == 0 ? step : -1;
}

/* A path that fills the buffer may have been cut, which would be
 * another path: "" then. */
void ckpt_path_of(int dirfd, char *buf, size_t len)
{
    char self[64];
    ssize_t n;

    snprintf(self, sizeof(self), "/proc/self/fd/%d", dirfd);
    n = readlink(self, buf, len - 1);
    buf[n > 0 && (size_t)n < len - 1 ? n : 0] = '\0'; /* cut: another path */
}

/* Someone who copies or renames a checkpoint must not make a run resume at
 * the wrong step. Directories not called step_... are exempt: a person may
 * open a copy of any name. */
accel_status_t ckpt_check_name(int dirfd, int64_t step, const char *shown,
                               accel_error_t *err)
{
    char path[PATH_MAX];
    const char *slash;
    int64_t named;

    ckpt_path_of(dirfd, path, sizeof(path));
    slash = strrchr(path, '/');
    named = slash ? ckpt_step_of_name(slash + 1) : -1;
    if (named < 0 || named == step)
        return ACCEL_OK;
    return accel_fail_at(
        err, A0808, shown, "rename it to its original name",
        "the manifest is for step %" PRId64 ": the directory was renamed", step);
}

accel_status_t ckpt_list_names(int rootfd, const char *prefix,
                               char (**names_out)[CKPT_DIR_MAX], size_t *count_out,
                               accel_error_t *err)
{
    /* A second descriptor, because the position of a directory stream is shared. */
    int fd = ckpt_open_dir(rootfd, ".");
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    char(*names)[CKPT_DIR_MAX] = NULL;
    accel_status_t st = ACCEL_OK;
    size_t n = 0;

    if (!d) {
        st = ckpt_fail_root(err, NULL, "cannot list the directory", errno);
        if (fd >= 0)
            close(fd);
        return st;
    }
    for (;;) {
        char(*grown)[CKPT_DIR_MAX];
        struct dirent *e;

        errno = 0;
        e = readdir(d);
        if (!e) {
            /* A list that breaks off would hide what is newest. */
            if (errno)
                st = ckpt_fail_root(err, NULL, "cannot list the directory", errno);
            break;
        }
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0 ||
            strlen(e->d_name) >= CKPT_DIR_MAX)
            continue;
        grown = realloc(names, (n + 1) * sizeof(*names));
        if (!grown) {
            st = accel_fail_nomem(err, "a directory list", (n + 1) * sizeof(*names));
            break;
        }
        names = grown;
        strcpy(names[n++], e->d_name);
    }
    closedir(d);
    if (st) {
        free(names);
        return st;
    }
    *names_out = names;
    *count_out = n;
    return ACCEL_OK;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Deleting by hand beside no run: the lock that a run holds while it saves into a root.
 * In: the root. Out: the lock, with a line that names the tool to a run which starts
 * meanwhile, or an error that names its holder.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "retention/ckpt_retention.h"
#include "ckpt_internal.h"
#include "ckpt_tools.h"
#include "common/path_dir.h"
#include "common/plain_file.h"

/* The error when a run holds the lock fd. Somebody else wrote its line, so it is made
 * printable. */
static accel_status_t held_by(const char *root, int fd, accel_error_t *err)
{
    char holder[200];
    ssize_t n = pread_all(fd, holder, sizeof(holder) - 1, 0);

    holder[n > 0 ? n : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    for (char *c = holder; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return accel_fail_at(err, A0822, root,
                         "wait for that run, which keeps what its config says, or "
                         "cancel it",
                         "another run is using this directory: %s",
                         holder[0] ? holder : "the lock does not say which");
}

/* Best effort: a run that starts meanwhile then knows whom it waits for. */
static void sign(int fd)
{
    char host[128] = "?", line[200];
    int len;

    gethostname(host, sizeof(host) - 1);
    len = snprintf(line, sizeof(line), ACCEL_CKPT_TOOL " on %s, process %ld\n", host,
                   (long)getpid());
    if (pwrite(fd, line, (size_t)len, 0) == len && ftruncate(fd, len) != 0)
        return;
}

/* Without a lock file, or on a file system without locks, no run can be asked. */
static accel_status_t take_lock(const char *root, int rootfd, int *lease_out,
                                accel_error_t *err)
{
    int fd = plain_open(rootfd, ".lock", O_RDWR);
    accel_status_t st;

    if (fd < 0 && errno == ENOENT)
        return ACCEL_OK;
    if (fd < 0)
        return accel_fail_at(err, A0846, root, "check the permissions of .lock",
                             "cannot open .lock: %s", plain_error(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        sign(fd);
    } else if (errno == EWOULDBLOCK) {
        st = held_by(root, fd, err);
        close(fd);
        return st;
    }
    *lease_out = fd;
    return ACCEL_OK;
}

accel_status_t ckpt_lease_open(const char *root, bool dry_run, int *rootfd_out,
                               int *lease_out, accel_error_t *err)
{
    accel_status_t st;

    *rootfd_out = *lease_out = -1;
    st = path_open_dir(root, rootfd_out, err);
    if (!st && *rootfd_out < 0)
        st = accel_fail_at(err, A0812, root, "check the directory", "cannot open: %m");
    return st || dry_run ? st : take_lock(root, *rootfd_out, lease_out, err);
}

accel_status_t ckpt_remove(const char *dir, accel_error_t *err)
{
    char *path = realpath(dir, NULL), *slash = path ? strrchr(path, '/') : NULL;
    int rootfd = -1, lease = -1;
    accel_status_t st;

    if (!slash || slash == path) {
        free(path);
        return accel_fail_at(err, A0846, dir, "remove it manually",
                             "cannot delete the checkpoint: it is no directory in "
                             "another one");
    }
    *slash = '\0';
    st = ckpt_lease_open(path, false, &rootfd, &lease, err);
    if (!st && ckpt_trash(rootfd, slash + 1) != 0)
        st = accel_fail_at(err, A0846, dir, "remove it manually",
                           "cannot delete the checkpoint: %m");
    if (lease >= 0)
        close(lease);
    if (rootfd >= 0)
        close(rootfd);
    free(path);
    return st;
}

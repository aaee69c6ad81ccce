/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories that a run writes into: makes them durably and opens them; somebody
 * else's link to one is refused. Never prints, never changes a file.
 */
#include "common/path_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

accel_status_t path_open_dir(const char *path, int *fd_out, accel_error_t *err)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    char name
        [PATH_MAX]; /* no trailing slash: with one, O_NOFOLLOW would follow a link */
    size_t len = strlen(path);
    struct stat st;

    *fd_out = -1;
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len >= sizeof(name)) {
        errno = ENAMETOOLONG;
        return ACCEL_OK;
    }
    memcpy(name, path, len);
    name[len] = '\0';
    *fd_out = TEMP_FAILURE_RETRY(open(name, flags | O_NOFOLLOW));
    if (*fd_out >= 0 || (errno != ENOTDIR && errno != ELOOP) || lstat(name, &st) != 0)
        return ACCEL_OK;
    if (!S_ISLNK(st.st_mode)) {
        errno = ENOTDIR;
        return ACCEL_OK;
    }
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return accel_fail_at(
            err, A0208, name,
            "give the path of the directory itself, or remove the link",
            "the directory is a symbolic link owned by uid %u, who is neither root nor "
            "you; accel does not write through it",
            (unsigned)st.st_uid);
    /* A trusted user's link may be followed. It can be swapped now only by someone who
     * may write to the directory around it, and who is trusted with that. */
    *fd_out = TEMP_FAILURE_RETRY(open(name, flags));
    return ACCEL_OK;
}

/* Opens the directory that contains `path`, whose last component begins at `leaf`.
 * -1 with errno. */
static int open_above(const char *path, const char *leaf)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    char above[PATH_MAX];
    size_t len = (size_t)(leaf - path);

    if (len == 0)
        return TEMP_FAILURE_RETRY(open(".", flags));
    memcpy(above, path, len);
    above[len] = '\0';
    return TEMP_FAILURE_RETRY(open(above, flags));
}

/* Makes the name of a new file or directory durable. It is an entry of the directory
 * above, which must be synced; if that may be written to but not read, it cannot be
 * opened, and the whole file system is synced instead. Returns 0, or errno. */
static int sync_name(const char *path, const char *leaf)
{
    int fd = open_above(path, leaf), error = 0;
    bool above = fd >= 0;

    if (!above && errno == EACCES)
        /* not for reading: a fifo would wait for its other end */
        fd = TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (fd < 0)
        return errno;
    if (TEMP_FAILURE_RETRY(above ? fsync(fd) : syncfs(fd)))
        error = errno;
    close(fd);
    return error;
}

int path_sync_name(const char *path)
{
    size_t leaf = strlen(path);

    while (leaf > 0 && path[leaf - 1] == '/')
        leaf--;
    while (leaf > 0 && path[leaf - 1] != '/')
        leaf--;
    return leaf < PATH_MAX ? sync_name(path, path + leaf) : ENAMETOOLONG;
}

/* mkdir, durable. A directory that cannot be made durable is removed: the next
 * try would find it and take it for an old one. One that exists is fine. Returns
 * 0, or errno. */
static int make_dir(const char *path, const char *leaf)
{
    int error;

    if (TEMP_FAILURE_RETRY(mkdir(path, 0777)))
        return errno == EEXIST ? 0 : errno;
    error = sync_name(path, leaf);
    if (error)
        rmdir(path);
    return error;
}

int path_make_dirs(const char *path, size_t *failed_len_out)
{
    size_t len = strlen(path), end = 0;
    char name[PATH_MAX];

    if (len == 0 || len >= sizeof(name)) {
        *failed_len_out = len;
        return len ? ENAMETOOLONG : ENOENT;
    }
    memcpy(name, path, len + 1);
    while (end < len) {
        size_t leaf = end + strspn(path + end, "/");
        int error;

        end = leaf + strcspn(path + leaf, "/");
        if (end == leaf)
            break; /* slashes at the end */
        name[end] = '\0';
        error = make_dir(name, name + leaf);
        name[end] = path[end];
        if (error) {
            *failed_len_out = end;
            return error;
        }
    }
    return 0;
}

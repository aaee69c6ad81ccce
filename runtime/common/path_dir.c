/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a directory that a run writes into; somebody else's link to one is refused. Never
 * prints, never changes a file.
 */
#include "common/path_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

accel_status_t path_open_dir(const char *path, int *fd_out, accel_error_t *err)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    char name[PATH_MAX]; /* without the slash behind, which would follow a link */
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
            "name the directory that you mean itself, or remove the link",
            "the directory is a link of uid %u, who is neither root nor "
            "you; nothing is written behind it",
            (unsigned)st.st_uid);
    /* Whoever may exchange it now owns the directory around it, and is trusted with it. */
    *fd_out = TEMP_FAILURE_RETRY(open(name, flags));
    return ACCEL_OK;
}

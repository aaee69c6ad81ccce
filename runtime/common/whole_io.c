/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole reads and writes, and lines at the end of a file, whole or not at all.
 */
#include "common/whole_io.h"
#include "common/common.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

int pwrite_all(int fd, const void *data, size_t bytes, int64_t at)
{
    const char *p = data;

    while (bytes > 0) {
        ssize_t n = pwrite(fd, p, bytes, at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            /* pwrite of more than 0 bytes should never return 0;
             * do not spin if it does */
            if (n == 0)
                errno = EIO;
            return -1;
        }
        p += n;
        at += n;
        bytes -= (size_t)n;
    }
    return 0;
}

ssize_t pread_all(int fd, void *data, size_t bytes, int64_t at)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t n = pread(fd, (char *)data + done, bytes - done, at + (int64_t)done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        /* end of the file: the caller compares the count */
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

/* A write of 0 bytes would loop for ever; it counts as EIO. */
int line_write(int fd, const char *buf, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, buf, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        buf += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Cutting needs no room, so it works where writing did not. */
int line_cut(int fd, int64_t at)
{
    struct stat sb;

    if (fstat(fd, &sb) != 0)
        return errno;
    if (sb.st_size <= at) /* nothing got there, or somebody else cut more */
        return 0;
    return ftruncate(fd, at) == 0 ? 0 : errno;
}

/* SIGXFSZ is held meanwhile: at the limit of file sizes the write fails with EFBIG
 * instead of killing the process. */
int line_append(int fd, const char *line, size_t len, int64_t *torn_at_out)
{
    struct stat sb;
    sigset_t before;
    int error;

    *torn_at_out = -1;
    if (fstat(fd, &sb) != 0)
        return errno;
    file_limit_hold(&before);
    error = line_write(fd, line, len);
    if (error && line_cut(fd, sb.st_size) != 0)
        *torn_at_out = sb.st_size;
    file_limit_release(&before);
    return error;
}

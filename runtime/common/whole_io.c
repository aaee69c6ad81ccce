/* SPDX-License-Identifier: Apache-2.0 */
#include "common/whole_io.h"

#include <errno.h>
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

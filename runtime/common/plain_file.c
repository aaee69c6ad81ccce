/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of a run, which must be regular: plain_file.h. In: names. Out: descriptors, or
 * the end of a file. Never prints, never changes a file.
 */
#include "common/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/whole_io.h"

/* O_NONBLOCK: opening a fifo must not wait for its other end; on a regular file it
 * changes nothing. ENXIO: a socket, or a fifo that nobody reads. */
int plain_open(int at, const char *name, int flags)
{
    const int safe = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    struct stat sb;
    int fd = TEMP_FAILURE_RETRY(openat(at, name, flags | safe, 0666)), error;

    if (fd < 0) {
        if (errno == ENXIO)
            errno = EMEDIUMTYPE;
        return -1;
    }
    error = fstat(fd, &sb) ? errno : S_ISREG(sb.st_mode) ? 0 : EMEDIUMTYPE;
    if (!error)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

const char *plain_error(int error)
{
    return error == ELOOP         ? "it is a symbolic link"
           : error == EMEDIUMTYPE ? "it is not a regular file"
                                  : strerror(error);
}

int plain_tail(int at, const char *name, size_t most, char **text_out, size_t *len_out)
{
    int fd = plain_open(at, name, O_RDONLY), error = 0;
    struct stat sb = { 0 };
    size_t want = 0;
    ssize_t n = 0;
    char *text;

    if (fd < 0 && errno != ENOENT)
        return errno;
    if (fd >= 0 && fstat(fd, &sb))
        error = errno;
    want = sb.st_size > (off_t)most ? most : (size_t)sb.st_size;
    text = calloc(want + 1, 1);
    if (!text)
        error = ENOMEM;
    if (!error && fd >= 0)
        n = pread_all(fd, text, want, sb.st_size - (off_t)want);
    if (n < 0)
        error = errno;
    if (fd >= 0)
        close(fd);
    if (error) {
        free(text);
        return error;
    }
    *text_out = text;
    *len_out = (size_t)n;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a tokenizer: a path in, its text out. Follows nothing but regular files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data_impl.h"
#include "data/tokenizer_json.h"

enum { FILE_MAX_BYTES = 256 << 20 };

accel_status_t tokenizer_read_file(const char *path, char **text_out, size_t *bytes_out,
                                   accel_error_t *err)
{
    struct data_file f = { .path = (char *)path };
    struct stat sb;
    accel_status_t st;
    char *text;

    /* O_NONBLOCK: a FIFO must not hang the program. */
    f.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f.fd < 0)
        return data_fail_errno(err, path, "open the tokenizer");
    if (fstat(f.fd, &sb)) {
        st = data_fail_errno(err, path, "stat the tokenizer");
        goto out;
    }
    if (!S_ISREG(sb.st_mode) || sb.st_size > FILE_MAX_BYTES) {
        st = accel_fail_at(err, A0714, path, "give tokenizer.json or its directory",
                           "not a regular file of at most 256 MiB");
        goto out;
    }
    text = malloc((size_t)sb.st_size + 1);
    if (!text) {
        st = accel_fail_nomem(err, "text of the tokenizer", (size_t)sb.st_size);
        goto out;
    }
    f.bytes = sb.st_size;
    st = data_pread(&f, text, (size_t)sb.st_size, 0, err);
    if (st) {
        free(text);
        goto out;
    }
    text[sb.st_size] = '\0';
    *text_out = text;
    *bytes_out = (size_t)sb.st_size;
out:
    close(f.fd);
    return st;
}

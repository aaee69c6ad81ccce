/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of a run in a directory where others may put things: only regular files are
 * opened, nothing waits, and what is read has a limit.
 */
#ifndef ACCEL_COMMON_PLAIN_FILE_H
#define ACCEL_COMMON_PLAIN_FILE_H

#include <stddef.h>

/* Opens the regular file `name` of the directory `at` (AT_FDCWD: a path), O_CLOEXEC;
 * with O_CREAT in `flags` it gets mode 0666. -1 with errno: ELOOP of a link,
 * EMEDIUMTYPE of a fifo, a device, a socket or a directory, which opened to write gives
 * EISDIR. Never waits for another process. */
int plain_open(int at, const char *name, int flags);
/* strerror, which tells of these two what is there. */
const char *plain_error(int error);
/* The last `most` bytes of it: one malloc with a NUL behind them; "" where there is no
 * such file. 0, or errno. */
int plain_tail(int at, const char *name, size_t most, char **text_out, size_t *len_out);

#endif

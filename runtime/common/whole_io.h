/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole reads and writes at an offset. The kernel may transfer less than it was asked
 * for, or be interrupted; the callers never want a part. Lines at the end of a file.
 */
#ifndef ACCEL_COMMON_WHOLE_IO_H
#define ACCEL_COMMON_WHOLE_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Writes all of data[bytes] at byte `at` of fd. Goes on after EINTR and short writes.
 * 0, or -1 with errno; then some of it may be written. */
int pwrite_all(int fd, const void *data, size_t bytes, int64_t at);
/* Reads data[bytes] from byte `at` of fd, up to the end of the file. Returns the bytes
 * read, fewer than asked for only at the end of the file, or -1 with errno. */
ssize_t pread_all(int fd, void *data, size_t bytes, int64_t at);

/* Writes all of `buf`, in pieces if the system wants it. 0, or errno. */
int line_write(int fd, const char *buf, size_t len);
/* Cuts the file back to `at` bytes, unless it is as short. 0, or errno. */
int line_cut(int fd, int64_t at);
/* Writes the whole line at the end of `fd`, or nothing of it. 0, or errno; then
 * *torn_at_out is where a part of it begins that could not be taken back, or -1. */
int line_append(int fd, const char *line, size_t len, int64_t *torn_at_out);

#endif

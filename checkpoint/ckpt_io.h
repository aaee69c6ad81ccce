/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole reads and writes at an offset, for checkpoints and for safetensors files.
 */
#ifndef ACCEL_CKPT_IO_H
#define ACCEL_CKPT_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Writes all of data[bytes] at byte `at` of fd. Goes on after EINTR and short writes.
 * 0, or -1 with errno; then some of it may be written. */
int ckpt_pwrite_all(int fd, const void *data, size_t bytes, int64_t at);
/* Reads data[bytes] from byte `at` of fd, up to the end of the file. Returns the bytes
 * read, fewer than asked for only at the end of the file, or -1 with errno. */
ssize_t ckpt_pread_all(int fd, void *data, size_t bytes, int64_t at);

#endif

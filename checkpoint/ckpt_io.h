/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole reads and writes, for checkpoints and for safetensors files.
 */
#ifndef ACCEL_CKPT_IO_H
#define ACCEL_CKPT_IO_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* pwrite until done; retries EINTR and short writes. 0 or -1 with errno. */
int ckpt_pwrite_all(int fd, const void *data, size_t bytes, int64_t at);
/* pread until done or end of file; the count read or -1 with errno. */
ssize_t ckpt_pread_all(int fd, void *data, size_t bytes, int64_t at);

#endif

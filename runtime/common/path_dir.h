/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories to write into, which must not lie behind somebody else's link.
 */
#ifndef ACCEL_COMMON_PATH_DIR_H
#define ACCEL_COMMON_PATH_DIR_H

#include "common/common.h"

/* Opens `path` (O_CLOEXEC). When its last name is a link, root or the effective user must
 * own that. ACCEL_OK: *fd_out is the caller's to close, or -1 with errno. ACCEL_EPERM:
 * somebody else's link; `err` says so, *fd_out is -1. */
accel_status_t path_open_dir(const char *path, int *fd_out, accel_error_t *err);

/* mkdir -p, durable: what was made is there after a loss of power. 0, or errno with
 * *failed_len: so many bytes of `path` name the directory that could not be made. That one
 * is not left behind; those above it are, and are durable. */
int path_make_dirs(const char *path, size_t *failed_len);

#endif

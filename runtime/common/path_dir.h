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

#endif

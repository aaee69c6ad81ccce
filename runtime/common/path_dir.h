/* SPDX-License-Identifier: Apache-2.0
 *
 * Directories to write into. They must not be reached through somebody else's link.
 */
#ifndef ACCEL_COMMON_PATH_DIR_H
#define ACCEL_COMMON_PATH_DIR_H

#include "common/common.h"

/* Opens the directory `path` (O_CLOEXEC). If the last component is a link, root or
 * the effective user must own that link. ACCEL_OK: the caller closes *fd_out, or it
 * is -1 and errno says why. ACCEL_EPERM: somebody else's link, as `err` says;
 * *fd_out is -1. */
accel_status_t path_open_dir(const char *path, int *fd_out, accel_error_t *err);

/* mkdir -p, durable: what was made survives a loss of power. Returns 0, or errno; then
 * the first *failed_len_out bytes of `path` name the directory that could not be made.
 * That one is not left behind; those above it stay and are durable. */
int path_make_dirs(const char *path, size_t *failed_len_out);

/* Makes the name of `path` durable, which has been made or renamed. 0, or errno. */
int path_sync_name(const char *path);

#endif

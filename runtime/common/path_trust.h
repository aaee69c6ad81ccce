/* SPDX-License-Identifier: Apache-2.0
 *
 * Path trust: opens a file only if nobody but root or the caller can have put it there.
 */
#ifndef ACCEL_COMMON_PATH_TRUST_H
#define ACCEL_COMMON_PATH_TRUST_H

#include "common/common.h"

/* Opens `path` read-only (O_NONBLOCK, O_CLOEXEC). It must be a regular file, not a
 * link, owned by root or the effective user and not writable by group or others. The
 * same holds for each directory on the way, except that one with the sticky bit may be
 * writable; links on the way must have such an owner. Works on descriptors from "/" on,
 * so that nothing can be swapped between check and use.
 * ACCEL_OK: the caller closes *fd_out. ACCEL_ENOENT: no such file; ACCEL_EPERM: not
 * trusted, or not readable; ACCEL_ESYSTEM: the system refused. */
accel_status_t path_trust_open(const char *path, int *fd_out, accel_error_t *err);

#endif

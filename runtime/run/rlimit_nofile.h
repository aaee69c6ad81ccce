/* SPDX-License-Identifier: Apache-2.0
 *
 * The soft limit of open files, raised while the run is open.
 */
#ifndef ACCEL_RUN_RLIMIT_NOFILE_H
#define ACCEL_RUN_RLIMIT_NOFILE_H

#include "handle/run.h"

/* Raises the soft limit to the hard limit; descriptors_restore restores the old one. */
void descriptors_raise(accel_t *run);
void descriptors_restore(const accel_t *run);

#endif

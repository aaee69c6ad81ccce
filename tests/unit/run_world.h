/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of accel_open whose ranks are those of fork_world. The test is linked with
 * run_world_ldflags.
 */
#ifndef ACCEL_TESTS_RUN_WORLD_H
#define ACCEL_TESTS_RUN_WORLD_H

#include "bootstrap/boot.h"

/* From now on accel_open of this process opens a rank of the world of `b`; NULL: a run
 * of its own again. */
void run_world_join(struct boot *b);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs (accel_open to accel_close) on forked ranks: accel_open takes the bootstrap
 * of the fork instead of looking for one. Link with -Wl,--wrap of boot_open, boot_leave
 * and boot_free ($(run_wrap)).
 */
#ifndef ACCEL_TESTS_RUN_WORLD_H
#define ACCEL_TESTS_RUN_WORLD_H

#include "tests/unit/fork_world.h"

/* Runs opened from here on belong to b; leave when the run is closed. */
void run_world_enter(struct boot *b);
void run_world_leave(void);
/* Writes PATH.yaml: copies, or FSDP with that strategy, each Linear a unit; `more` are
 * further lines, or NULL. False: it cannot be written. */
bool run_world_config(const char *path, const char *strategy, int world, int nodes,
                      const char *more);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_open in a forked world: runs that are opened the way programs do it, on several
 * ranks without Slurm. Link with $(open_forked_wrap).
 */
#ifndef ACCEL_TESTS_OPEN_FORKED_H
#define ACCEL_TESTS_OPEN_FORKED_H

#include "tests/unit/fork_world.h"

/* From now on accel_open finds the ranks of this world. NULL: as in programs. */
void open_forked(struct boot *b);

#endif

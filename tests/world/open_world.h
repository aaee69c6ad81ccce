/* SPDX-License-Identifier: Apache-2.0
 *
 * Forked ranks that open runs as programs do: in them accel_open finds the world of the
 * fork. A test that links this wraps boot_open, boot_leave and boot_free
 * ($(open_world_wraps)).
 */
#ifndef ACCEL_TESTS_OPEN_WORLD_H
#define ACCEL_TESTS_OPEN_WORLD_H

#include "tests/world/fork_world.h"

/* From here on accel_open finds the world of `b`; NULL: as in programs. */
void open_world_join(struct boot *b);
/* Of the world that this process has joined; -1: none. */
int open_world_rank(void);
/* fork_world on `nodes` equal nodes, whose ranks have joined it. */
int open_world(int n, int nodes, int (*fn)(struct boot *b, void *arg), void *arg,
               int timeout_s);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * N ranks without Slurm: forked children with a bootstrap of their own over shared
 * anonymous memory. For unit tests of whatever needs a struct boot.
 */
#ifndef ACCEL_TESTS_FORK_WORLD_H
#define ACCEL_TESTS_FORK_WORLD_H

#include "bootstrap/boot.h"
#include "tests/tap.h"

/* Forks n children; each calls fn(b, arg) with an open struct boot of that world (all
 * on node 0) and exits with fn's result. Children must not print TAP: return nonzero
 * and use tap_diag-like "# ..." lines on stderr. Returns 0 when all returned 0, else
 * the first nonzero status by rank (128+signal for a killed child). Whoever still runs
 * after timeout_s seconds is killed and counts as 137. The children call neither
 * boot_leave nor boot_free; the harness does. `arg` is the parent's memory at fork:
 * results come back only through the status or through shared mappings made before. */
int fork_world(int n, int (*fn)(struct boot *b, void *arg), void *arg, int timeout_s);

/* As fork_world, ranks cut into `nodes` equal nodes, in blocks; status[n] (may be NULL)
 * gets every rank's own status. */
int fork_world_nodes(int n, int nodes, int (*fn)(struct boot *b, void *arg), void *arg,
                     int timeout_s, int *status);

/* Zeroed memory that forked ranks share with their parent; never freed. */
void *fork_shared(size_t bytes);

#endif

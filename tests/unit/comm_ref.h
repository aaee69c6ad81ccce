/* SPDX-License-Identifier: Apache-2.0
 *
 * Every collective against a scalar reference, on whatever communicator it is given.
 * Used by the forked unit tests and by the check program that runs under srun.
 */
#ifndef ACCEL_TESTS_COMM_REF_H
#define ACCEL_TESTS_COMM_REF_H

#include "comm/comm.h"

/* Runs all operations and dtypes over sizes up to max_elems, with private memory and
 * with memory of comm_alloc. Adds all result bytes to *hash (equal on equal bits; the
 * same on all ranks only if summed over them). Returns 0, or 1 after a "# ..." line on
 * stderr. */
int comm_ref_check(struct comm *c, size_t max_elems, uint64_t *hash);
/* Splits it in several ways and uses the groups; at most 64 ranks, memory of the host.
 * Returns as above. */
int comm_ref_groups(struct comm *c);

#endif

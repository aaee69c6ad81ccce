/* SPDX-License-Identifier: Apache-2.0
 *
 * A run of forked ranks for tests of ranks/: communicator, processor and graph, as
 * accel_open leaves them, without config, plan or model. Checks of a rank go to stderr
 * and to its exit status.
 */
#ifndef ACCEL_TESTS_RANKS_WORLD_H
#define ACCEL_TESTS_RANKS_WORLD_H

#include "handle/run.h"
#include "tests/world/fork_world.h"

/* fork_world of n ranks: each opens a run, calls fn with it and closes it. */
int ranks_world(int n, bool debug, void (*fn)(accel_t *run, void *arg), void *arg);
/* NULL: a message is out. */
accel_t *ranks_open(struct boot *b, bool debug);
/* The same with tensors on the CUDA device of the rank's number, and NCCL where there
 * are several. */
accel_t *ranks_open_device(struct boot *b);
/* Returns the number of failed checks, at most 100, for the rank's exit status. */
int ranks_close(accel_t *run);
/* Counts and shows a failed check of this rank. Returns `pass`. */
bool ranks_check(accel_t *run, bool pass, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A tensor [n] of those values; `dtype` F32 or I32. */
accel_tensor_t *ranks_tensor(accel_t *run, accel_dtype_t dtype, int64_t n,
                             const int *values);
/* Element i of an array becomes v, a small whole number, which every dtype holds. */
void ranks_put(void *data, accel_dtype_t dtype, int64_t i, int v);

#endif

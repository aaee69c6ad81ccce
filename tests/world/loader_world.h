/* SPDX-License-Identifier: Apache-2.0
 *
 * What a loader needs without a run, on one rank of a forked world, and datasets whose
 * samples say their own number.
 */
#ifndef ACCEL_TESTS_LOADER_WORLD_H
#define ACCEL_TESTS_LOADER_WORLD_H

#include <stdatomic.h>
#include <stdio.h>

#include "loader/loader.h"
#include "tests/world/fork_world.h"

/* Where a rank that is no test says what is wrong. */
#define EXPECT(cond, ...)                                                              \
    do {                                                                               \
        if (!(cond)) {                                                                 \
            fprintf(stderr, "# line %d: ", __LINE__);                                  \
            fprintf(stderr, __VA_ARGS__);                                              \
            fprintf(stderr, "\n");                                                     \
            return 1;                                                                  \
        }                                                                              \
    } while (0)

struct loader_rig {
    struct backend *be;
    struct comm *comm;
    struct graph g;
    struct loader_failure failure;
    struct loader_place place;
};

/* A world of one where b is NULL. Nonzero on failure, said on stderr. */
int loader_rig_open(struct loader_rig *r, struct boot *b, accel_dtype_t compute);
void loader_rig_close(struct loader_rig *r);

/* Samples 0 .. samples-1 of one int32, with a number or one after the other. */
struct counter {
    int64_t samples;
    /* sample that fails; -1: none */
    int64_t fails;
    /* what a fetch takes */
    int sleep_us;
    /* next one of a stream; what it announces */
    int64_t at;
    bool announced;
    /* fetches under way, and the most at once */
    atomic_int busy, most;
};

/* NULL on failure. The counter must outlive it. */
accel_dataset_t *counter_numbered(struct counter *c, int threads);
accel_dataset_t *counter_stream(struct counter *c);

/* The batch as int32 numbers, values_out[room]: returns how many; -1: failed, in err;
 * -2: the epoch is over. */
int loader_batch(struct loader_rig *r, struct accel_loader *l, int *values_out,
                 int room, accel_error_t *err);

#endif

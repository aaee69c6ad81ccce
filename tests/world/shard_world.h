/* SPDX-License-Identifier: Apache-2.0
 *
 * A small synthetic model and a world of forked ranks that shard, train and export it;
 * for the tests of shard/. In: a job. Out: a result in memory shared with the parent.
 */
#ifndef ACCEL_TESTS_SHARD_WORLD_H
#define ACCEL_TESTS_SHARD_WORLD_H

#include <stdio.h>

#include "shard/shard.h"
#include "tests/world/fork_world.h"

#define UNITS   5
#define PER     4     /* parameters per unit, at most */
#define TOTAL   16384 /* room for all elements of the model, unit after unit */
#define SAMPLES 12    /* micro-batches per step over all ranks */

struct model {
    accel_tensor_t tensor[UNITS][PER], *list[UNITS][PER];
    struct param param[UNITS][PER];
    struct unit unit[UNITS];
    struct units units;
    char name[UNITS][PER][32];
    int64_t base[UNITS]; /* where a unit starts in arrays of TOTAL */
};

struct result {
    float full[3][TOTAL]; /* parameters, first and second moments, without padding */
    int hits[3][TOTAL];
    double sumsq[4];
    int64_t wire[4];            /* bytes sent in all steps */
    struct shard_memory memory; /* of rank 0 */
    /* Rank 0's last micro-batch: g gather, r reduce, d done with a unit in backward. */
    char trace[256];
};

struct job {
    int world, steps;
    int nodes; /* groups of the HYBRID strategies; 0: one */
    enum sharding_strategy strategy;
    enum backward_prefetch prefetch;
    accel_dtype_t compute, reduce;
    bool narrow_copies;
    bool offload; /* masters, state and gradients at home */
    /* 1: odd units have other types than compute and reduce, those of MIXED; 2: the
     * even ones have */
    int mixed;
    bool decay_only;           /* gradients count as zero */
    const struct result *load; /* start from these instead of initial values */
    struct result *out;        /* shared with the parent */
};

/* The other one of float32 and bfloat16. */
#define MIXED(type) ((type) == ACCEL_F32 ? ACCEL_BF16 : ACCEL_F32)

#define CHECK(call)                                                                    \
    do {                                                                               \
        accel_error_t err_ = { 0 }, *err = &err_;                                      \
        if (call) {                                                                    \
            fprintf(stderr, "# rank %d, line %d: %s\n", b->rank, __LINE__, err_.text); \
            return 1;                                                                  \
        }                                                                              \
    } while (0)

/* Members of struct shard_options for one optimizer, in whose numbers a test has no
 * interest. */
#define PLAIN_ADAMW                                                                    \
    .optim = &(const struct shard_optim){ .settings = { 0 } }, .optims = 1

/* Set: called for every collective of parameters (g) and gradients (r) with what it
 * reads and what it changes. */
extern void (*shard_collective)(char what, const void *in, size_t in_bytes, void *out,
                                size_t out_bytes);

void model_build(struct model *m);
/* Uses a unit as a layer would: reads its parameters, in its own type or `compute`, and
 * in backward (sample >= 0) adds a gradient that depends on them. Nonzero on failure, already said on stderr. */
int use_unit(struct boot *b, const struct model *m, struct residency *r, int u,
             accel_dtype_t compute, int step, int sample);
/* Runs the job in job.world forked ranks. The result is a mapping of its own; free it
 * with munmap. A rank that fails is a failed test. */
struct result *run(struct job job);
/* Multiplies all gradients of trainer 0 by a number, and copies them to to[TOTAL]. */
accel_status_t shard_world_gradients(struct shard *s, const struct model *m, float by,
                                     float *to, accel_error_t *err);
/* The groups of a HYBRID strategy; NULL where there are none. */
int open_groups(struct boot *b, struct comm *c, const struct job *job,
                struct shard_options *o);
void close_groups(struct shard_options *o);

#endif

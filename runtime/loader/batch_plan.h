/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of batches: which places of an epoch's order each rank takes in each step.
 * It is Accelerate's (BatchSamplerShard, IterableDatasetShard, DataLoaderDispatcher),
 * which are one rule: a step takes a fixed number of places, the ranks take theirs one
 * after the other, and what the last step lacks is taken from the start of the epoch.
 * Numbers in, numbers out: no run, no ranks to talk to, no memory.
 */
#ifndef ACCEL_LOADER_BATCH_PLAN_H
#define ACCEL_LOADER_BATCH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

/* What a rank lacks in the last step. */
enum batch_ends {
    ENDS_EVEN,   /* is filled up from the start of the epoch */
    ENDS_UNEVEN, /* stays away: ranks may have fewer samples, and fewer batches */
    ENDS_JOIN,   /* stays away, but a rank without any sample repeats the first one */
};

struct batch_plan {
    int batch; /* samples per rank, or of all ranks together if `split` */
    int ranks;
    /* one batch is cut into pieces for the ranks */
    bool split;
    /* one rank reads: the samples of a short last step are dealt out evenly */
    bool dispatch;
    bool drop_last; /* a step that is not full is not done */
    enum batch_ends ends;
    /* Places of the epoch that are not taken: steps count from here. After a resume
     * or a skip. */
    int64_t base;
};

/* What a rank takes in a step: `real` samples from place `first` on, then
 * count - real that repeat others, from place `fill` on. */
struct batch_part {
    int64_t first, fill;
    int count, real;
};

/* Samples of a full step: of each rank, of all. */
int plan_rank_batch(const struct batch_plan *p);
int64_t plan_step_batch(const struct batch_plan *p);
/* Steps of an epoch of `samples` places. */
int64_t plan_steps(const struct batch_plan *p, int64_t samples);
/* Steps in which `rank` has a batch: fewer for ranks that stay away from the last. */
int64_t plan_length(const struct batch_plan *p, int64_t samples, int rank);
/* Places that step `step` takes in an epoch of `samples`; 0 beyond the last one. */
int64_t plan_step_real(const struct batch_plan *p, int64_t samples, int64_t step);
/* The part of `rank` in a step whose first place is `at` and that has `real` places of
 * its own (1 .. plan_step_batch). */
struct batch_part plan_part(const struct batch_plan *p, int64_t at, int64_t real,
                            int rank);
/* The place of sample i of a part, in an epoch of `samples` places. */
int64_t plan_place(const struct batch_part *part, int64_t samples, int i);
/* Real samples of the last step, over all ranks, as Accelerate counts them: 0 when it
 * is full, -1 when it is dropped. */
int64_t plan_remainder(const struct batch_plan *p, int64_t samples);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The rule of batches: which positions of an epoch's order each rank takes in each
 * step. It is Accelerate's (BatchSamplerShard, IterableDatasetShard,
 * DataLoaderDispatcher): these all follow one rule. A step takes a fixed number of
 * positions, the ranks take theirs in rank order, and a short last step is filled up
 * from the start of the epoch. Numbers in, numbers out: needs no run, no communication
 * and no memory.
 */
#ifndef ACCEL_LOADER_BATCH_PLAN_H
#define ACCEL_LOADER_BATCH_PLAN_H

#include <stdbool.h>
#include <stdint.h>

/* What happens to the samples that a rank lacks in the last step. */
enum batch_ends {
    ENDS_EVEN,   /* filled up from the start of the epoch */
    ENDS_UNEVEN, /* left out: ranks may have fewer samples, and fewer batches */
    ENDS_JOIN,   /* left out, but a rank without any sample repeats the first one */
};

struct batch_plan {
    int batch; /* samples per rank, or of all ranks together if `split` */
    int ranks;
    /* one batch is cut into pieces for the ranks */
    bool split;
    /* one rank reads: the samples of a short last step are divided evenly */
    bool dispatch;
    bool drop_last; /* a step that is not full is dropped */
    enum batch_ends ends;
    /* Positions that a resume or a skip leaves out: steps count from here. */
    int64_t base;
};

/* What a rank takes in a step: `real` samples from position `first` on; the rest of
 * `count` repeats others, from position `fill` on. */
struct batch_part {
    int64_t first, fill;
    int count, real;
};

/* Samples of a full step: of each rank, of all. */
int plan_rank_batch(const struct batch_plan *p);
int64_t plan_step_batch(const struct batch_plan *p);
/* Steps of an epoch of `samples` positions. */
int64_t plan_steps(const struct batch_plan *p, int64_t samples);
/* Steps in which `rank` has a batch: fewer if its last step has no samples. */
int64_t plan_length(const struct batch_plan *p, int64_t samples, int rank);
/* Positions that step `step` takes in an epoch of `samples`; 0 after the last step. */
int64_t plan_step_real(const struct batch_plan *p, int64_t samples, int64_t step);
/* The part of `rank` in a step whose first position is `at` and that has `real`
 * positions of its own (1 .. plan_step_batch). */
struct batch_part plan_part(const struct batch_plan *p, int64_t at, int64_t real,
                            int rank);
/* The position of sample i of a part, in an epoch of `samples` positions. */
int64_t plan_place(const struct batch_part *part, int64_t samples, int i);
/* Real samples of the last step, over all ranks, as Accelerate counts them: 0 when it
 * is full, -1 when it is dropped. */
int64_t plan_remainder(const struct batch_plan *p, int64_t samples);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Accelerate's rule of batches, stated as its loaders go about it: batch by batch, with
 * lists that grow. A second statement of what batch_plan.c says in formulas.
 */
#ifndef ACCEL_TESTS_ACCELERATE_RULE_H
#define ACCEL_TESTS_ACCELERATE_RULE_H

#include <stdbool.h>

enum { RULE_BATCHES = 128, RULE_SAMPLES = 64 };

struct rule_case {
    int n, batch, ranks;
    bool split, drop_last, even;
};

/* The batches of one rank. */
struct rule_batches {
    int count;
    int size[RULE_BATCHES];
    int sample[RULE_BATCHES][RULE_SAMPLES];
};

/* BatchSamplerShard over a sequential sampler. */
void rule_sharded(const struct rule_case *c, int rank, struct rule_batches *out);
/* IterableDatasetShard behind a loader that makes batches of its samples. */
void rule_iterable(const struct rule_case *c, int rank, struct rule_batches *out);
/* DataLoaderDispatcher. False: it would give ranks samples of different numbers, and
 * the next collective would hang. */
bool rule_dispatched(const struct rule_case *c, int rank, struct rule_batches *out);

#endif

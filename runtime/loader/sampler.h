/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of an epoch. In: a position. Out: the number of a sample. A function of the
 * seed and the epoch, the same on all ranks. Tables are allocated when it is opened;
 * nothing is allocated later. Not for several threads at once.
 */
#ifndef ACCEL_LOADER_SAMPLER_H
#define ACCEL_LOADER_SAMPLER_H

#include "common/common.h"

struct sampler_bucket;

struct sampler {
    accel_sampler_t kind;
    uint64_t seed;
    /* positions of an epoch; samples of the dataset */
    int64_t places, population;
    accel_index_f index;
    accel_length_f length;
    void *user;
    /* without replacement */
    bool once;
    /* the epoch that `table` belongs to; -1: none yet */
    int64_t epoch;
    /* [population] TORCH, WEIGHTED once: samples in the epoch's order; else NULL */
    int64_t *table;
    /* [population] sums of the weights up to each sample; NULL: no weights */
    double *sums;
    /* [population] WEIGHTED once: the keys that the samples are sorted by */
    struct sampler_bucket *keys;
    /* the samples of one bucket by length, and room to sort them; NULL: no buckets */
    struct sampler_bucket *sorted;
    int64_t bucket, bucket_at;
};

/* Opens the sampler of these options over `population` samples. ACCEL_EINVAL names the
 * option that is wrong. The caller closes it, even after an error. */
accel_status_t sampler_open(struct sampler *s, const accel_loader_options_t *o,
                            int64_t population, accel_error_t *err);
/* Makes the tables of this epoch. */
void sampler_begin(struct sampler *s, int64_t epoch);
/* The sample at position `place` of the epoch. A0931: a function of the program failed,
 * or returned a sample that does not exist. */
accel_status_t sampler_at(struct sampler *s, int64_t place, int64_t *index_out,
                          accel_error_t *err);
/* The bytes of its tables. */
size_t sampler_bytes(const struct sampler *s);
/* "keyed", "torch" ...; static. */
const char *sampler_name(accel_sampler_t kind);
void sampler_close(struct sampler *s);

#endif

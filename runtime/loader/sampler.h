/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of an epoch: a place in, the number of a sample out. A function of the seed
 * and the epoch, the same on all ranks. Tables are made when it is opened; nothing is
 * allocated later. Not for several threads at once.
 */
#ifndef ACCEL_LOADER_SAMPLER_H
#define ACCEL_LOADER_SAMPLER_H

#include "common/common.h"

struct sampler_bucket;

struct sampler {
    accel_sampler_t kind;
    uint64_t seed;
    /* places of an epoch; samples of the dataset */
    int64_t places, population;
    accel_index_f index;
    accel_length_f length;
    void *user;
    /* without replacement */
    bool once;
    /* the epoch that `table` is of; -1: none yet */
    int64_t epoch;
    /* [population] TORCH, WEIGHTED once: samples in the epoch's order; else NULL */
    int64_t *table;
    /* [population] sums of the weights up to each sample; NULL: no weights */
    double *sums;
    /* [population] WEIGHTED once: what the samples are sorted by */
    struct sampler_bucket *keys;
    /* the samples of one bucket by length, and room to sort them; NULL: no buckets */
    struct sampler_bucket *sorted;
    int64_t bucket, bucket_at;
};

/* The sampler of these options over `population` samples. ACCEL_EINVAL names the option
 * that is wrong. The caller closes it, in either case. */
accel_status_t sampler_open(struct sampler *s, const accel_loader_options_t *o,
                            int64_t population, accel_error_t *err);
/* Makes the tables of this epoch. */
void sampler_begin(struct sampler *s, int64_t epoch);
/* The sample at `place` of the epoch. A0931: a function of the program failed, or gave
 * a sample that there is not. */
accel_status_t sampler_at(struct sampler *s, int64_t place, int64_t *index_out,
                          accel_error_t *err);
/* What its tables take. */
size_t sampler_bytes(const struct sampler *s);
/* "keyed", "torch" ...; static. */
const char *sampler_name(accel_sampler_t kind);
void sampler_close(struct sampler *s);

#endif

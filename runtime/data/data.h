/* SPDX-License-Identifier: Apache-2.0
 *
 * data/: token files as one stream of samples, and the order in which a run takes them.
 * Files are read with pread, not mapped: one that shrinks or lies on a failing disk is then
 * an error with its name, where a mapping would kill the process (SIGBUS). Samples of a few
 * KiB from the page cache cost about a microsecond either way.
 * The order is a function of (seed, cursor): no state but the cursor, whatever the world.
 */
#ifndef ACCEL_DATA_DATA_H
#define ACCEL_DATA_DATA_H

#include "common/common.h"

/* Training sample `index` (0 .. accel_dataset_samples - 1) into ids[seq], targets[seq]:
 * tokens [index * seq, index * seq + seq], targets shifted by one. Thread-safe.
 * ACCEL_EIO (file, offset), ACCEL_ECORRUPT (token outside the vocabulary), ACCEL_EINVAL. */
accel_status_t data_sample(const accel_dataset_t *d, int64_t index, int32_t *ids,
                           int32_t *targets, accel_error_t *err);
/* The held-out part, counted on its own from 0; may hold no sample. */
int64_t data_holdout_samples(const accel_dataset_t *d);
accel_status_t data_holdout_sample(const accel_dataset_t *d, int64_t index,
                                   int32_t *ids, int32_t *targets, accel_error_t *err);
int data_seq(const accel_dataset_t *d);

/* Identity of the data for the run identity: token kind and count, file names (without
 * directory) and sizes, and 64 evenly spread pieces of content. Not seq or holdout. */
accel_status_t data_digest(const accel_dataset_t *d, uint64_t *digest_out,
                           accel_error_t *err);

/* Position i of epoch `epoch`'s order of n samples (0 <= i < n): a bijection on [0, n)
 * computed by itself, without a table. n <= 2^62. */
int64_t data_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i);
/* Sample at the global cursor (samples taken since the start of the run, by all ranks):
 * epoch cursor / n, position cursor % n. */
int64_t data_global_index(uint64_t seed, int64_t n, int64_t cursor);

#endif

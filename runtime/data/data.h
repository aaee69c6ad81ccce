/* SPDX-License-Identifier: Apache-2.0
 *
 * data/: samples of any fields, from token files or from the program, and the order in
 * which a run takes them.
 *
 * Files are read with pread, not mapped: a file that shrinks or lies on a failing disk
 * is then an error with its name, where a mapping would kill the process (SIGBUS).
 * Samples of a few KiB from the page cache cost about a microsecond either way.
 *
 * The order is a function of (seed, cursor): there is no state but the cursor, whatever
 * the world size. Nothing here is collective.
 */
#ifndef ACCEL_DATA_DATA_H
#define ACCEL_DATA_DATA_H

#include "common/common.h"

#define DATA_MAX_FIELDS 8

/* The fields of a sample, *fields_out[count], valid as long as the dataset; returns
 * how many. */
int data_fields(const accel_dataset_t *d, const accel_field_t **fields_out);
/* Elements and bytes of one field of one sample. */
int64_t data_field_elems(const accel_field_t *f);
int64_t data_field_bytes(const accel_field_t *f);
/* "int32 [128], float32 [3, 32, 32]" into buf, cut off at len; returns buf. */
const char *data_fields_text(const accel_dataset_t *d, char *buf, size_t len);
/* Tokens of a sample; 0: the data are no token files. */
int data_seq(const accel_dataset_t *d);

/* Training sample `index` (0 .. accel_dataset_samples - 1) into dst[fields], each of
 * data_field_bytes. From token files: tokens [index * seq, index * seq + seq), targets
 * shifted by one. Thread-safe for token files; a program's fetch function is called in
 * the caller's thread. ACCEL_EIO (file and offset, or a fetch that failed),
 * ACCEL_ECORRUPT (token outside the vocabulary), ACCEL_EINVAL. */
accel_status_t data_sample(const accel_dataset_t *d, int64_t index, void *const *dst,
                           accel_error_t *err);
/* The held-out part, numbered on its own from 0; may hold no sample. */
int64_t data_holdout_samples(const accel_dataset_t *d);
accel_status_t data_holdout_sample(const accel_dataset_t *d, int64_t index,
                                   void *const *dst, accel_error_t *err);

/* How many threads may read samples at once. */
int data_threads(const accel_dataset_t *d);

/* Iterable datasets: for loaders only, not for data_sample. */
bool data_is_iterable(const accel_dataset_t *d);
/* Samples per epoch; -1: not known. */
int64_t data_stream_samples(const accel_dataset_t *d);
/* To the first sample of `epoch`. A0713: the program's function failed. */
accel_status_t data_rewind(const accel_dataset_t *d, int64_t epoch, accel_error_t *err);
/* The next sample into dst[fields]; *more_out is false at the end of the epoch.
 * A0713. */
accel_status_t data_next(const accel_dataset_t *d, void *const *dst, bool *more_out,
                         accel_error_t *err);

/* A file of text, whose bytes are the tokens; NULL: the data are no text. */
const char *data_text_file(const accel_dataset_t *d);
/* The identity of the data, which enters that of the run. Token files: kind and count
 * of tokens, names (without directory) and sizes of files, and 64 evenly spread pieces
 * of content; neither seq nor holdout. A program's own: fields, number of samples, and
 * 64 evenly spread samples. */
accel_status_t data_digest(const accel_dataset_t *d, uint64_t *digest_out,
                           accel_error_t *err);

/* Position i of the order of n samples in epoch `epoch` (0 <= i < n, n <= 2^62): a
 * bijection on [0, n), evaluated at one point without a table. */
int64_t data_permute(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

#endif

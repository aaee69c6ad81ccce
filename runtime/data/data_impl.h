/* SPDX-License-Identifier: Apache-2.0
 *
 * What is behind a dataset: opened token files, or a callback of the program. Not for
 * other stages.
 */
#ifndef ACCEL_DATA_IMPL_H
#define ACCEL_DATA_IMPL_H

#include <xxhash.h>

#include "data/data.h"
#include "data/token_file.h"

/* text files are read as bytes, one token each */
#define DATA_VOCAB_TEXT 256

/* One open file of tokens. */
struct data_file {
    char *path;
    /* file name, inside path */
    const char *base;
    int fd;
    /* its first token in the stream of all files */
    int64_t first;
    int64_t tokens;
    /* of the file, header included */
    int64_t bytes;
    /* bytes before the first token */
    int start;
    /* bytes of a token */
    int width;
    /* of the vocabulary of its tokens; 0: not known */
    uint64_t mark;
};

/* A dataset of either kind. Nothing changes after opening. */
struct accel_dataset {
    accel_field_t field[DATA_MAX_FIELDS];
    int fields;
    /* for training; the held-out samples follow them */
    int64_t samples, held_out;
    /* threads that may read at once */
    int threads;
    /* next is NULL: samples have numbers */
    accel_iterable_t source;
    /* NULL and no source: token files, which all members below are for */
    accel_fetch_f fetch;
    void *user;

    struct data_file *file;
    int files;
    /* tokens after a header; else bytes of text */
    bool token_files;
    int seq, vocab;
    /* tokens; [train, total) are held out */
    int64_t total, train;
};

/* ACCEL_EINVAL if these cannot be the fields of a sample. */
accel_status_t data_check_fields(const accel_field_t *fields, int n,
                                 accel_error_t *err);
/* ACCEL_EINVAL if this cannot be the part that is held out. */
accel_status_t data_check_holdout(double holdout, accel_error_t *err);
/* Sample `index` of token files: ids_out[seq] and targets_out[seq]. From d->samples on
 * the held-out ones follow. */
accel_status_t data_tokens(const accel_dataset_t *d, int64_t index, int32_t *ids_out,
                           int32_t *targets_out, accel_error_t *err);
/* The hash of token files, for data_digest. */
accel_status_t data_tokens_digest(const accel_dataset_t *d, XXH3_state_t *h,
                                  accel_error_t *err);
/* An error from errno, of a failed open or read of `path`: "cannot WHAT: ...". */
accel_status_t data_fail_errno(accel_error_t *err, const char *path, const char *what);
/* All of [offset, offset + bytes) of one file into buf, or an error that names it. */
accel_status_t data_pread(const struct data_file *f, void *buf, size_t bytes,
                          int64_t offset, accel_error_t *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What is behind a dataset: opened token files, or a callback of the program. Not for other
 * stages.
 */
#ifndef ACCEL_DATA_IMPL_H
#define ACCEL_DATA_IMPL_H

#include "data/data.h"
#include "data/token_file.h"

#define DATA_VOCAB_TEXT 256

struct data_file {
    char *path;
    const char *base; /* file name, inside path */
    int fd;
    int64_t first; /* its first token in the whole stream */
    int64_t tokens;
    int64_t bytes; /* of the file, header included */
    int start;     /* bytes before the first token */
    int width;     /* bytes of a token */
};

struct accel_dataset {
    accel_field_t field[DATA_MAX_FIELDS];
    int fields;
    int64_t samples, held_out; /* for training; the held-out ones follow them */
    accel_fetch_f fetch;       /* NULL: token files, which are all below */
    void *user;

    struct data_file *file;
    int files;
    bool token_files; /* tokens after a header; else bytes */
    int seq, vocab;
    int64_t total, train; /* tokens; the holdout is [train, total) */
};

/* Training sample `index` of token files, or held-out sample `index` - samples. */
accel_status_t data_tokens(const accel_dataset_t *d, int64_t index, int32_t *ids_out,
                           int32_t *targets_out, accel_error_t *err);
accel_status_t data_tokens_digest(const accel_dataset_t *d, uint64_t *digest_out,
                                  accel_error_t *err);
/* errno of a failed open or read of `path`: "cannot WHAT: ...". */
accel_status_t data_fail_errno(accel_error_t *err, const char *path, const char *what);
/* Tokens [at, at + n) of the whole stream, n <= seq + 1. */
accel_status_t data_read(const accel_dataset_t *d, int64_t at, int64_t n,
                         int32_t *tokens_out, accel_error_t *err);
/* All of [offset, offset + bytes) of one file, or an error naming it. */
accel_status_t data_pread(const struct data_file *f, void *buf, size_t bytes,
                          int64_t offset, accel_error_t *err);

#endif

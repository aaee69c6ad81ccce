/* SPDX-License-Identifier: Apache-2.0
 *
 * What is behind a dataset: opened token files, or a callback of the program. Not for other
 * stages.
 */
#ifndef ACCEL_DATA_IMPL_H
#define ACCEL_DATA_IMPL_H

#include "data/data.h"

#define DATA_VOCAB_TEXT 256
#define DATA_VOCAB_GPT2 50257 /* what magic 20240520, version 1 says the tokens are */
#define DATA_HEADER     1024  /* bytes of a token file before the tokens */

struct data_file {
    char *path;
    const char *base; /* file name, inside path */
    int fd;
    int64_t first; /* its first token in the whole stream */
    int64_t tokens;
    int64_t bytes; /* of the file, header included */
};

struct accel_dataset {
    accel_field_t field[DATA_MAX_FIELDS];
    int fields;
    int64_t samples, held_out; /* for training; the held-out ones follow them */
    accel_fetch_f fetch;       /* NULL: token files, which are all below */
    void *user;

    struct data_file *file;
    int files;
    bool token_files; /* uint16 tokens after a header; else bytes */
    int seq, vocab;
    int64_t total, train; /* tokens; the holdout is [train, total) */
};

/* Training sample `index` of token files, or held-out sample `index` - samples. */
accel_status_t data_tokens(const accel_dataset_t *d, int64_t index, int32_t *ids,
                           int32_t *targets, accel_error_t *err);
accel_status_t data_tokens_digest(const accel_dataset_t *d, uint64_t *digest_out,
                                  accel_error_t *err);
/* Tokens [at, at + n) of the whole stream, n <= seq + 1. */
accel_status_t data_read(const accel_dataset_t *d, int64_t at, int64_t n, int32_t *out,
                         accel_error_t *err);
/* All of [offset, offset + bytes) of one file, or an error naming it. */
accel_status_t data_pread(const struct data_file *f, void *buf, size_t bytes,
                          int64_t offset, accel_error_t *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * The token file that `accel tokenize` writes. It gets its name when it is whole.
 */
#ifndef ACCEL_TOKEN_OUTPUT_H
#define ACCEL_TOKEN_OUTPUT_H

#include "common/common.h"

struct token_output {
    /* The final name; belongs to the caller. */
    const char *path;
    /* -1: not open. width: bytes of a token, 2 or 4. */
    int fd, width;
    /* tokenizer_mark */
    uint64_t mark;
    /* Tokens so far, those in the buffer included. */
    int64_t tokens;
    /* Encoded tokens that are not written yet; `used` bytes. */
    uint8_t *buf;
    size_t used;
};

/* Begins a file for the vocabulary of this tokenizer. A signal that ends the program
 * removes what was written. One at a time in a process. */
accel_status_t token_output_open(struct token_output *o, const char *path,
                                 const accel_tokenizer_t *t, accel_error_t *err);
/* Appends ids[n]. A0717: more tokens than the header can count. */
accel_status_t token_output_add(struct token_output *o, const int32_t *ids, size_t n,
                                accel_error_t *err);
/* Makes the file durable and gives it its name. */
accel_status_t token_output_commit(struct token_output *o, accel_error_t *err);
/* Frees, and removes a file that was not committed. */
void token_output_close(struct token_output *o);

#endif

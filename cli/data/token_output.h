/* SPDX-License-Identifier: Apache-2.0
 *
 * The token file that `accel tokenize` writes: it gets its name when it is whole.
 */
#ifndef ACCEL_TOKEN_OUTPUT_H
#define ACCEL_TOKEN_OUTPUT_H

#include "common/common.h"

struct token_output {
    const char *path;
    int fd, width; /* bytes of a token */
    int64_t tokens;
    uint8_t *buf;
    size_t used;
};

/* Begins a file for a vocabulary of this size. A signal that ends the program takes what
 * was written with it. One at a time in a process. */
accel_status_t token_output_open(struct token_output *o, const char *path, int vocab,
                                 accel_error_t *err);
accel_status_t token_output_add(struct token_output *o, const int32_t *ids, size_t n,
                                accel_error_t *err);
/* Puts the file in its place, on disk. */
accel_status_t token_output_commit(struct token_output *o, accel_error_t *err);
/* Frees, and removes what was not committed. */
void token_output_close(struct token_output *o);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the readers of a tokenizer's files share.
 */
#ifndef ACCEL_DATA_TOKENIZER_JSON_H
#define ACCEL_DATA_TOKENIZER_JSON_H

#include <jansson.h>

#include "data/tokenizer_impl.h"

struct json_reader {
    struct accel_tokenizer *t;
    const json_t *root;
    const char *path; /* of the file, for messages */
    accel_error_t *err;
};

/* The expressions by which GPT-2 and Llama-3 cut words, as their files have them. */
extern const char split_gpt2[], split_llama3[];

/* The text as JSON, or NULL and ACCEL_ECORRUPT in err. */
json_t *json_of_text(const char *text, size_t n, const char *path, accel_error_t *err);
/* Known, but not supported; broken. `at` is a place in the file. */
accel_status_t json_unsupported(const struct json_reader *r, const char *at,
                                const char *hint, const char *what);
accel_status_t json_damaged(const struct json_reader *r, const char *at,
                            const char *what);

/* The members model and added_tokens (tokenizer_model.c). */
accel_status_t json_read_model(const struct json_reader *r);
accel_status_t json_read_added(const struct json_reader *r);
/* Vocabulary of {"name": id}, room for `merges` merges and ids up to `ids` - 1 at least. */
accel_status_t json_read_vocab(const struct json_reader *r, json_t *vocab,
                               size_t merges, int32_t ids);

/* A whole regular file of at most 256 MiB; the caller frees *text_out, which ends in NUL. */
accel_status_t tokenizer_read_file(const char *path, char **text_out, size_t *bytes_out,
                                   accel_error_t *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * What the readers of a tokenizer's files share.
 */
#ifndef ACCEL_DATA_TOKENIZER_JSON_H
#define ACCEL_DATA_TOKENIZER_JSON_H

#include <jansson.h>

#include "data/tokenizer_impl.h"

/* The file being read, and where it goes. */
struct json_reader {
    struct accel_tokenizer *t;
    const json_t *root;
    /* of the file, for messages */
    const char *path;
    accel_error_t *err;
};

/* The expressions by which GPT-2 and Llama-3 cut words, as their files write them. */
extern const char split_gpt2[], split_llama3[];

/* The text as JSON, which the caller releases with json_decref; NULL and ACCEL_ECORRUPT
 * in err. */
json_t *json_of_text(const char *text, size_t n, const char *path, accel_error_t *err);
/* Errors for what is known but not supported, and for what is broken. `at` is a place
 * in the file; `what` follows it directly. */
accel_status_t json_unsupported(const struct json_reader *r, const char *at,
                                const char *hint, const char *what);
accel_status_t json_damaged(const struct json_reader *r, const char *at,
                            const char *what);

/* The largest id of a list of added tokens + 1, or `end` if that is more. Unsound ids
 * do not count; they are refused later. */
json_int_t json_ids_end(const json_t *list, json_int_t end);
/* The whole of a tokenizer.json; `path` is for messages. */
accel_status_t json_read_tokenizer(struct accel_tokenizer *t, const json_t *root,
                                   const char *path, accel_error_t *err);
/* The members model and added_tokens (tokenizer_model.c), in this order. */
accel_status_t json_read_model(const struct json_reader *r);
accel_status_t json_read_added(const struct json_reader *r);

/* Reads a whole regular file of at most 256 MiB. The caller frees *text_out, which ends
 * in a NUL that *bytes_out does not count. */
accel_status_t tokenizer_read_file(const char *path, char **text_out, size_t *bytes_out,
                                   accel_error_t *err);

#endif

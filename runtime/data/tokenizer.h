/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizers, beyond accel.h: text in pieces, for files that are larger than memory.
 */
#ifndef ACCEL_DATA_TOKENIZER_H
#define ACCEL_DATA_TOKENIZER_H

#include "common/common.h"

/* The last place in text[n] where it can be cut so that the ids of both sides are those
 * of the whole, whatever follows text[n]. 0: there is none. */
size_t tokenizer_cut(const accel_tokenizer_t *t, const uint8_t *text, size_t n);
/* accel_tokenize without flags; `continued`: the text follows a cut. The first `cap`
 * ids are stored, *count_out counts all. */
accel_status_t tokenizer_encode(const accel_tokenizer_t *t, const uint8_t *text,
                                size_t n, bool continued, int32_t *ids, size_t cap,
                                size_t *count_out, accel_error_t *err);
/* Tells one vocabulary from another: of the ids that words become, and their
 * bytes; never 0. */
uint64_t tokenizer_mark(const accel_tokenizer_t *t);
/* accel_tokenizer_open for a tokenizer.json in memory; `path` is for messages. */
accel_status_t tokenizer_open_memory(accel_tokenizer_t **tokenizer_out,
                                     const char *json, size_t n, const char *path,
                                     accel_error_t *err);

#endif

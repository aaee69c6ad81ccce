/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT's word pieces for finetune_bert: vocab.txt in, token ids out. ASCII is lowered and
 * cut at spaces and punctuation; other bytes stay as they are (no accents are stripped).
 */
#ifndef ACCEL_EXAMPLES_WORDPIECE_H
#define ACCEL_EXAMPLES_WORDPIECE_H

#include <stdint.h>

struct wordpiece;

/* One piece a line, its number is the line's. NULL and errno when the file cannot be read,
 * has no line, or lacks [PAD], [UNK], [CLS] or [SEP] (EINVAL). */
struct wordpiece *wordpiece_open(const char *path);
void wordpiece_close(struct wordpiece *w); /* NULL is fine */
int wordpiece_size(const struct wordpiece *w);
int32_t wordpiece_id(const struct wordpiece *w, const char *piece); /* -1: none */
/* Ids of text[len] into out[max]; returns how many there are, at most max. */
int wordpiece_encode(const struct wordpiece *w, const char *text, int len, int32_t *out,
                     int max);

#endif

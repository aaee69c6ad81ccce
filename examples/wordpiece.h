/* SPDX-License-Identifier: Apache-2.0
 *
 * BERT's word pieces for finetune_bert: vocab.txt in, token ids out. ASCII is
 * lowered and cut at spaces and punctuation; other bytes stay as they are (no
 * accents are stripped).
 */
#ifndef ACCEL_EXAMPLES_WORDPIECE_H
#define ACCEL_EXAMPLES_WORDPIECE_H

#include <stdint.h>

struct wordpiece;

/* Reads vocab.txt: one piece per line, its id is the line's number from 0. NULL
 * and errno when the file cannot be read, is empty, or lacks [PAD], [UNK],
 * [CLS] or [SEP] (EINVAL). */
struct wordpiece *wordpiece_open(const char *path);
/* NULL is fine. */
void wordpiece_close(struct wordpiece *w);
/* The number of pieces. */
int wordpiece_size(const struct wordpiece *w);
/* The id of a piece; -1: there is none. */
int32_t wordpiece_id(const struct wordpiece *w, const char *piece);
/* Writes the ids of text[len] into out[max]. Returns how many there are, at most max;
 * what does not fit is dropped. Any thread may call it. */
int wordpiece_encode(const struct wordpiece *w, const char *text, int len, int32_t *out,
                     int max);

#endif

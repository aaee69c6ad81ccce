/* SPDX-License-Identifier: Apache-2.0
 *
 * The format of token files: 256 little-endian int32 words, of which three are used
 * (magic, version, number of tokens), then the tokens: uint16 for GPT-2 (20240520, 1),
 * uint32 for larger vocabularies such as Llama-3's (20240801, 7). These are the files
 * that llm.c reads. It passes over words 4 and 5, in which accel marks the
 * vocabulary.
 */
#ifndef ACCEL_DATA_TOKEN_FILE_H
#define ACCEL_DATA_TOKEN_FILE_H

#include "common/common.h"

enum {
    TOKEN_FILE_HEADER = 1024,   /* bytes before the tokens */
    TOKEN_FILE_WORDS = 12,      /* bytes of them that say what the file is */
    TOKEN_FILE_MARKED = 24,     /* and with the mark of the vocabulary */
    TOKEN_FILE_MAX = INT32_MAX, /* tokens in a file that is written */
};

/* Checks the first bytes of a file of `file_bytes` bytes. Out come bytes per token and
 * number of tokens. `path` is for messages. ACCEL_ECORRUPT. */
accel_status_t token_file_read_header(const uint8_t raw[TOKEN_FILE_WORDS],
                                      const char *path, int64_t file_bytes,
                                      int *width_out, int64_t *tokens_out,
                                      accel_error_t *err);
/* The mark of the vocabulary that the tokens are from; 0: not known. */
uint64_t token_file_mark(const uint8_t raw[TOKEN_FILE_MARKED]);
/* The whole header of a file of `tokens` tokens of `width` (2 or 4) bytes. */
void token_file_header(uint8_t raw[TOKEN_FILE_HEADER], int width, int64_t tokens,
                       uint64_t mark);
/* Bytes per token for a vocabulary of this size. */
int token_file_width(int vocab);
/* The vocabulary that files of this width are usually made with. */
int token_file_vocab(int width);

/* One token of 1, 2 or 4 bytes, little-endian, unaligned. */
static inline uint32_t token_file_get(const uint8_t *p, int width)
{
    uint32_t token = p[0];

    if (width > 1)
        token |= (uint32_t)p[1] << 8;
    if (width > 2)
        token |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return token;
}
static inline void token_file_put(uint8_t *p, int width, uint32_t token)
{
    for (int i = 0; i < width; i++)
        p[i] = (uint8_t)(token >> 8 * i);
}

#endif

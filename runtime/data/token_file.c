/* SPDX-License-Identifier: Apache-2.0
 *
 * Headers of token files, read and written. Never touches a file itself.
 */
#include "data/token_file.h"

#include <string.h>

/* The two forms, by width of a token. */
static const struct form {
    uint32_t magic, version;
    /* bytes of a token; vocabulary of the model that the form was made for */
    int width, vocab;
} forms[] = {
    { 20240520, 1, 2, 50257 },  /* GPT-2 */
    { 20240801, 7, 4, 128256 }, /* Llama-3 */
};

/* 2 bytes: GPT-2's form; 4 bytes: Llama-3's. */
static const struct form *form_of_width(int width)
{
    return &forms[width > 2];
}

/* An unknown magic number is compared with GPT-2's and fails there. */
accel_status_t token_file_read_header(const uint8_t raw[TOKEN_FILE_WORDS],
                                      const char *path, int64_t file_bytes,
                                      int *width_out, int64_t *tokens_out,
                                      accel_error_t *err)
{
    uint32_t magic = token_file_get(raw, 4), version = token_file_get(raw + 4, 4),
             tokens = token_file_get(raw + 8, 4);
    const struct form *f = &forms[magic == forms[1].magic];

    if (magic != f->magic)
        return accel_fail_at(
            err, A0705, path,
            "rename text files that end in .bin: this suffix is for token files",
            "not a token file: magic number %u, neither %u nor %u", magic,
            forms[0].magic, forms[1].magic);
    if (version != f->version)
        return accel_fail_at(err, A0705, path,
                             "create the file again with accel tokenize",
                             "unsupported token file version %u; only %u is supported",
                             version, f->version);
    if (file_bytes - TOKEN_FILE_HEADER != (int64_t)tokens * f->width)
        return accel_fail_at(err, A0705, path, "copy or create the file again",
                             "the header says %u tokens, but the file holds %lld",
                             tokens,
                             (long long)(file_bytes - TOKEN_FILE_HEADER) / f->width);
    *width_out = f->width;
    *tokens_out = tokens;
    return ACCEL_OK;
}

uint64_t token_file_mark(const uint8_t raw[TOKEN_FILE_MARKED])
{
    return token_file_get(raw + 16, 4) | (uint64_t)token_file_get(raw + 20, 4) << 32;
}

void token_file_header(uint8_t raw[TOKEN_FILE_HEADER], int width, int64_t tokens,
                       uint64_t mark)
{
    const struct form *f = form_of_width(width);

    memset(raw, 0, TOKEN_FILE_HEADER);
    token_file_put(raw, 4, f->magic);
    token_file_put(raw + 4, 4, f->version);
    token_file_put(raw + 8, 4, (uint32_t)tokens);
    token_file_put(raw + 16, 4, (uint32_t)mark);
    token_file_put(raw + 20, 4, (uint32_t)(mark >> 32));
}

/* The narrowest width that holds every id. */
int token_file_width(int vocab)
{
    return vocab <= 1 << 16 ? 2 : 4;
}

int token_file_vocab(int width)
{
    return form_of_width(width)->vocab;
}

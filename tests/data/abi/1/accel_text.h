/* SPDX-License-Identifier: Apache-2.0
 *
 * accel_text.h: text to tokens and back, and generation.
 */
#include "accel.h" /* which includes this header at its end */

#ifndef ACCEL_TEXT_H
#define ACCEL_TEXT_H

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- tokenizers ------------------------------------------------------------------ */

typedef struct accel_tokenizer accel_tokenizer_t;
/* Opens a byte-level BPE tokenizer that splits words as GPT-2 or Llama-3 does. `path`
 * is tokenizer.json, or a directory with tokenizer.json, or with vocab.json and
 * merges.txt, and the settings beside them (doc/tokens.md). The ids are those of the
 * tokenizers library or of AutoTokenizer; unsupported features are errors, never
 * ignored. Any thread may use the handle at any time. Not collective. Errors:
 * ACCEL_ENOENT, ACCEL_EPERM, ACCEL_EIO, ACCEL_ECORRUPT (damaged), ACCEL_EUNSUPPORTED
 * (another model, normalizer or expression; the text says where in the file). */
accel_status_t accel_tokenizer_open(accel_tokenizer_t **out, const char *path,
                                    accel_error_t *err);
void accel_tokenizer_close(accel_tokenizer_t *t); /* NULL is fine */
/* Largest id + 1, added tokens included: the vocabulary that a model needs. */
int accel_tokenizer_vocab(const accel_tokenizer_t *t);
/* Id of the token with this text ("<|endoftext|>", "the", " the"), or -1. */
int32_t accel_tokenizer_id(const accel_tokenizer_t *t, const char *token);
/* Flag of accel_tokenize: adds the tokens that the file's template puts around a text,
 * such as Llama-3's <|begin_of_text|>. */
#define ACCEL_TOKENIZE_FRAME 1u

/* Ids of text[bytes]: the first `cap` go into ids (may be NULL when cap is 0), their
 * total number into *count_out, so that a first call can ask for the size. Special
 * tokens in the text become their ids. Any bytes are valid: bytes that are not UTF-8
 * are kept, each as a symbol, and accel_detokenize restores them. Errors: ACCEL_EINVAL,
 * ACCEL_ENOMEM. */
accel_status_t accel_tokenize(const accel_tokenizer_t *t, const void *text,
                              size_t bytes, unsigned flags, int32_t *ids, size_t cap,
                              size_t *count_out, accel_error_t *err);
/* Bytes of ids[count]: the first `cap` go into text (may be NULL when cap is 0; no NUL
 * is added), their total number into *bytes_out. The bytes of a list are those of its
 * parts, one after another; a part may end inside a character. accel_detokenize of
 * accel_tokenize gives the text again, except for a space that the tokenizer puts
 * before it and whitespace that an added token absorbs (the file says both). Errors:
 * ACCEL_EINVAL (an id that is no token). */
accel_status_t accel_detokenize(const accel_tokenizer_t *t, const int32_t *ids,
                                size_t count, void *text, size_t cap, size_t *bytes_out,
                                accel_error_t *err);
/* How many bytes of text[bytes] can be displayed now: all but an incomplete UTF-8
 * character at the end. */
size_t accel_utf8_whole(const void *text, size_t bytes);

/* ---- generation ------------------------------------------------------------------ */

/* How tokens are drawn. All zero: always the most likely token. */
typedef struct accel_sampling {
    size_t bytes;
    float temperature; /* 1: the model's own; 0: always the most likely token */
    int top_k;         /* only the k most likely tokens; 0: all */
    float top_p;       /* then only the most likely that together reach p; 0, 1: all */
    uint64_t seed;     /* a draw depends on it and the position only */
    const int32_t *stop; /* [stop_count] tokens that end the text, included */
    int stop_count;
    /* Called after each token; a result other than 0 ends the text. Every rank calls
     * its own and must decide alike. NULL: none. */
    int (*token)(void *user, int32_t token);
    void *user;
} accel_sampling_t;

/* Continues prompt[n] by up to `count` tokens in out[count]; after an early end the
 * rest of `out` is -1. `model` is one that comes with the library, prepared. Each token
 * costs one forward of one position, with a cache of keys and values. The model sees at
 * most its context: the end of a longer prompt. When the context is full, its newer
 * half is kept and processed again. `sampling` may be NULL (all zero). Between steps
 * only: it frees the tensors of the micro-batch. All ranks get the same tokens.
 * Collective. */
accel_status_t accel_generate(accel_module_t *model, const int32_t *prompt, int n,
                              int32_t *out, int count, const accel_sampling_t *sampling,
                              accel_error_t *err);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif

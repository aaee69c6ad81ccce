/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: bytes up to the first NUL as tokenizer.json, the rest as text. "@@" in
 * the first stands for a vocabulary of all bytes, ids 0 to 255, without which no file
 * is accepted. What is accepted gives ids of its vocabulary and the text back; what is
 * refused has a message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer_impl.h"

/* The entries of the vocabulary, in the order of the code points that stand for
 * bytes. */
static const char *alphabet(void)
{
    static char text[4096];
    size_t used = 0;
    int id = 0;

    for (unsigned cp = 0x21; cp < 0x144 && !(id == 256 && text[0]); cp++) {
        if ((cp > 0x7e && cp < 0xa1) || cp == 0xad)
            continue;
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s\"", id ? "," : "");
        if (cp == '"' || cp == '\\')
            text[used++] = '\\';
        if (cp < 0x80) {
            text[used++] = (char)cp;
        } else {
            text[used++] = (char)(0xc0 | cp >> 6);
            text[used++] = (char)(0x80 | (cp & 0x3f));
        }
        used += (size_t)snprintf(text + used, sizeof(text) - used, "\":%d", id++);
    }
    return text;
}

/* A copy with the first @@ replaced, of its exact size: a read beyond its end is
 * seen. */
static char *expand(const uint8_t *data, size_t size, size_t *size_out)
{
    static const char *all;
    const uint8_t *mark = memmem(data, size, "@@", 2);
    size_t before = mark ? (size_t)(mark - data) : size, n;
    char *out;

    if (!all)
        all = alphabet();
    n = mark ? strlen(all) : 0;
    *size_out = mark ? size - 2 + n : size;
    out = malloc(*size_out ? *size_out : 1);
    if (!out)
        abort();
    memcpy(out, data, before);
    memcpy(out + before, all, n);
    if (mark)
        memcpy(out + before + n, mark + 2, size - before - 2);
    return out;
}

/* Does every text come back? */
static bool is_exact(const accel_tokenizer_t *t)
{
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < t->added[k].count; i++)
            if (t->added[k].token[i].lstrip || t->added[k].token[i].rstrip)
                return false;
    return !t->prefix_space;
}

static void check_text(const accel_tokenizer_t *t, const uint8_t *text, size_t n)
{
    int32_t *ids = malloc((2 * n + 1) * sizeof(*ids)), *again;
    char *back = malloc(n + 1);
    size_t count, bytes, cut = tokenizer_cut(t, text, n), part = 0, rest;
    accel_error_t err;

    again = malloc((2 * n + 1) * sizeof(*ids));
    if (!ids || !again || !back ||
        accel_tokenize(t, text, n, 0, ids, 2 * n, &count, &err) || count > 2 * n ||
        accel_detokenize(t, ids, count, back, n, &bytes, &err))
        abort();
    if (is_exact(t) && (bytes != n || memcmp(back, text, n)))
        abort();
    if (cut >= n && n)
        abort();
    if (tokenizer_encode(t, text, cut, false, again, 2 * n, &part, &err) ||
        tokenizer_encode(t, text + cut, n - cut, cut > 0, again + part, 2 * n - part,
                         &rest, &err) ||
        part + rest != count || memcmp(ids, again, count * sizeof(*ids)))
        abort();
    free(ids);
    free(again);
    free(back);
}

static void check_message(const accel_error_t *err)
{
    if (!err->text[0] || !err->hint[0] || !err->where[0])
        abort();
    for (const char *s = err->text; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    size_t head = nul ? (size_t)(nul - data) : size, n;
    char *json = expand(data, head, &n);
    accel_tokenizer_t *t = NULL;
    accel_error_t err = { 0 };

    if (tokenizer_open_memory(&t, json, n, "tokenizer.json", &err)) {
        check_message(&err);
    } else {
        check_text(t, data, head);
        check_text(t, data + head, size - head);
    }
    accel_tokenizer_close(t);
    free(json);
    return 0;
}

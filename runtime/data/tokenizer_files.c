/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a tokenizer: a path in, its text out; and a tokenizer from
 * vocab.json and merges.txt, the two files that GPT-2 came in. Follows nothing but
 * regular files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data_impl.h"
#include "data/tokenizer_json.h"

enum { FILE_MAX_BYTES = 256 << 20 };

accel_status_t tokenizer_read_file(const char *path, char **text_out, size_t *bytes_out,
                                   accel_error_t *err)
{
    struct data_file f = { .path = (char *)path };
    struct stat sb;
    accel_status_t st;
    char *text;

    /* O_NONBLOCK: a FIFO must not hang the program. */
    f.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f.fd < 0)
        return data_fail_errno(err, path, "open the tokenizer");
    if (fstat(f.fd, &sb)) {
        st = data_fail_errno(err, path, "stat the tokenizer");
        goto out;
    }
    if (!S_ISREG(sb.st_mode) || sb.st_size > FILE_MAX_BYTES) {
        st = accel_fail_at(err, A0714, path, "give tokenizer.json or its directory",
                           "not a regular file of at most 256 MiB");
        goto out;
    }
    text = malloc((size_t)sb.st_size + 1);
    if (!text) {
        st = accel_fail_nomem(err, "text of the tokenizer", (size_t)sb.st_size);
        goto out;
    }
    f.bytes = sb.st_size;
    st = data_pread(&f, text, (size_t)sb.st_size, 0, err);
    if (st) {
        free(text);
        goto out;
    }
    text[sb.st_size] = '\0';
    *text_out = text;
    *bytes_out = (size_t)sb.st_size;
out:
    close(f.fd);
    return st;
}

/* ---- vocab.json and merges.txt --------------------------------------------------- */

/* At least as many as there are merges: room for the table. */
static size_t count_lines(const char *text, size_t n)
{
    size_t lines = 1;

    for (const char *p = text; (p = memchr(p, '\n', n - (size_t)(p - text))); p++)
        lines++;
    return lines;
}

/* One merge per line, "left right"; lines that begin with #version are skipped. CRLF
 * is accepted. */
static accel_status_t read_merges(struct accel_tokenizer *t, const char *text, size_t n,
                                  const char *path, accel_error_t *err)
{
    const char *end = text + n, *next;
    uint32_t rank = 0;
    int line = 1;

    for (const char *p = text; p < end; p = next + 1, line++) {
        const char *stop, *space;
        accel_status_t st;

        next = memchr(p, '\n', (size_t)(end - p));
        next = next ? next : end;
        stop = next > p && next[-1] == '\r' ? next - 1 : next;
        if (stop - p >= 8 && !memcmp(p, "#version", 8))
            continue;
        space = memchr(p, ' ', (size_t)(stop - p));
        if (!space || memchr(space + 1, ' ', (size_t)(stop - space - 1)))
            return accel_fail_at(err, A0714, path, "copy or create the file again",
                                 "line %d is not a pair of tokens", line);
        st = bpe_add_merge(&t->bpe, p, (size_t)(space - p), space + 1,
                           (size_t)(stop - space - 1), rank++, path, err);
        if (st)
            return st;
    }
    return ACCEL_OK;
}

/* GPT-2's only special token is an ordinary name of its vocabulary; in a text it must
 * be found as a whole. */
static accel_status_t add_endoftext(struct accel_tokenizer *t, const char *path,
                                    accel_error_t *err)
{
    static const char name[] = "<|endoftext|>";
    struct added_set *s = &t->added[0];
    int32_t id = bpe_find(&t->bpe, (const uint8_t *)name, sizeof(name) - 1);

    if (id < 0)
        return ACCEL_OK;
    s->token = calloc(1, sizeof(*s->token));
    if (!s->token)
        return accel_fail_nomem(err, "special token", sizeof(*s->token));
    s->token[0] = (struct added_token){ .text = (uint8_t *)strdup(name),
                                        .bytes = sizeof(name) - 1,
                                        .id = id };
    s->count = 1;
    if (!s->token[0].text) {
        s->count = 0;
        return accel_fail_nomem(err, "special token", sizeof(name));
    }
    return added_sort(s, path, err);
}

/* The vocabulary is one JSON object of names and ids. */
static accel_status_t read_vocab_file(struct accel_tokenizer *t, const char *path,
                                      size_t merges, accel_error_t *err)
{
    struct json_reader r = { .t = t, .path = path, .err = err };
    json_t *vocab;
    char *text;
    size_t n;
    accel_status_t st = tokenizer_read_file(path, &text, &n, err);

    if (st)
        return st;
    vocab = json_of_text(text, n, path, err);
    free(text);
    if (!vocab)
        return ACCEL_ECORRUPT;
    st = json_read_vocab(&r, vocab, merges, 0);
    json_decref(vocab);
    return st;
}

/* Merges are read after the vocabulary, whose tokens they name. */
accel_status_t tokenizer_read_gpt2(struct accel_tokenizer *t, const char *dir,
                                   accel_error_t *err)
{
    char vocab[4096], merges[4096], *text;
    size_t n;
    accel_status_t st;

    snprintf(vocab, sizeof(vocab), "%s/vocab.json", dir);
    snprintf(merges, sizeof(merges), "%s/merges.txt", dir);
    if (access(vocab, F_OK) || access(merges, F_OK))
        return accel_fail_at(
            err, A0701, dir, "give the directory of a saved tokenizer",
            "the directory has neither tokenizer.json nor vocab.json and merges.txt");
    st = tokenizer_read_file(merges, &text, &n, err);
    if (st)
        return st;
    t->split = SPLIT_GPT2;
    st = read_vocab_file(t, vocab, count_lines(text, n), err);
    if (!st)
        st = read_merges(t, text, n, merges, err);
    if (!st)
        st = add_endoftext(t, vocab, err);
    free(text);
    return st;
}

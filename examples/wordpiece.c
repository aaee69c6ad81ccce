/* SPDX-License-Identifier: Apache-2.0
 *
 * Greedy longest match over a sorted vocabulary (see wordpiece.h).
 */
#include "wordpiece.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes; longer words are unknown, as in BERT. */
#define WORD_MAX 100

struct piece {
    char *text;
    int32_t id;
};

struct wordpiece {
    /* [count], sorted by text for bsearch. */
    struct piece *piece;
    int count;
    /* The id of [UNK]. */
    int32_t unknown;
};

/* For qsort and bsearch. */
static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct piece *)a)->text, ((const struct piece *)b)->text);
}

int32_t wordpiece_id(const struct wordpiece *w, const char *piece)
{
    /* bsearch does not write to the key, so the cast takes nothing from the caller. */
    struct piece key = { .text = (char *)(uintptr_t)piece };
    struct piece *found =
        bsearch(&key, w->piece, (size_t)w->count, sizeof(*w->piece), by_text);

    return found ? found->id : -1;
}

/* Appends one piece per line; -1 and errno on failure. What was read so far stays
 * for wordpiece_close. */
static int read_lines(struct wordpiece *w, FILE *f)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;

    while ((n = getline(&line, &room, f)) >= 0) {
        /* A vocabulary has 30000 lines: growing by one is cheap enough. */
        struct piece *p = realloc(w->piece, ((size_t)w->count + 1) * sizeof(*p));

        if (p)
            w->piece = p;
        /* Files from Windows end lines in two bytes. */
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            line[--n] = '\0';
        if (p)
            p[w->count] = (struct piece){ strdup(line), w->count };
        if (!p || !p[w->count].text) {
            free(line);
            return -1;
        }
        w->count++;
    }
    free(line);
    return ferror(f) ? -1 : 0;
}

struct wordpiece *wordpiece_open(const char *path)
{
    static const char *const needed[] = { "[PAD]", "[UNK]", "[CLS]", "[SEP]" };
    struct wordpiece *w = calloc(1, sizeof(*w));
    FILE *f = fopen(path, "r");
    /* Before fclose and free, which may change errno. */
    int failed = !w || !f ? -1 : read_lines(w, f), saved = errno;

    if (f)
        fclose(f);
    /* By text and not by id: words are looked up far more often than ids. */
    if (!failed && w->count > 0)
        qsort(w->piece, (size_t)w->count, sizeof(*w->piece), by_text);
    for (int i = 0; !failed && i < 4; i++)
        if (w->count < 1 || wordpiece_id(w, needed[i]) < 0) {
            failed = -1;
            saved = EINVAL;
        }
    if (failed) {
        wordpiece_close(w);
        errno = saved;
        return NULL;
    }
    w->unknown = wordpiece_id(w, "[UNK]");
    return w;
}

void wordpiece_close(struct wordpiece *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->count; i++)
        free(w->piece[i].text);
    free(w->piece);
    free(w);
}

int wordpiece_size(const struct wordpiece *w)
{
    return w->count;
}

/* The pieces of one word, the longest first; pieces inside a word begin with ##. The
 * whole word is [UNK] when some part of it is unknown. */
static int encode_word(const struct wordpiece *w, const char *word, int len,
                       int32_t *out, int max)
{
    char text[WORD_MAX + 3];
    int n = 0;

    for (int begin = 0; begin < len && n < max;) {
        /* A word that is too long has no piece at all, and so becomes [UNK]. */
        int end = len <= WORD_MAX ? len : begin;
        int32_t id = -1;

        /* The longest piece from `begin` on: one byte less each time. */
        for (; end > begin && id < 0; end--) {
            snprintf(text, sizeof(text), "%s%.*s", begin ? "##" : "", end - begin,
                     word + begin);
            id = wordpiece_id(w, text);
        }
        if (id < 0) {
            /* Pieces found so far are dropped: a word is known as a whole or not at
             * all. */
            out[0] = w->unknown;
            return 1;
        }
        out[n++] = id;
        /* The loop took one byte too many off. */
        begin = end + 1;
    }
    return n;
}

/* Words end at spaces and punctuation, which is a word of its own. A blank is read
 * behind the text, so that the last word ends like all others. */
int wordpiece_encode(const struct wordpiece *w, const char *text, int len, int32_t *out,
                     int max)
{
    char word[WORD_MAX + 1];
    int used = 0, n = 0;

    for (int i = 0; i <= len && n < max; i++) {
        unsigned char c = i < len ? (unsigned char)text[i] : ' ';
        /* Bytes from 128 up belong to characters of UTF-8: never cut there. */
        int cut = isspace(c) || (c < 128 && ispunct(c));

        if (!cut) {
            /* Longer words are only counted: encode_word makes [UNK] of them. */
            if (used <= WORD_MAX)
                word[used < WORD_MAX ? used : WORD_MAX] = (char)tolower(c);
            used++;
            continue;
        }
        if (used)
            n += encode_word(w, word, used, out + n, max - n);
        /* The byte that ended the word: a blank is dropped, punctuation is a piece. */
        used = 0;
        if (!isspace(c) && n < max) {
            char one = (char)c;

            n += encode_word(w, &one, 1, out + n, max - n);
        }
    }
    return n;
}

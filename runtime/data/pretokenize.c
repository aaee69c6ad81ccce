/* SPDX-License-Identifier: Apache-2.0
 *
 * The words into which a text is cut before BPE: what the regular expressions of GPT-2
 * and Llama-3 match, one word per call, in time linear in the text. Knows those two
 * expressions only and needs no regular-expression library for them.
 */
#include "data/tokenizer_impl.h"
#include "data/unicode.h"

/* The length of 's 't 're 've 'm 'll 'd at p, or 0. Where case is folded, the long s
 * (U+017F) is an s as well. */
static size_t contraction(const uint8_t *p, const uint8_t *end, bool fold)
{
    const uint8_t bit = fold ? 0x20 : 0;
    const ptrdiff_t n = end - p;

    if (*p != '\'' || n < 2)
        return 0;
    switch (p[1] | bit) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return n > 2 && (p[2] | bit) == 'e' ? 3 : 0;
    case 'l':
        return n > 2 && (p[2] | bit) == 'l' ? 3 : 0;
    default:
        return fold && n > 2 && p[1] == 0xc5 && p[2] == 0xbf ? 3 : 0;
    }
}

/* The end of the characters from p on whose class, cut to `mask`, is `want`. */
static const uint8_t *run_of_class(const uint8_t *p, const uint8_t *end, unsigned mask,
                                   unsigned want)
{
    int len;

    while (p < end && (unicode_next(p, end, &len) & mask) == want)
        p += len;
    return p;
}

enum { ANY = UNICODE_LETTER | UNICODE_NUMBER | UNICODE_SPACE };

/* The line breaks of the expressions; U+2028 and its like are whitespace only. */
static bool is_break(uint8_t c)
{
    return c == '\r' || c == '\n';
}

/* Whitespace at p. With `breaks` and a line break in it: up to the last one. Otherwise
 * all of it at the end of the text; before a word all but the last character, which
 * belongs to that word: \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t spaces(const uint8_t *p, const uint8_t *end, bool breaks)
{
    const uint8_t *q = p, *last = p, *after_break = NULL;
    int len;

    while (q < end && (unicode_next(q, end, &len) & UNICODE_SPACE)) {
        last = q;
        q += len;
        if (breaks && is_break(*last))
            after_break = q;
    }
    if (after_break)
        return (size_t)(after_break - p);
    return (size_t)(q == end || last == p ? q - p : last - p);
}

/* '(s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ (the order of
 * alternatives counts: the first that matches wins) */
static size_t word_gpt2(const uint8_t *p, const uint8_t *end)
{
    size_t n = contraction(p, end, false);
    const uint8_t *q = p;
    unsigned class;
    int len;

    if (n)
        return n;
    if (*p == ' ' && p + 1 < end)
        q++;
    class = unicode_next(q, end, &len) & ANY;
    if (class & UNICODE_SPACE)
        return spaces(p, end, false);
    return (size_t)(run_of_class(q + len, end, ANY, class) - p);
}

/* At most three digits. */
static size_t digits(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *q = p;
    int len;

    for (int i = 0; i < 3 && q < end; i++, q += len)
        if (!(unicode_next(q, end, &len) & UNICODE_NUMBER))
            break;
    return (size_t)(q - p);
}

/* (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t word_llama3(const uint8_t *p, const uint8_t *end)
{
    size_t n = contraction(p, end, true);
    unsigned class, second = UNICODE_SPACE; /* of the end: nothing to join */
    int len, len2;

    if (n)
        return n;
    class = unicode_next(p, end, &len) & ANY;
    if (class & UNICODE_NUMBER)
        return digits(p, end);
    if (class & UNICODE_LETTER)
        return (size_t)(run_of_class(p + len, end, UNICODE_LETTER, UNICODE_LETTER) - p);
    if (p + len < end)
        second = unicode_next(p + len, end, &len2) & ANY;
    if ((second & UNICODE_LETTER) && !is_break(*p))
        return (size_t)(run_of_class(p + len, end, UNICODE_LETTER, UNICODE_LETTER) - p);
    if (class == 0 || (*p == ' ' && second == 0)) {
        const uint8_t *q = run_of_class(p + len, end, ANY, 0);

        while (q < end && is_break(*q))
            q++;
        return (size_t)(q - p);
    }
    return spaces(p, end, true);
}

/* Both expressions match at least one character at every place, so a text is always
 * cut whole. */
size_t pretokenize(enum split_kind kind, const uint8_t *p, const uint8_t *end)
{
    return kind == SPLIT_GPT2 ? word_gpt2(p, end) : word_llama3(p, end);
}

/* Both expressions end a word before whitespace that follows anything else, except for
 * line breaks that follow a symbol (Llama-3). What comes later does not matter. */
bool pretokenize_cuts(enum split_kind kind, const uint8_t *begin, const uint8_t *p)
{
    unsigned before;
    int len;

    if (*p != ' ' && *p != '\n' && *p != '\t')
        return false;
    before = unicode_last(begin, p, &len) & ANY;
    if (before & UNICODE_SPACE)
        return false;
    return kind == SPLIT_GPT2 || before || !is_break(*p);
}

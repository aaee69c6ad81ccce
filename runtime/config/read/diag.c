/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages with file:line:col, the source line, carets and the cure. What is shown of
 * the file is made printable first, so that it cannot steer a terminal. Never prints.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/read/document.h"

/* Columns shown of a source line. Of a longer line, a window around the caret
 * is shown. */
enum { SHOWN_COLUMNS = 78 };

/* CR LF, LF, CR, and in UTF-8: NEL (U+0085), LS and PS (U+2028, U+2029). libyaml counts
 * the same breaks, so our line numbers agree with its marks. */
size_t line_break(const char *s, size_t n)
{
    if (n >= 2 && s[0] == '\r' && s[1] == '\n')
        return 2;
    if (n >= 1 && (s[0] == '\n' || s[0] == '\r'))
        return 1;
    if (n >= 2 && !memcmp(s, "\xc2\x85", 2))
        return 2;
    if (n >= 3 && (!memcmp(s, "\xe2\x80\xa8", 3) || !memcmp(s, "\xe2\x80\xa9", 3)))
        return 3;
    return 0;
}

/* Characters that could hide or reorder text on a terminal: control, zero-width and
 * direction-changing ones, the line separators and the byte order mark. */
static bool is_unsafe(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || (cp >= 0x200b && cp <= 0x200f) ||
           (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2060 && cp <= 0x206f) ||
           cp == 0xfeff;
}

/* One character of s[n] for display: 1 to 4 bytes into `out`. Returns the bytes
 * consumed. A tab becomes a blank, so that carets below it stay in line; an invalid
 * byte becomes '?' and counts as one character. */
static size_t show_char(const char *s, size_t n, char out[4], size_t *len_out)
{
    uint32_t cp;
    size_t len = utf8_next(s, n, &cp);

    if (len && !is_unsafe(cp)) {
        memcpy(out, s, len);
        *len_out = len;
        return len;
    }
    out[0] = len && cp == '\t' ? ' ' : '?';
    *len_out = 1;
    return len ? len : 1;
}

/* Keeps 3 bytes for "..." and one for the NUL, so that a character is never cut. */
const char *printable(char *buf, size_t len, const char *s, size_t n)
{
    size_t used = 0, at = 0;

    while (at < n) {
        char c[4];
        size_t c_len, step = show_char(s + at, n - at, c, &c_len);

        if (used + c_len + 4 > len) {
            memcpy(buf + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(buf + used, c, c_len);
        used += c_len;
        at += step;
    }
    buf[used] = '\0';
    return buf;
}

/* Line `line` of the source, without its break. A byte order mark is not part of it. */
static const char *find_line(const struct config_text *r, int line, size_t *len_out)
{
    size_t start = 0, at = 0;

    /* A byte order mark has no column. */
    if (r->len >= 3 && !memcmp(r->text, "\xef\xbb\xbf", 3))
        start = at = 3;
    while (at < r->len) {
        size_t br = line_break(r->text + at, r->len - at);

        if (!br) {
            at++;
            continue;
        }
        if (--line == 0)
            break;
        at += br;
        start = at;
    }
    *len_out = at - start;
    return r->text + start;
}

/* Appends "  7 |   the line" and "    |   ^^^^ hint". A column that lies far to the
 * right moves the window, so that the caret is about 20 columns from its left end. */
static void add_excerpt(struct strbuf *b, struct place at, const char *hint)
{
    size_t len, pos = 0;
    const char *s = find_line(at.in, at.line, &len);
    int from = at.col > SHOWN_COLUMNS - 20 ? at.col - 20 : 1;
    int caret = at.col - from, width = at.width, col = 1;

    strbuf_printf(b, "\n%3d | ", at.line);
    while (pos < len && col < from + SHOWN_COLUMNS) {
        char c[4];
        size_t c_len, step = show_char(s + pos, len - pos, c, &c_len);

        if (col++ >= from)
            strbuf_append(b, c, c_len);
        pos += step;
    }
    if (pos < len)
        strbuf_append(b, "...", 3);
    /* The carets end where the shown part of the line ends. */
    if (caret + width > SHOWN_COLUMNS)
        width = SHOWN_COLUMNS - caret;
    strbuf_printf(b, "\n%*s | %*s",
                  at.line > 999 ? snprintf(NULL, 0, "%d", at.line) : 3, "", caret, "");
    for (int i = 0; i < (width > 0 ? width : 1); i++)
        strbuf_append(b, "^", 1);
    if (hint)
        strbuf_printf(b, " %s", hint);
}

/* One number that sorts messages: sources from the weakest on, then lines, then
 * columns. 28 bits suffice for either, since a file has at most 1 MiB. */
static uint64_t order_of(enum config_origin source, int line, int col)
{
    return (uint64_t)source << 56 | (uint64_t)line << 28 | (uint64_t)col;
}

/* Keeps the first error in that order, not the first that was found: checks between
 * keys run late but may point to an early line. */
static void keep_first(struct config_report *r, enum message code, uint64_t order,
                       const char *where, const char *hint, const char *text)
{
    if (r->first.code && r->first_order <= order)
        return;
    r->first_order = order;
    accel_fail_at(&r->first, code, where, hint, "%s", text);
}

/* Callers ask before work that could only add more messages. */
bool report_full(const struct config_report *r)
{
    return r->no_memory || r->diags->count >= CONFIG_MAX_DIAGS;
}

/* On a lack of memory the message is lost, but report_finish then
 * returns ACCEL_ENOMEM. */
void report_add(struct config_report *r, enum message code, struct place at,
                const char *hint, const char *fmt, ...)
{
    struct config_diags *d = r->diags;
    struct strbuf b = { 0 };
    char text[700], path[512], where[600], tag[16] = "note";
    struct config_diag *grown;
    va_list ap;

    if (report_full(r))
        return;
    va_start(ap, fmt);
    text_vformat(text, sizeof(text), fmt, ap);
    va_end(ap);
    /* The source that is being read, unless the place names another one. */
    if (!at.in)
        at.in = &r->in;
    /* The name of a file is as untrusted as its content. */
    printable(path, sizeof(path), at.in->path, strlen(at.in->path));
    if (at.line)
        snprintf(where, sizeof(where), "%s:%d:%d", path, at.line, at.col);
    else
        snprintf(where, sizeof(where), "%s", path);
    if (code)
        message_tag((int)code - MESSAGE_BASE, tag, sizeof(tag));
    strbuf_printf(&b, "%s: %s: %s", where, tag, text);
    if (at.line)
        add_excerpt(&b, at, hint);
    else if (hint)
        strbuf_printf(&b, "\n  cure: %s", hint);
    /* One by one: there are at most CONFIG_MAX_DIAGS. */
    grown = realloc(d->item, (d->count + 1) * sizeof(*grown));
    if (grown)
        d->item = grown;
    if (!grown || b.failed) {
        r->no_memory = true;
        strbuf_free(&b);
        return;
    }
    d->item[d->count++] = (struct config_diag){ .is_error = code != MESSAGE_NOTE,
                                                .source = at.in->origin,
                                                .line = at.line,
                                                .col = at.col,
                                                .text = b.s };
    /* MESSAGE_NOTE is 0, as a code it is none. */
    if (code) {
        d->errors++;
        keep_first(r, code, order_of(at.in->origin, at.line, at.col), where, hint,
                   text);
    }
}

/* Separate from report_add, since only a few notes need it. */
void report_tell(struct config_report *r)
{
    if (r->diags->count)
        r->diags->item[r->diags->count - 1].is_told = true;
}

/* The place of a message in the list as shown. */
static uint64_t diag_order(const struct config_diag *d)
{
    return order_of(d->source, d->line, d->col);
}

accel_status_t report_finish(struct config_report *r, accel_error_t *err)
{
    struct config_diags *d = r->diags;

    if (r->no_memory)
        return accel_fail_nomem(err, "reading the config file", CONFIG_MAX_BYTES);
    /* Insertion sort: at most 20 items, nearly sorted, and it must be stable. */
    for (size_t i = 1; i < d->count; i++) {
        struct config_diag x = d->item[i];
        size_t j = i;

        while (j > 0 && diag_order(&d->item[j - 1]) > diag_order(&x)) {
            d->item[j] = d->item[j - 1];
            j--;
        }
        d->item[j] = x;
    }
    if (r->first.code && err)
        *err = r->first;
    return r->first.code;
}

void config_diags_free(struct config_diags *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->count; i++)
        free(d->item[i].text);
    free(d->item);
    memset(d, 0, sizeof(*d));
}

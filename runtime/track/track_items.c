/* SPDX-License-Identifier: Apache-2.0
 *
 * Items as a program hands them in, made fit for files: names of few characters, texts
 * of well-formed UTF-8. Values are not copied.
 */
#include <stdlib.h>
#include <string.h>

#include "track/track.h"

static accel_status_t bad_item(accel_error_t *err, const char *name, const char *hint,
                               const char *what)
{
    return accel_fail_at(err, A0950, name, hint, "an item to track %s", what);
}

static accel_status_t check_item(const accel_item_t *x, accel_error_t *err)
{
    const char *name = x->name ? x->name : "";
    size_t n = strlen(name);

    if (n == 0)
        return bad_item(err, "", "set .name", "has no name");
    if (n > TRACK_MAX_NAME)
        return bad_item(err, "", "use at most 255 bytes",
                        "has a name that is too long");
    if (name[strspn(name, "/")] == '\0')
        return bad_item(err, name, "use letters", "has a name of slashes only");
    switch (x->kind) {
    case ACCEL_ITEM_SCALAR:
        return ACCEL_OK;
    case ACCEL_ITEM_TEXT:
        return x->text ? ACCEL_OK
                       : bad_item(err, name, "set .text", "is a text without a text");
    case ACCEL_ITEM_HISTOGRAM:
        return x->count >= 0 && (x->values || x->count == 0)
                   ? ACCEL_OK
                   : bad_item(err, name, "set .values and .count",
                              "is a histogram without values");
    }
    return bad_item(err, name, "see enum accel_item_kind", "is of no kind");
}

/* As TensorBoard's own writers do it, so that a name is the same in every file. */
static void put_name(struct strbuf *b, const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-./";

    for (name += strspn(name, "/"); *name; name++)
        strbuf_append(b, strchr(plain, *name) ? name : "_", 1);
    strbuf_append(b, "", 1);
}

/* A byte that belongs to no character becomes U+FFFD. */
static void put_text(struct strbuf *b, const char *text)
{
    const char *end = text + strlen(text);

    while (text < end) {
        uint32_t cp;
        size_t n = utf8_next(text, (size_t)(end - text), &cp);

        if (n > 0)
            strbuf_append(b, text, n);
        else
            strbuf_append(b, "\xef\xbf\xbd", 3);
        text += n > 0 ? n : 1;
    }
    strbuf_append(b, "", 1);
}

/* The bytes move while they grow, so addresses are set when all are there. */
accel_status_t track_clean_items(const accel_item_t *items, int n,
                                 struct track_items *clean_out, accel_error_t *err)
{
    struct track_items *c = clean_out;
    accel_status_t st = ACCEL_OK;
    const char *at;

    *c = (struct track_items){ .item = calloc((size_t)n + 1, sizeof(*items)) };
    if (!c->item)
        return accel_fail_nomem(err, "items to track", (size_t)n * sizeof(*items));
    for (int i = 0; i < n && st == ACCEL_OK; i++) {
        st = check_item(&items[i], err);
        if (st == ACCEL_OK)
            put_name(&c->bytes, items[i].name);
        if (st == ACCEL_OK && items[i].kind == ACCEL_ITEM_TEXT)
            put_text(&c->bytes, items[i].text);
    }
    if (st == ACCEL_OK && c->bytes.failed)
        st = accel_fail_nomem(err, "the texts of items", c->bytes.len);
    if (st != ACCEL_OK)
        return st;
    at = c->bytes.s;
    for (int i = 0; i < n; i++) {
        c->item[i] = items[i];
        c->item[i].name = at;
        at += strlen(at) + 1;
        c->item[i].text = NULL;
        if (items[i].kind != ACCEL_ITEM_TEXT)
            continue;
        c->item[i].text = at;
        at += strlen(at) + 1;
    }
    return ACCEL_OK;
}

void track_items_free(struct track_items *clean)
{
    free(clean->item);
    strbuf_free(&clean->bytes);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of a safetensors file. In: its JSON text and the size of the data behind
 * it. Out: tensors sorted by name, whose ranges are proven to cover the data exactly.
 * Never opens or reads a file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "st_internal.h"

/* All dtypes of the format: files may hold tensors that nobody reads here. */
static const struct st_dtype dtypes[] = {
    { "F4", 4 },          { "F6_E2M3", 6 },     { "F6_E3M2", 6 }, { "BOOL", 8 },
    { "U8", 8 },          { "I8", 8 },          { "F8_E4M3", 8 }, { "F8_E5M2", 8 },
    { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 }, { "F8_E8M0", 8 }, { "I16", 16 },
    { "U16", 16 },        { "F16", 16 },        { "BF16", 16 },   { "I32", 32 },
    { "U32", 32 },        { "F32", 32 },        { "I64", 64 },    { "U64", 64 },
    { "F64", 64 },        { "C64", 64 },
};

const struct st_dtype *st_dtype_find(const char *name)
{
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

/* Names come from files, and terminals react to control characters. */
const char *st_shown(const char *name, char *buf, size_t len)
{
    size_t n = 0;

    for (; name[n] && n + 1 < len; n++)
        buf[n] = (unsigned char)name[n] < 0x20 || (unsigned char)name[n] > 0x7e
                     ? '?'
                     : name[n];
    buf[n] = '\0';
    return buf;
}

void *st_grow(void *list, size_t count, size_t *cap, size_t size)
{
    size_t next = *cap ? 2 * *cap : 64;
    void *p = list;

    if (count == *cap) {
        p = reallocarray(list, next, size);
        if (p)
            *cap = next;
    }
    return p;
}

/* The object of __metadata__: texts only; null is none. */
static bool take_meta(struct json_scan *j, struct st_header *h)
{
    size_t n = 0;
    char *key, *value;

    if (json_scan_null(j))
        return true;
    while (json_scan_member(j, &n, &key)) {
        struct st_pair *list =
            st_grow(h->meta, h->metas, &h->meta_cap, sizeof(*h->meta));

        if (!list)
            return json_scan_fail(j, st_no_memory);
        h->meta = list;
        if (!json_scan_string(j, &value))
            return false;
        list[h->metas++] = (struct st_pair){ key, value };
    }
    return !j->problem;
}

/* Sizes, their product in elems. */
static bool take_shape(struct json_scan *j, accel_safetensors_tensor_t *t)
{
    bool zero = false;
    int64_t elems = 1;

    if (!json_scan_want(j, '['))
        return false;
    if (json_scan_is(j, ']'))
        return true;
    do {
        int64_t size;

        if (t->ndim == ACCEL_CKPT_MAX_DIMS)
            return json_scan_fail(j, "more than 8 dimensions");
        if (!json_scan_whole(j, &size))
            return false;
        t->shape[t->ndim++] = size;
        zero = zero || size == 0;
        /* The sizes around a 0 must not overflow either. */
        if (size && __builtin_mul_overflow(elems, size, &elems))
            return json_scan_fail(j, "a shape with too many elements");
    } while (json_scan_is(j, ','));
    t->elems = zero ? 0 : elems;
    return json_scan_want(j, ']');
}

/* [begin, end], in bytes of the data. */
static bool take_range(struct json_scan *j, int64_t *begin_out, int64_t *end_out)
{
    return json_scan_want(j, '[') && json_scan_whole(j, begin_out) &&
           json_scan_want(j, ',') && json_scan_whole(j, end_out) &&
           json_scan_want(j, ']');
}

/* The keys of a tensor, each exactly once, in any order:
 *   "wte.weight": {"dtype": "F32", "shape": [50257, 768], "data_offsets": [0, N]} */
enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_RANGE = 4 };

/* The object of one tensor. *end_out: the end of its range; *has: which keys it had. */
static bool take_field(struct json_scan *j, struct st_tensor *t, int64_t *end_out,
                       int *has)
{
    char *key, *text;
    int which;
    size_t n = 0;

    while (json_scan_member(j, &n, &key)) {
        which = strcmp(key, "dtype") == 0          ? HAS_DTYPE
                : strcmp(key, "shape") == 0        ? HAS_SHAPE
                : strcmp(key, "data_offsets") == 0 ? HAS_RANGE
                                                   : 0;
        if (which == 0)
            return json_scan_fail(j, "a key that is not dtype, shape or data_offsets");
        if (*has & which)
            return json_scan_fail(j, "a key that appears twice");
        *has |= which;
        if (which == HAS_SHAPE) {
            take_shape(j, &t->pub);
        } else if (which == HAS_RANGE) {
            take_range(j, &t->begin, end_out);
        } else if (json_scan_string(j, &text)) {
            t->dtype = st_dtype_find(text);
            if (!t->dtype)
                return json_scan_fail(j, "an unknown dtype");
            t->pub.dtype = t->dtype->name;
        }
    }
    return !j->problem;
}

/* One tensor: its range must have the size that shape and dtype give. */
static bool take_tensor(struct json_scan *j, struct st_header *h, const char *name)
{
    struct st_tensor *list = st_grow(h->tensor, h->count, &h->cap, sizeof(*h->tensor));
    struct st_tensor *t;
    int64_t end = 0, bits;
    int has = 0;

    if (!list)
        return json_scan_fail(j, st_no_memory);
    h->tensor = list;
    t = &list[h->count++];
    *t = (struct st_tensor){ .pub = { .name = name, .elems = 1 } };
    if (!take_field(j, t, &end, &has))
        return false;
    /* a missing dtype would be NULL below */
    if (has != (HAS_DTYPE | HAS_SHAPE | HAS_RANGE))
        return json_scan_fail(j, "dtype, shape or data_offsets is missing");
    if (__builtin_mul_overflow(t->pub.elems, t->dtype->bits, &bits))
        return json_scan_fail(j, "a shape with too many bytes");
    if (bits % 8)
        return json_scan_fail(j, "a shape whose elements do not fill the last byte");
    t->pub.bytes = bits / 8;
    if (end < t->begin)
        return json_scan_fail(j, "data_offsets end before they begin");
    /* the difference cannot overflow: both are 0 or more */
    if (end - t->begin != t->pub.bytes)
        return json_scan_fail(j, "data_offsets do not match shape and dtype");
    return true;
}

int st_tensor_compare(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;

    return strcmp(x->pub.name, y->pub.name);
}

/* By begin, then end: an empty tensor goes before one that begins at the same byte. */
static int compare_places(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    int64_t xe = x->begin + x->pub.bytes, ye = y->begin + y->pub.bytes;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (xe > ye) - (xe < ye);
}

int st_text_compare(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

int st_pair_compare(const void *a, const void *b)
{
    const struct st_pair *x = a, *y = b;

    return strcmp(x->key, y->key);
}

/* In the order of their places each range begins where the one before it ended,
 * and the last ends with the data. That rules out holes, overlaps, and data that
 * is cut or appended to. */
static accel_status_t check_cover(struct st_header *h, int64_t data_bytes,
                                  const char *where, accel_error_t *err)
{
    char shown[ST_SHOWN];
    int64_t at = 0;

    if (h->count)
        qsort(h->tensor, h->count, sizeof(*h->tensor), compare_places);
    /* st_read relies on this: data_at + begin + bytes lies inside the file */
    for (size_t i = 0; i < h->count; i++) {
        const struct st_tensor *t = &h->tensor[i];

        if (t->begin != at)
            return accel_fail_at(
                err, A0824, where, "copy or download the file again",
                "tensor %s begins at byte %lld of the data, %s",
                st_shown(t->pub.name, shown, sizeof(shown)), (long long)t->begin,
                t->begin < at ? "inside another tensor" : "after a gap");
        at += t->pub.bytes;
    }
    if (at != data_bytes)
        return accel_fail_at(err, A0824, where, "copy or download the file again",
                             "the tensors have %lld bytes, but the file has %lld: it "
                             "was truncated or extended",
                             (long long)at, (long long)data_bytes);
    return ACCEL_OK;
}

/* Sorts tensors and metadata; equal names are then neighbours. */
static accel_status_t check_twice(struct st_header *h, const char *where,
                                  accel_error_t *err)
{
    char shown[ST_SHOWN];

    if (h->count)
        qsort(h->tensor, h->count, sizeof(*h->tensor), st_tensor_compare);
    for (size_t i = 1; i < h->count; i++)
        if (st_tensor_compare(&h->tensor[i - 1], &h->tensor[i]) == 0)
            return accel_fail_at(err, A0824, where, "copy or download the file again",
                                 "tensor %s appears twice",
                                 st_shown(h->tensor[i].pub.name, shown, sizeof(shown)));
    /* qsort of a NULL list is undefined, even of length 0 */
    if (h->metas)
        qsort(h->meta, h->metas, sizeof(*h->meta), st_pair_compare);
    for (size_t i = 1; i < h->metas; i++)
        if (st_pair_compare(&h->meta[i - 1], &h->meta[i]) == 0)
            return accel_fail_at(err, A0824, where, "copy or download the file again",
                                 "key %s of __metadata__ appears twice",
                                 st_shown(h->meta[i].key, shown, sizeof(shown)));
    return ACCEL_OK;
}

const char st_no_memory[] = "out of memory";

accel_status_t st_json_error(const struct json_scan *j, const char *where,
                             const char *at, accel_error_t *err)
{
    if (j->problem == st_no_memory)
        return accel_fail_nomem(err, "the header of a safetensors file",
                                (size_t)(j->end - j->begin));
    return accel_fail_at(err, A0824, where, "copy or download the file again",
                         "byte %zu%s: %s", (size_t)(j->s - j->begin), at, j->problem);
}

/* Problems inside the loop stay in j: the next json_scan_member is false,
 * and json_scan_end tells. */
accel_status_t st_header_parse(struct st_header *h, char *text, size_t len,
                               int64_t data_bytes, const char *where,
                               accel_error_t *err)
{
    struct json_scan j = { .begin = text, .s = text, .end = text + len };
    bool begun = false, meta = false;
    char shown[ST_SHOWN], at[ST_SHOWN + 40] = " of the header", *name = NULL;
    accel_status_t st;
    size_t n = 0;

    memset(h, 0, sizeof(*h));
    /* the format allows no blanks in front of the header */
    if (len == 0 || text[0] != '{')
        return accel_fail_at(err, A0824, where, "give a file in safetensors format",
                             "the header does not begin with {");
    while (json_scan_member(&j, &n, &name)) {
        begun = true;
        if (strcmp(name, "__metadata__") != 0) {
            take_tensor(&j, h, name);
        } else if (meta) {
            json_scan_fail(&j, "a second __metadata__");
        } else {
            take_meta(&j, h);
            meta = true;
        }
    }
    if (!json_scan_end(&j)) {
        if (begun)
            /* name is the last key that was read, which helps
             * more than a byte number */
            snprintf(at, sizeof(at), " of the header, at or after %s",
                     st_shown(name, shown, sizeof(shown)));
        st = st_json_error(&j, where, at, err);
        goto fail;
    }
    st = check_cover(h, data_bytes, where, err);
    ACCEL_TRY(st, check_twice(h, where, err));
    if (!st)
        return ACCEL_OK;
fail:
    st_header_free(h);
    return st;
}

void st_header_free(struct st_header *h)
{
    free(h->tensor);
    free(h->meta);
    memset(h, 0, sizeof(*h));
}

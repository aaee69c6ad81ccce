/* SPDX-License-Identifier: Apache-2.0
 *
 * Protocol buffers by hand: a field is its number and wire type, then a varint, 4 or 8
 * bytes, or a length and bytes. In: items. Out: whole records. Everything is little
 * endian, whatever the machine.
 */
#include "track/event_bytes.h"

#include <string.h>

#include "track/crc32c.h"

enum wire { VARINT = 0, EIGHT_BYTES = 1, BYTES = 2, FOUR_BYTES = 5 };

/* Fields, by message. */
enum {
    EVENT_TIME = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION = 7,
    SESSION_STATUS = 1,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_HISTOGRAM = 5,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,
    HISTOGRAM_MIN = 1,
    HISTOGRAM_MAX = 2,
    HISTOGRAM_COUNT = 3,
    HISTOGRAM_SUM = 4,
    HISTOGRAM_SQUARES = 5,
    HISTOGRAM_LIMITS = 6,
    HISTOGRAM_BUCKETS = 7,
    TENSOR_DTYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_STRING = 8,
    METADATA_PLUGIN = 1,
    METADATA_CLASS = 4,
    PLUGIN_NAME = 1,
};
/* Values of enums there. */
enum { SESSION_START = 1, DTYPE_STRING = 7, CLASS_TENSOR = 2 };

/* ---- fields ---------------------------------------------------------------------- */

static void put_little(struct strbuf *b, uint64_t v, int bytes)
{
    char out[8];

    for (int i = 0; i < bytes; i++)
        out[i] = (char)(v >> 8 * i);
    strbuf_append(b, out, (size_t)bytes);
}

static void put_varint(struct strbuf *b, uint64_t v)
{
    char out[10];
    size_t n = 0;

    for (; v >= 0x80; v >>= 7)
        out[n++] = (char)(v | 0x80);
    out[n++] = (char)v;
    strbuf_append(b, out, n);
}

static void put_key(struct strbuf *b, int field, enum wire wire)
{
    put_varint(b, (uint64_t)field << 3 | wire);
}

static void put_integer(struct strbuf *b, int field, int64_t v)
{
    put_key(b, field, VARINT);
    put_varint(b, (uint64_t)v);
}

static uint64_t double_bits(double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    return bits;
}

static void put_double(struct strbuf *b, int field, double v)
{
    put_key(b, field, EIGHT_BYTES);
    put_little(b, double_bits(v), 8);
}

static void put_float(struct strbuf *b, int field, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    put_key(b, field, FOUR_BYTES);
    put_little(b, bits, 4);
}

static void put_bytes(struct strbuf *b, int field, const char *s, size_t n)
{
    put_key(b, field, BYTES);
    put_varint(b, n);
    strbuf_append(b, s, n);
}

/* The message `inner` as a field; frees it. */
static void put_message(struct strbuf *b, int field, struct strbuf *inner)
{
    put_bytes(b, field, inner->s ? inner->s : "", inner->len);
    b->failed |= inner->failed;
    strbuf_free(inner);
}

/* ---- values ---------------------------------------------------------------------- */

/* limits: the upper edge of each bucket. Readers take the lowest edge from the
 * minimum. */
static void put_histogram_value(struct strbuf *value, const accel_item_t *x)
{
    struct strbuf b = { 0 };
    struct histogram h;

    histogram_of(x->values, x->count, &h);
    put_double(&b, HISTOGRAM_MIN, h.min);
    put_double(&b, HISTOGRAM_MAX, h.max);
    put_double(&b, HISTOGRAM_COUNT, (double)h.count);
    put_double(&b, HISTOGRAM_SUM, h.sum);
    put_double(&b, HISTOGRAM_SQUARES, h.sum_squares);
    put_key(&b, HISTOGRAM_LIMITS, BYTES);
    put_varint(&b, (uint64_t)h.buckets * sizeof(double));
    for (int i = 0; i < h.buckets; i++)
        put_little(&b, double_bits(h.edge[i + 1]), 8);
    put_key(&b, HISTOGRAM_BUCKETS, BYTES);
    put_varint(&b, (uint64_t)h.buckets * sizeof(double));
    for (int i = 0; i < h.buckets; i++)
        put_little(&b, double_bits((double)h.in[i]), 8);
    put_message(value, VALUE_HISTOGRAM, &b);
}

/* A tensor of one string, for the plugin that shows texts. */
static void put_text_value(struct strbuf *value, const char *text)
{
    struct strbuf tensor = { 0 }, metadata = { 0 }, plugin = { 0 }, scalar = { 0 };

    put_integer(&tensor, TENSOR_DTYPE, DTYPE_STRING);
    put_message(&tensor, TENSOR_SHAPE, &scalar);
    put_bytes(&tensor, TENSOR_STRING, text, strlen(text));
    put_message(value, VALUE_TENSOR, &tensor);
    put_bytes(&plugin, PLUGIN_NAME, "text", 4);
    put_message(&metadata, METADATA_PLUGIN, &plugin);
    put_integer(&metadata, METADATA_CLASS, CLASS_TENSOR);
    put_message(value, VALUE_METADATA, &metadata);
}

static void put_value(struct strbuf *summary, const accel_item_t *x)
{
    struct strbuf value = { 0 };

    put_bytes(&value, VALUE_TAG, x->name, strlen(x->name));
    if (x->kind == ACCEL_ITEM_SCALAR)
        put_float(&value, VALUE_SIMPLE, (float)x->value);
    else if (x->kind == ACCEL_ITEM_TEXT)
        put_text_value(&value, x->text);
    else
        put_histogram_value(&value, x);
    put_message(summary, SUMMARY_VALUE, &value);
}

/* ---- records --------------------------------------------------------------------- */

/* Rotated and moved, so that the checksum of data that hold checksums is no
 * constant. */
static uint32_t masked_crc(const void *data, size_t bytes)
{
    uint32_t crc = crc32c(data, bytes);

    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Length and its checksum, the event and its own; frees `event`. */
static void put_record(struct strbuf *b, struct strbuf *event)
{
    struct strbuf length = { 0 };

    if (!event->failed)
        put_little(&length, event->len, 8);
    b->failed |= event->failed || length.failed;
    if (!b->failed) {
        strbuf_append(b, length.s, length.len);
        put_little(b, masked_crc(length.s, length.len), 4);
        strbuf_append(b, event->s, event->len);
        put_little(b, masked_crc(event->s, event->len), 4);
    }
    strbuf_free(&length);
    strbuf_free(event);
}

void event_head(struct strbuf *b, double time, int64_t first_step)
{
    struct strbuf event = { 0 }, session = { 0 };

    put_double(&event, EVENT_TIME, time);
    put_bytes(&event, EVENT_VERSION, "brain.Event:2", 13);
    put_record(b, &event);
    put_double(&event, EVENT_TIME, time);
    put_integer(&event, EVENT_STEP, first_step);
    put_integer(&session, SESSION_STATUS, SESSION_START);
    put_message(&event, EVENT_SESSION, &session);
    put_record(b, &event);
}

void event_items(struct strbuf *b, int64_t step, double time, const accel_item_t *items,
                 int n)
{
    struct strbuf event = { 0 }, summary = { 0 };

    put_double(&event, EVENT_TIME, time);
    put_integer(&event, EVENT_STEP, step);
    for (int i = 0; i < n; i++)
        put_value(&summary, &items[i]);
    put_message(&event, EVENT_SUMMARY, &summary);
    put_record(b, &event);
}

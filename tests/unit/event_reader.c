/* SPDX-License-Identifier: Apache-2.0
 *
 * See event_reader.h. Shares no line with the writer.
 */
#include "tests/unit/event_reader.h"

#include <string.h>

struct cursor {
    const uint8_t *p, *end;
    bool bad;
};

uint32_t event_crc(const uint8_t *p, size_t n)
{
    uint32_t crc = 0xffffffffu;

    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint32_t in = (uint32_t)(p[i] >> bit & 1);

            crc = (crc >> 1) ^ ((crc & 1) != in ? 0x82f63b78u : 0);
        }
    return crc ^ 0xffffffffu;
}

static uint64_t little(const uint8_t *p, int bytes)
{
    uint64_t v = 0;

    for (int i = bytes; i-- > 0;)
        v = v * 256 + p[i];
    return v;
}

/* Takes the mask off: rotates back what was moved. */
static bool crc_fits(const uint8_t *stored, const uint8_t *p, size_t n)
{
    uint32_t rotated = (uint32_t)little(stored, 4) - 0xa282ead8u;

    return ((rotated << 15) | (rotated >> 17)) == event_crc(p, n);
}

static uint64_t varint(struct cursor *c)
{
    uint64_t v = 0;

    for (int shift = 0; shift < 64; shift += 7) {
        if (c->p == c->end)
            break;
        v |= (uint64_t)(*c->p & 0x7f) << shift;
        if (!(*c->p++ & 0x80))
            return v;
    }
    c->bad = true;
    return 0;
}

/* One field: its number; a number in *v, bytes in *in. 0: the end. */
static int field(struct cursor *c, uint64_t *v, struct cursor *in)
{
    uint64_t key;
    size_t n = 0;

    if (c->p == c->end || c->bad)
        return 0;
    key = varint(c);
    if ((key & 7) == 0) {
        *v = varint(c);
    } else {
        n = (key & 7) == 1   ? 8
            : (key & 7) == 5 ? 4
            : (key & 7) == 2 ? varint(c)
                             : SIZE_MAX;
        if (n > (size_t)(c->end - c->p)) {
            c->bad = true;
            return 0;
        }
        *v = n <= 8 ? little(c->p, (int)n) : 0;
    }
    *in = (struct cursor){ c->p, c->p + n, false };
    c->p += n;
    return c->bad ? 0 : (int)(key >> 3);
}

static double as_double(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof(v));
    return v;
}

static void copy_text(char *to, size_t room, const struct cursor *in)
{
    size_t n = (size_t)(in->end - in->p);

    n = n < room ? n : room - 1;
    memcpy(to, in->p, n);
    to[n] = '\0';
}

static void read_histogram(struct cursor c, struct event_value *x)
{
    struct cursor in;
    uint64_t v;
    int f;

    while ((f = field(&c, &v, &in)) != 0) {
        double *one[] = { &x->min, &x->max, &x->count, &x->sum, &x->squares };

        if (f <= 5)
            *one[f - 1] = as_double(v);
        for (; f >= 6 && in.p + 8 <= in.end; in.p += 8) {
            if (f == 6 && x->limits < EVENT_BUCKETS)
                x->limit[x->limits++] = as_double(little(in.p, 8));
            if (f == 7 && x->buckets < EVENT_BUCKETS)
                x->bucket[x->buckets++] = as_double(little(in.p, 8));
        }
    }
}

static void read_tensor(struct cursor c, struct event_value *x)
{
    struct cursor in;
    uint64_t v;
    int f;

    while ((f = field(&c, &v, &in)) != 0) {
        if (f == 1)
            x->dtype = (int)v;
        if (f == 8)
            copy_text(x->text, sizeof(x->text), &in);
    }
}

static void read_value(struct cursor c, struct event_value *x)
{
    struct cursor in, plugin, name;
    uint64_t v;
    int f;

    while ((f = field(&c, &v, &in)) != 0) {
        if (f == 1)
            copy_text(x->tag, sizeof(x->tag), &in);
        if (f == 2 || f == 5 || f == 8)
            x->what = f;
        if (f == 2)
            memcpy(&x->simple, in.p, 4);
        if (f == 5)
            read_histogram(in, x);
        if (f == 8)
            read_tensor(in, x);
        if (f == 9 && field(&in, &v, &plugin) == 1 && field(&plugin, &v, &name) == 1)
            copy_text(x->plugin, sizeof(x->plugin), &name);
    }
}

static void read_event(struct cursor c, struct event *e)
{
    struct cursor in, value;
    uint64_t v;
    int f;

    while ((f = field(&c, &v, &in)) != 0) {
        if (f == 1)
            e->time = as_double(v);
        if (f == 2)
            e->step = (int64_t)v;
        if (f == 3)
            copy_text(e->version, sizeof(e->version), &in);
        if (f == 7 && field(&in, &v, &value) == 1)
            e->session = (int)v;
        while (f == 5 && e->values < EVENT_VALUES && field(&in, &v, &value) == 1)
            read_value(value, &e->value[e->values++]);
    }
}

bool event_next(const uint8_t *data, size_t bytes, size_t *at, struct event *e_out,
                const char **wrong_out)
{
    const uint8_t *p = data + *at;
    uint64_t n;

    *wrong_out = "";
    memset(e_out, 0, sizeof(*e_out));
    if (*at == bytes)
        return false;
    *wrong_out = "torn";
    if (bytes - *at < 16 || (n = little(p, 8)) > bytes - *at - 16)
        return false;
    *wrong_out = "checksum";
    if (!crc_fits(p + 8, p, 8) || !crc_fits(p + 12 + n, p + 12, (size_t)n))
        return false;
    *wrong_out = "";
    read_event((struct cursor){ p + 12, p + 12 + n, false }, e_out);
    *at += (size_t)n + 16;
    return true;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * See queue_record.h. Memory is watched in cells of 16 bytes; each keeps the last write
 * and the last read per queue as places on that queue's own clock, and each queue knows
 * how far it is behind every other one: what events say, and nothing else.
 */
#include "tests/unit/queue_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers/wire.h"

#define CELL   16
#define SLOTS  (1 << 17) /* of the table from address to cell */
#define RANGES 8

enum entry_kind { ENTRY_KERNEL, ENTRY_RECORD, ENTRY_WAIT };

struct backend_event {
    int number;
};

/* Cells [first, first + count) of queue_record.cells. */
struct range {
    int first, count;
    bool write;
};

struct entry {
    enum entry_kind kind;
    enum backend_queue queue;
    const char *name;
    int event;
    int ranges;
    struct range range[RANGES];
};

struct queue_record {
    struct backend be, cpu;
    enum backend_queue now;
    struct entry *entry;
    int entries, waits, events;
    uintptr_t *table; /* [SLOTS] address / CELL, 0: free */
    int *cell_of;     /* [SLOTS] its number */
    int cells;
    int *list; /* cells of all ranges, one range after the other */
    int listed;
};

static struct queue_record *the; /* vtable functions get a const backend */

static const char *const queue_name[] = { "compute", "gather", "reduce", "copy",
                                          "save" };

/* ---- writing down ---------------------------------------------------------------- */

static void *grow(void *p, int count, size_t one)
{
    if (count & (count - 1)) /* room doubles at powers of two */
        return p;
    p = realloc(p, (count ? 2 * (size_t)count : 1) * one);
    if (!p)
        abort();
    return p;
}

static struct entry *add(enum entry_kind kind, enum backend_queue q, const char *name)
{
    struct entry *e;

    the->entry = grow(the->entry, the->entries, sizeof(*the->entry));
    e = &the->entry[the->entries++];
    *e = (struct entry){ .kind = kind, .queue = q, .name = name };
    return e;
}

static int cell_at(uintptr_t key)
{
    size_t i = key * 0x9e3779b97f4a7c15u >> 47;

    while (the->table[i] && the->table[i] != key)
        i = (i + 1) % SLOTS;
    if (!the->table[i]) {
        the->table[i] = key;
        the->cell_of[i] = the->cells++;
        if (the->cells > SLOTS / 2)
            abort();
    }
    return the->cell_of[i];
}

static void touch(struct entry *e, const void *p, size_t bytes, bool write)
{
    uintptr_t from = (uintptr_t)p / CELL, to = ((uintptr_t)p + bytes + CELL - 1) / CELL;
    struct range *r = &e->range[e->ranges++];

    *r = (struct range){ the->listed, 0, write };
    for (uintptr_t k = from; bytes && k < to; k++) {
        the->list = grow(the->list, the->listed, sizeof(*the->list));
        the->list[the->listed++] = cell_at(k);
        r->count++;
    }
}

void queue_record_kernel(struct queue_record *r, const char *name, const void *in,
                         size_t in_bytes, void *out, size_t out_bytes)
{
    struct entry *e = add(ENTRY_KERNEL, r->now, name);

    touch(e, in, in_bytes, false);
    touch(e, out, out_bytes, true);
}

/* ---- the vtable ------------------------------------------------------------------ */

static void use(const struct backend *be, enum backend_queue q)
{
    (void)be;
    the->now = q;
}

static struct backend_event *event_new(const struct backend *be)
{
    struct backend_event *e = malloc(sizeof(*e));

    (void)be;
    if (!e)
        abort();
    e->number = the->events++;
    return e;
}

static void event_free(const struct backend *be, struct backend_event *e)
{
    (void)be;
    free(e);
}

static void record(const struct backend *be, struct backend_event *e,
                   enum backend_queue q)
{
    (void)be;
    add(ENTRY_RECORD, q, "record")->event = e->number;
}

static void wait(const struct backend *be, enum backend_queue q,
                 struct backend_event *e)
{
    (void)be;
    add(ENTRY_WAIT, q, "wait")->event = e->number;
    the->waits++;
}

static void copy(const struct backend *be, void *dst, const void *src, size_t bytes)
{
    queue_record_kernel(the, "copy", src, bytes, dst, bytes);
    the->cpu.copy(be, dst, src, bytes);
}

static void from_host(const struct backend *be, void *dst, const void *host,
                      size_t bytes)
{
    queue_record_kernel(the, "from_host", NULL, 0, dst, bytes);
    the->cpu.from_host(be, dst, host, bytes);
}

static void to_host_bytes(const struct backend *be, void *host, const void *src,
                          size_t bytes)
{
    queue_record_kernel(the, "to_host", src, bytes, NULL, 0);
    the->cpu.to_host_bytes(be, host, src, bytes);
}

static void zero(const struct backend *be, void *dst, size_t bytes)
{
    queue_record_kernel(the, "zero", NULL, 0, dst, bytes);
    the->cpu.zero(be, dst, bytes);
}

static void narrow(const struct backend *be, void *dst, accel_dtype_t type,
                   const float *src, int64_t n)
{
    queue_record_kernel(the, "narrow", src, (size_t)n * 4, dst, (size_t)n * 2);
    the->cpu.narrow(be, dst, type, src, n);
}

static void narrow_parts(const struct backend *be, void *dst, accel_dtype_t type,
                         const float *src, int count, int64_t n)
{
    queue_record_kernel(the, "narrow_parts", src, (size_t)(count * n) * 4, dst,
                        (size_t)count * wire_bytes((size_t)n, type));
    the->cpu.narrow_parts(be, dst, type, src, count, n);
}

static void scale(const struct backend *be, float *x, int64_t n, float by)
{
    queue_record_kernel(the, "scale", NULL, 0, x, (size_t)n * 4);
    the->cpu.scale(be, x, n, by);
}

static void sum_parts(const struct backend *be, float *out, bool accumulate,
                      const float *first, const void *parts, accel_dtype_t type,
                      int count, int64_t n, float by)
{
    queue_record_kernel(the, "sum_parts", parts,
                        (size_t)count * wire_bytes((size_t)n, type), out,
                        (size_t)n * sizeof(*out));
    the->cpu.sum_parts(be, out, accumulate, first, parts, type, count, n, by);
}

static void sumsq(const struct backend *be, double *sum_out, const struct span *x,
                  int count)
{
    for (int i = 0; i < count; i++)
        queue_record_kernel(the, "sumsq", x[i].x, (size_t)x[i].n * 4, NULL, 0);
    the->cpu.sumsq(be, sum_out, x, count);
}

static void touch_scaled(struct entry *e, struct scaled x, int64_t n, bool write)
{
    touch(e, x.data, x.data ? (size_t)n * accel_dtype_bytes(x.type) : 0, write);
    touch(e, x.exponent, x.data ? scaled_blocks(n) : 0, write);
}

static void update(const struct backend *be, const struct update_span *x, int count,
                   const struct optim_step *k)
{
    for (int i = 0; i < count; i++) {
        struct entry *e = add(ENTRY_KERNEL, the->now, "update");
        float *const array[] = { x[i].p, x[i].m.data, x[i].v.data, x[i].g };

        for (int a = 0; a < 4; a++)
            touch(e, array[a], array[a] ? (size_t)x[i].n * 4 : 0, true);
        if (x[i].scaled) {
            touch_scaled(e, x[i].scaled->master, x[i].n, true);
            touch_scaled(e, x[i].scaled->gradient, x[i].n, false);
        }
    }
    the->cpu.update(be, x, count, k);
}

static void record_widen(const struct backend *be, void *dst, accel_dtype_t type,
                         struct scaled src, int64_t n)
{
    struct entry *e = add(ENTRY_KERNEL, the->now, "scaled_widen");

    touch_scaled(e, src, n, false);
    touch(e, dst, (size_t)n * accel_dtype_bytes(type), true);
    the->cpu.scaled_widen(be, dst, type, src, n);
}

static struct entry *add_scaled(const char *name, struct scaled dst, const float *src,
                                int64_t n)
{
    struct entry *e = add(ENTRY_KERNEL, the->now, name);

    touch(e, src, (size_t)n * sizeof(*src), false);
    touch_scaled(e, dst, n, true);
    return e;
}

static void record_narrow(const struct backend *be, struct scaled dst, const float *src,
                          int64_t n, bool squares)
{
    add_scaled("scaled_narrow", dst, src, n);
    the->cpu.scaled_narrow(be, dst, src, n, squares);
}

static void record_narrow_sum(const struct backend *be, struct scaled dst,
                              const float *src, int64_t n, int64_t first, uint32_t sums)
{
    add_scaled("scaled_narrow_sum", dst, src, n);
    the->cpu.scaled_narrow_sum(be, dst, src, n, first, sums);
}

static void quantize(const struct backend *be, void *dst, accel_dtype_t to,
                     const void *src, accel_dtype_t type, int64_t n, const float *scale,
                     float *amax)
{
    struct entry *e = add(ENTRY_KERNEL, the->now, "quantize");

    touch(e, src, (size_t)n * accel_dtype_bytes(type), false);
    touch(e, scale, scale ? sizeof(*scale) : 0, false);
    touch(e, dst, dst ? (size_t)n : 0, true);
    touch(e, amax, amax ? sizeof(*amax) : 0, true);
    the->cpu.quantize(be, dst, to, src, type, n, scale, amax);
}

static void scale_of(const struct backend *be, float *dst, accel_dtype_t to, bool power,
                     const float *amax)
{
    queue_record_kernel(the, "scale_of", amax, sizeof(*amax), dst, 2 * sizeof(*dst));
    the->cpu.scale_of(be, dst, to, power, amax);
}

struct queue_record *queue_record_open(const struct backend *be,
                                       const struct backend **recording_out)
{
    struct queue_record *r = calloc(1, sizeof(*r));

    if (!r)
        abort();
    the = r;
    r->table = calloc(SLOTS, sizeof(*r->table));
    r->cell_of = calloc(SLOTS, sizeof(*r->cell_of));
    if (!r->table || !r->cell_of)
        abort();
    r->be = r->cpu = *be;
    r->be.device = true; /* nobody may look at its memory */
    r->be.use = use;
    r->be.event_new = event_new;
    r->be.event_free = event_free;
    r->be.record = record;
    r->be.wait = wait;
    r->be.copy = copy;
    r->be.from_host = from_host;
    r->be.to_host_bytes = to_host_bytes;
    r->be.zero = zero;
    r->be.narrow = narrow;
    r->be.narrow_parts = narrow_parts;
    r->be.scale = scale;
    r->be.sum_parts = sum_parts;
    r->be.sumsq = sumsq;
    r->be.update = update;
    r->be.scaled_widen = record_widen;
    r->be.scaled_narrow = record_narrow;
    r->be.scaled_narrow_sum = record_narrow_sum;
    r->be.quantize = quantize;
    r->be.scale_of = scale_of;
    *recording_out = &r->be;
    return r;
}

void queue_record_close(struct queue_record *r)
{
    free(r->entry);
    free(r->table);
    free(r->cell_of);
    free(r->list);
    free(r);
}

/* ---- judging --------------------------------------------------------------------- */

struct cell {
    int write_queue;
    int written;           /* place on that queue's clock; 0: never */
    int read[QUEUE_COUNT]; /* the same per queue */
    const char *writer, *reader[QUEUE_COUNT];
};

struct clocks {
    int of[QUEUE_COUNT]; /* how far this queue is behind each; itself: its own clock */
};

/* Names what is not ordered before `e`, or NULL. Then notes e's own access. */
static const char *access_cell(struct cell *c, const struct clocks *now,
                               const struct entry *e, bool write)
{
    const char *other = NULL;

    if (c->written > now->of[c->write_queue])
        other = c->writer;
    for (int q = 0; write && !other && q < QUEUE_COUNT; q++)
        if (c->read[q] > now->of[q])
            other = c->reader[q];
    if (write) {
        c->write_queue = (int)e->queue;
        c->written = now->of[e->queue];
        c->writer = e->name;
    } else {
        c->read[e->queue] = now->of[e->queue];
        c->reader[e->queue] = e->name;
    }
    return other;
}

static bool kernel_ordered(const struct queue_record *r, const struct entry *e,
                           struct cell *cell, struct clocks *now, char why[160])
{
    now->of[e->queue]++;
    for (int i = 0; i < e->ranges; i++)
        for (int k = 0; k < e->range[i].count; k++) {
            const char *other = access_cell(&cell[r->list[e->range[i].first + k]], now,
                                            e, e->range[i].write);

            if (!other)
                continue;
            snprintf(why, 160, "entry %d, %s on %s %s what %s has not finished with",
                     (int)(e - r->entry), e->name, queue_name[e->queue],
                     e->range[i].write ? "changes" : "reads", other);
            return false;
        }
    return true;
}

bool queue_record_ordered(const struct queue_record *r, int skip, char why[160])
{
    struct clocks queue[QUEUE_COUNT] = { 0 };
    struct clocks *event = calloc((size_t)r->events + 1, sizeof(*event));
    struct cell *cell = calloc((size_t)r->cells + 1, sizeof(*cell));
    int waits = 0;
    bool fine = event && cell;

    for (int i = 0; fine && i < r->entries; i++) {
        const struct entry *e = &r->entry[i];
        struct clocks *now = &queue[e->queue];

        if (e->kind == ENTRY_KERNEL)
            fine = kernel_ordered(r, e, cell, now, why);
        else if (e->kind == ENTRY_RECORD)
            event[e->event] = *now;
        else if (waits++ != skip)
            for (int q = 0; q < QUEUE_COUNT; q++)
                if (event[e->event].of[q] > now->of[q])
                    now->of[q] = event[e->event].of[q];
    }
    free(event);
    free(cell);
    return fine;
}

int queue_record_waits(const struct queue_record *r)
{
    return r->waits;
}

const char *queue_record_wait_text(const struct queue_record *r, int wait_number)
{
    static char text[64];

    for (int i = 0, n = 0; i < r->entries; i++) {
        const struct entry *e = &r->entry[i];

        if (e->kind != ENTRY_WAIT || n++ != wait_number)
            continue;
        snprintf(text, sizeof(text), "entry %d: %s waits for event %d", i,
                 queue_name[e->queue], e->event);
        break;
    }
    return text;
}

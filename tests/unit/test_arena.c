/* SPDX-License-Identifier: Apache-2.0
 *
 * The arena under random allocation: blocks never overlap, keep their bytes, merge when
 * freed; counting mode places and counts exactly as the real one.
 */
#include <string.h>

#include "backend/device.h"
#include "tensor/graph.h"
#include "tests/tap.h"

#define SLOTS 200
#define TURNS 20000

struct block {
    unsigned char *p;
    size_t bytes;
};

static unsigned long long state = 12345;

static size_t draw(size_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(state >> 33) % below;
}

static bool intact(const struct block *b, unsigned char mark)
{
    for (size_t i = 0; i < b->bytes; i++)
        if (b->p[i] != mark)
            return false;
    return true;
}

static bool overlaps(const struct block *b, int self)
{
    for (int i = 0; i < SLOTS; i++)
        if (i != self && b[i].p && b[i].p < b[self].p + b[self].bytes &&
            b[self].p < b[i].p + b[i].bytes)
            return true;
    return false;
}

static void test_random(struct arena *real, struct arena *count)
{
    struct block b[SLOTS] = { 0 };
    void *twin[SLOTS] = { 0 };
    char *base = NULL, *fake = NULL;
    int broken = 0, overlapping = 0, unaligned = 0, differ = 0;

    for (int turn = 0; turn < TURNS; turn++) {
        int i = (int)draw(SLOTS);

        if (b[i].p) {
            broken += !intact(&b[i], (unsigned char)i);
            arena_free(real, b[i].p);
            arena_free(count, twin[i]);
            b[i].p = NULL;
            continue;
        }
        b[i].bytes = draw(10) ? draw(3000) : draw(60000);
        b[i].p = arena_alloc(real, b[i].bytes);
        twin[i] = arena_alloc(count, b[i].bytes);
        if (!base) { /* the first block lies at the start */
            base = (char *)b[i].p;
            fake = twin[i];
        }
        unaligned += (size_t)b[i].p % 64 != 0;
        overlapping += overlaps(b, i);
        differ += (char *)b[i].p - base != (char *)twin[i] - fake;
        memset(b[i].p, i, b[i].bytes);
    }
    tap_is_int(broken, 0, "no block was written by another");
    tap_is_int(overlapping, 0, "no two blocks overlap");
    tap_is_int(unaligned, 0, "all blocks are aligned");
    tap_is_int(differ, 0, "counting places as the real one does");
    tap_is_int((long long)arena_peak_bytes(real), (long long)arena_peak_bytes(count),
               "both report the same peak");
    for (int i = 0; i < SLOTS; i++)
        arena_free(real, b[i].p);
    tap_ok(arena_alloc(real, arena_peak_bytes(real)) == base,
           "freed blocks have merged into one");
}

static void test_edges(struct arena *a)
{
    void *p, *q, *r;

    arena_reset(a);
    p = arena_alloc(a, 0);
    q = arena_alloc(a, 100);
    r = arena_alloc(a, 64);
    tap_ok(p && q && p != q, "an empty block has an address of its own");
    arena_free(a, q);
    tap_ok(arena_alloc(a, 128) == q, "the first gap that fits is taken");
    arena_free(a, NULL);
    arena_free(a, (char *)r + 1);
    tap_ok(arena_alloc(a, 64) != r, "a stray free changes nothing");
    tap_ok(!arena_alloc(a, (size_t)1 << 60) && !arena_alloc(a, (size_t)-1),
           "more than there can be is refused");
    arena_reset(a);
    tap_ok(arena_alloc(a, 1) == p, "reset frees all");
}

/* Where the next block goes tells what the books hold. */
static void test_books(struct arena *a)
{
    char *p, *q, *r;

    arena_reset(a);
    p = arena_alloc(a, 128);
    q = arena_alloc(a, 128);
    r = arena_alloc(a, 128);
    arena_free(a, p + 64);
    arena_free(a, p + 128 - 1);
    tap_ok(arena_alloc(a, 128) != q, "a free inside of a block frees no other");
    arena_free(a, q);
    arena_reset(a);
    tap_ok(arena_alloc(a, 128) == p && arena_alloc(a, 128) == q,
           "a reset leaves no gap");
    arena_reset(a);
    p = arena_alloc(a, 64);
    q = arena_alloc(a, 64);
    r = arena_alloc(a, 64);
    arena_alloc(a, 64);
    arena_free(a, p);
    arena_free(a, r);
    arena_free(a, q);
    tap_ok(arena_alloc(a, 192) == p, "three neighbours are one gap");
}

static void test_peak(void)
{
    struct arena *a = NULL;
    void *p;

    if (arena_open(&a, NULL, NULL))
        return;
    tap_is_int((long long)arena_peak_bytes(a), 0, "nothing yet");
    arena_alloc(a, 1000);
    p = arena_alloc(a, 1);
    tap_is_int((long long)arena_peak_bytes(a), 1024 + 64, "the peak");
    arena_free(a, p);
    arena_alloc(a, 64);
    tap_is_int((long long)arena_peak_bytes(a), 1024 + 64, "is no sum");
    arena_reset(a);
    arena_alloc(a, 2000);
    tap_is_int((long long)arena_peak_bytes(a), 2048, "of all micro-batches");
    arena_close(a);
}

/* Memory goes back and comes again at the same addresses. */
static void test_trim(struct arena *a)
{
    const size_t bytes = 3 * BACKEND_STEP;
    char *p, *q;

    arena_reset(a);
    arena_trim(a);
    p = arena_alloc(a, bytes);
    memset(p, 7, bytes);
    tap_is_int((long long)arena_trim(a), 0, "blocks in use are kept");
    tap_is_int(p[bytes - 1], 7, "with what is in them");
    arena_free(a, p);
    tap_is_int((long long)arena_trim(a), (long long)bytes, "all goes back");
    tap_is_int((long long)arena_trim(a), 0, "once");
    q = arena_alloc(a, bytes);
    tap_ok(q == p && q[0] == 0 && q[bytes - 1] == 0, "and comes again at its place");
    arena_reset(a);
}

int main(void)
{
    struct arena *real = NULL, *count = NULL;
    struct backend *be = NULL;
    accel_error_t err = { 0 };

    if (!tap_ok(!backend_cpu_open(&be, 1, &err) && !arena_open(&real, be, &err) &&
                    !arena_open(&count, NULL, &err),
                "open %s", err.text))
        return tap_done();
    test_random(real, count);
    test_edges(real);
    test_books(real);
    test_peak();
    test_trim(real);
    tap_is_int((long long)arena_trim(count), 0, "there is nothing behind numbers");
    arena_close(real);
    arena_close(count);
    arena_close(NULL);
    backend_close(be);
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A loader in the steady state allocates nothing, with threads, buckets, padding and a
 * change of epoch: this program's malloc family counts its calls. What it holds is what
 * the plan counts.
 */
#include <stdlib.h>

#include "loader/loader.h"
#include "backend/device.h"
#include "data/data.h"
#include "observe/observe.h"
#include "tests/tap.h"
#include "tests/world/loader_world.h"
#include "tests/unit/malloc_count.h"

enum { SAMPLES = 60, LONGEST = 16 };

static int steady_fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    for (int i = 0; i < LONGEST; i++)
        ((float *)dst[0])[i] = (float)index;
    return 0;
}

static int64_t steady_length(void *user, int64_t index, void *const *sample)
{
    (void)user, (void)sample;
    return 1 + index % LONGEST;
}

static int epoch_of(struct loader_rig *r, struct accel_loader *l)
{
    accel_tensor_t *t;
    bool got = true;
    int batches = 0;

    for (; got; batches++) {
        graph_reset(&r->g);
        if (loader_advance(l, &got, NULL) || (got && loader_tensors(l, &t, NULL)))
            return -1;
    }
    return batches - 1;
}

static void test_steady(const char *name, accel_loader_options_t o, int want)
{
    static const accel_field_t field = { ACCEL_F32, 1, { LONGEST } };
    struct accel_loader *l = NULL;
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };
    struct loader_rig r;
    int from, batches = 0;

    if (loader_rig_open(&r, NULL, ACCEL_BF16) ||
        accel_dataset_new(&d, SAMPLES, &field, 1, steady_fetch, NULL, 0, &err) ||
        accel_dataset_set_threads(d, 4, &err) ||
        loader_open(&l, &r.place, "steady", d, &o, &err)) {
        tap_ok(false, "%s: %s", name, err.text);
        return;
    }
    epoch_of(&r, l);
    from = malloc_calls();
    for (int epoch = 0; epoch < 5; epoch++)
        batches += epoch_of(&r, l);
    tap_is_int(batches, want, "%s: five epochs", name);
    tap_is_int(malloc_calls() - from, 0, "%s: no allocation", name);
    tap_ok(from > 0, "%s: calls are counted", name);
    loader_free(l);
    accel_dataset_close(d);
    loader_rig_close(&r);
}

/* Large samples, beside which the stacks and heaps of threads are small. */
enum { WIDE = 1 << 18, MANY = 1 << 20 };

static int wide_fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    for (int i = 0; i < WIDE; i++)
        ((float *)dst[0])[i] = (float)(index + i);
    return 0;
}

/* Batches of 4 MiB, one given out and three ahead, and a table of 8 MiB. */
static void test_memory(void)
{
    static const accel_field_t field = { ACCEL_F32, 1, { WIDE } };
    const accel_loader_options_t o = { .batch = 16,
                                       .prefetch = 3,
                                       .sampler = ACCEL_SAMPLER_TORCH };
    struct accel_loader *l = NULL;
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };
    struct loader_rig r;
    int64_t held, counted = 0;
    bool got = true;

    if (loader_rig_open(&r, NULL, ACCEL_F32))
        return;
    held = observe_memory(NULL);
    if (accel_dataset_new(&d, MANY, &field, 1, wide_fetch, NULL, 0, &err) ||
        loader_open(&l, &r.place, "wide", d, &o, &err)) {
        tap_ok(false, "%s", err.text);
        return;
    }
    for (int i = 0; i < 6 && got; i++)
        if (loader_advance(l, &got, &err))
            tap_diag("%s", err.text);
    held = observe_memory(NULL) - held;
    counted = loader_memory(l).host;
    tap_ok(counted > held * 97 / 100 && counted < held * 103 / 100,
           "%lld bytes counted, %lld held", (long long)counted, (long long)held);
    tap_is_int(loader_memory(l).device, 0, "none of a device");
    loader_free(l);
    accel_dataset_close(d);
    loader_rig_close(&r);
}

int main(void)
{
    malloc_calls(); /* skips here where nothing is counted */
    test_steady("keyed", (accel_loader_options_t){ .batch = 7 }, 45);
    test_steady("threads",
                (accel_loader_options_t){ .batch = 7, .prefetch = 3, .threads = 2 },
                45);
    test_steady("torch's order",
                (accel_loader_options_t){ .batch = 7, .sampler = ACCEL_SAMPLER_TORCH },
                45);
    test_steady("buckets and padding",
                (accel_loader_options_t){ .batch = 4,
                                          .bucket = 20,
                                          .length = steady_length,
                                          .pad = 1,
                                          .prefetch = 3,
                                          .threads = 2 },
                75);
    test_memory();
    return tap_done();
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What reading ahead hides: batches whose fetch takes a time of its own before steps of
 * 10 ms, with no thread, one and two. Prints milliseconds per batch; and what a loader
 * itself costs per batch when the fetch takes no time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "backend/device.h"
#include "data/data.h"
#include "loader/loader.h"

enum { STEP_US = 10000, BATCHES = 100, WIDTH = 1024 };

static void pause_for(long us)
{
    const struct timespec t = { us / 1000000, us % 1000000 * 1000 };

    if (us > 0)
        nanosleep(&t, NULL);
}

static int bench_fetch(void *user, int64_t index, void *const *dst)
{
    pause_for(*(long *)user);
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst[0])[i] = (float)index;
    return 0;
}

/* Milliseconds per batch of one sample. Ends the program on failure. */
static double per_batch(const struct loader_place *place, long fetch_us, long step_us,
                        int threads, int batches)
{
    static const accel_field_t field = { ACCEL_F32, 1, { WIDTH } };
    const accel_loader_options_t o = { .batch = 1,
                                       .prefetch = threads ? 4 : 0,
                                       .threads = threads };
    struct accel_loader *l = NULL;
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };
    accel_tensor_t *t;
    int64_t start = 0;
    bool got;

    if (accel_dataset_new(&d, batches + 1, &field, 1, bench_fetch, &fetch_us, 0,
                          &err) ||
        accel_dataset_set_threads(d, 2, &err) ||
        loader_open(&l, place, "bench", d, &o, &err))
        exit(accel_report(&err));
    for (int i = 0; i <= batches; i++) {
        graph_reset(place->graph);
        if (loader_advance(l, &got, &err) || loader_tensors(l, &t, &err))
            exit(accel_report(&err));
        pause_for(step_us);
        if (i == 0)
            start = clock_ns();
    }
    start = clock_ns() - start;
    loader_free(l);
    accel_dataset_close(d);
    return (double)start / 1e6 / batches;
}

int main(void)
{
    static const long fetch_us[] = { 5000, 9000, 15000 };
    struct loader_failure failure = { 0 };
    struct backend *be = NULL;
    struct graph g = { 0 };
    struct loader_place place = { .graph = &g, .ranks = 1, .failure = &failure };
    accel_error_t err = { 0 };

    if (backend_cpu_open(&be, 1, &err) || graph_open(&g, be, ACCEL_F32, false, &err))
        return accel_report(&err);
    printf("ms per batch, steps of %d ms\nfetch   no thread   1 thread   2 threads\n",
           STEP_US / 1000);
    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(fetch_us); i++)
        printf("%2ld ms   %9.2f   %8.2f   %9.2f\n", fetch_us[i] / 1000,
               per_batch(&place, fetch_us[i], STEP_US, 0, BATCHES),
               per_batch(&place, fetch_us[i], STEP_US, 1, BATCHES),
               per_batch(&place, fetch_us[i], STEP_US, 2, BATCHES));
    printf("a batch of 4 KiB without fetch or step: %.2f us, %.2f us, %.2f us\n",
           1e3 * per_batch(&place, 0, 0, 0, 20000),
           1e3 * per_batch(&place, 0, 0, 1, 20000),
           1e3 * per_batch(&place, 0, 0, 2, 20000));
    graph_close(&g);
    backend_close(be);
    return 0;
}

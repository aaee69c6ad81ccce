/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaders on a device: batches arrive on the copy queue, while the kernels of the batch
 * before may still read theirs.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "data/data.h"
#include "loader/loader.h"
#include "tests/tap.h"
#include "tests/world/cuda_device.h"

/* a batch is larger than what the device takes in small pieces */
enum { SAMPLES = 12, BATCH = 4, WIDTH = 200000 };

static int wide_fetch(void *user, int64_t index, void *const *dst)
{
    (void)user;
    *(int32_t *)dst[0] = (int32_t)index;
    for (int i = 0; i < WIDTH; i++)
        ((float *)dst[1])[i] = (float)(index + i % 64);
    return 0;
}

/* Values of one batch that are not those of its samples. */
static int64_t wrong_in(const accel_tensor_t *number, const accel_tensor_t *t,
                        float *host)
{
    accel_error_t err = { 0 };
    float n[BATCH];
    int64_t wrong = 0;

    if (accel_tensor_read(number, n, BATCH, &err) ||
        accel_tensor_read(t, host, (size_t)t->elems, &err)) {
        tap_diag("%s", err.text);
        return -1;
    }
    for (int64_t i = 0; i < t->elems; i++)
        wrong += host[i] != n[i / WIDTH] + (float)(i % WIDTH % 64);
    return wrong;
}

static void test_device(struct backend *be, accel_dtype_t compute, int prefetch)
{
    static const accel_field_t field[2] = { { .dtype = ACCEL_I32 },
                                            { ACCEL_F32, 1, { WIDTH } } };
    const accel_loader_options_t o = { .batch = BATCH,
                                       .prefetch = prefetch,
                                       .seed = 4 };
    float *host = malloc(sizeof(float) * BATCH * WIDTH);
    struct loader_failure failure = { 0 };
    struct graph g = { 0 };
    struct loader_place place = { .graph = &g, .ranks = 1, .failure = &failure };
    struct accel_loader *l = NULL;
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };
    int64_t wrong = 0;
    int batches = 0;

    if (!host || graph_open(&g, be, compute, false, &err) ||
        accel_dataset_new(&d, SAMPLES, field, 2, wide_fetch, NULL, 0, &err) ||
        loader_open(&l, &place, "device", d, &o, &err)) {
        tap_ok(false, "open: %s", err.text);
        exit(tap_done());
    }
    for (int i = 0; i < 4 * (SAMPLES / BATCH + 1); i++) {
        accel_tensor_t *t[2];
        bool got;

        graph_reset(&g);
        if (loader_advance(l, &got, &err) || (got && loader_tensors(l, t, &err)))
            break;
        if (!got)
            continue;
        batches++;
        wrong += wrong_in(t[0], t[1], host);
    }
    tap_is_int(batches, 4 * SAMPLES / BATCH, "%s, %d ahead: batches %s",
               accel_dtype_name(compute), prefetch, err.text);
    tap_is_int(wrong, 0, "with their values");
    tap_ok(!be->sync(be, &err), "and the device is well %s", err.text);
    loader_free(l);
    accel_dataset_close(d);
    graph_close(&g);
    free(host);
}

/* Three batches are queued before anything is read: the third takes the buffer of the
 * first. */
static void test_queued(struct backend *be)
{
    static const accel_field_t field[2] = { { .dtype = ACCEL_I32 },
                                            { ACCEL_F32, 1, { WIDTH } } };
    const accel_loader_options_t o = { .batch = BATCH };
    float *host = malloc(sizeof(float) * BATCH * WIDTH);
    struct loader_failure failure = { 0 };
    struct graph g = { 0 };
    struct loader_place place = { .graph = &g, .ranks = 1, .failure = &failure };
    struct accel_loader *l = NULL;
    accel_dataset_t *d = NULL;
    accel_error_t err = { 0 };
    struct backend_usage before, after;
    accel_tensor_t *t[3][2];
    int64_t wrong = 0, held, counted;
    bool got;

    be->usage(be, &before);
    if (!host || graph_open(&g, be, ACCEL_F32, false, &err) ||
        accel_dataset_new(&d, SAMPLES, field, 2, wide_fetch, NULL, 0, &err) ||
        loader_open(&l, &place, "queued", d, &o, &err)) {
        tap_ok(false, "open: %s", err.text);
        exit(tap_done());
    }
    be->usage(be, &after);
    held = (int64_t)(after.held[MEMORY_WORK] - before.held[MEMORY_WORK]);
    counted = loader_memory(l).device;
    tap_ok(counted > held * 97 / 100 && counted < held * 103 / 100,
           "%lld bytes counted, %lld held", (long long)counted, (long long)held);
    for (int i = 0; i < 3; i++)
        if (loader_advance(l, &got, &err) || loader_tensors(l, t[i], &err))
            wrong++;
    for (int i = 0; i < 3 && wrong == 0; i++)
        wrong += wrong_in(t[i][0], t[i][1], host);
    tap_is_int(wrong, 0, "three batches at once %s", err.text);
    loader_free(l);
    accel_dataset_close(d);
    graph_close(&g);
    free(host);
}

int main(void)
{
    struct backend *be = cuda_device();

    test_device(be, ACCEL_F32, 0);
    test_device(be, ACCEL_F32, 2);
    test_device(be, ACCEL_BF16, 2);
    test_queued(be);
    backend_close(be);
    return tap_done();
}

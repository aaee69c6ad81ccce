/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaders without a run: see loader_world.h.
 */
#include <time.h>

#include "loader/loader.h"
#include "backend/device.h"
#include "data/data.h"
#include "tests/world/loader_world.h"

int loader_rig_open(struct loader_rig *r, struct boot *b, accel_dtype_t compute)
{
    struct comm_options o = { .timeout_ms = HANG_S * 1000 };
    accel_error_t err = { 0 };

    *r = (struct loader_rig){ .place = { .ranks = 1 } };
    EXPECT(!backend_cpu_open(&r->be, 1, &err) &&
               !graph_open(&r->g, r->be, compute, false, &err),
           "%s", err.text);
    if (b) {
        EXPECT(!comm_open(&r->comm, b, &o, &err), "%s", err.text);
        r->place.rank = b->rank;
        r->place.ranks = b->size;
    }
    r->place.graph = &r->g;
    r->place.comm = r->comm;
    r->place.failure = &r->failure;
    return 0;
}

void loader_rig_close(struct loader_rig *r)
{
    graph_close(&r->g);
    comm_close(r->comm);
    backend_close(r->be);
}

static void pause_us(int us)
{
    const struct timespec t = { us / 1000000, us % 1000000 * 1000L };

    if (us > 0)
        nanosleep(&t, NULL);
}

static int counter_fetch(void *user, int64_t index, void *const *dst)
{
    struct counter *c = user;
    int now = atomic_fetch_add(&c->busy, 1) + 1, most = atomic_load(&c->most);

    while (now > most && !atomic_compare_exchange_weak(&c->most, &most, now))
        continue;
    pause_us(c->sleep_us);
    *(int32_t *)dst[0] = (int32_t)index;
    atomic_fetch_sub(&c->busy, 1);
    return index == c->fails ? 7 : 0;
}

static int counter_next(void *user, void *const *dst)
{
    struct counter *c = user;

    if (c->at == c->samples)
        return 0;
    pause_us(c->sleep_us);
    *(int32_t *)dst[0] = (int32_t)c->at;
    return c->at++ == c->fails ? 7 : 1;
}

static int counter_rewind(void *user, int64_t epoch)
{
    struct counter *c = user;

    (void)epoch;
    c->at = 0;
    return 0;
}

static const accel_field_t one_number = { .dtype = ACCEL_I32 };

accel_dataset_t *counter_numbered(struct counter *c, int threads)
{
    accel_dataset_t *d = NULL;

    if (accel_dataset_new(&d, c->samples, &one_number, 1, counter_fetch, c, 0, NULL) ||
        accel_dataset_set_threads(d, threads, NULL))
        return NULL;
    return d;
}

accel_dataset_t *counter_stream(struct counter *c)
{
    accel_iterable_t source = { sizeof(source), counter_next, counter_rewind, c,
                                c->announced ? c->samples : 0 };
    accel_dataset_t *d = NULL;

    accel_dataset_iterable_new(&d, &source, &one_number, 1, NULL);
    return d;
}

int loader_batch(struct loader_rig *r, struct accel_loader *l, int *values_out,
                 int room, accel_error_t *err)
{
    accel_tensor_t *t;
    bool got;

    graph_reset(&r->g);
    if (loader_advance(l, &got, err))
        return -1;
    if (!got)
        return -2;
    if (loader_tensors(l, &t, err) || t->elems > room)
        return -1;
    for (int64_t i = 0; i < t->elems; i++)
        values_out[i] = ((int32_t *)t->data)[i];
    return (int)t->elems;
}

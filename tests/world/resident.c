/* SPDX-License-Identifier: Apache-2.0
 *
 * See resident.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "numbers/floats.h"
#include "tests/world/resident.h"

/* splitmix64: enough for test values. */
static double uniform(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return ((double)(x >> 11) + 0.5) / 9007199254740992.0;
}

static void fill(float *to, const accel_tensor_t *t, uint64_t key)
{
    for (int64_t i = 0; i < t->elems; i++) {
        double u = uniform(key + 2 * (uint64_t)i);
        double v = uniform(key + 2 * (uint64_t)i + 1);

        switch (t->init.kind) {
        case ACCEL_INIT_ZEROS:
            to[i] = 0.0f;
            break;
        case ACCEL_INIT_CONSTANT:
            to[i] = t->init.scale;
            break;
        case ACCEL_INIT_ONES:
            to[i] = 1.0f;
            break;
        case ACCEL_INIT_NORMAL:
            to[i] =
                (float)(t->init.scale * sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
            break;
        case ACCEL_INIT_UNIFORM:
            to[i] = (float)(t->init.scale * (2 * u - 1));
            break;
        }
    }
}

static int alloc_unit(struct resident *r, int u)
{
    size_t bytes = (size_t)r->units->unit[u].elems * sizeof(float);
    void *sum = r->grad[u];

    if (r->be->alloc(r->be, MEMORY_PARAMETERS, bytes, &r->data[u], NULL) ||
        (r->be->device && r->be->alloc(r->be, MEMORY_GRADIENTS, bytes, &sum, NULL)))
        return -1;
    r->sum[u] = sum;
    return 0;
}

int resident_open(struct resident *r, const struct units *units, accel_dtype_t compute,
                  unsigned seed)
{
    size_t n = (size_t)units->count;

    memset(r, 0, sizeof(*r));
    r->units = units;
    r->compute = compute;
    r->master = calloc(n, sizeof(*r->master));
    r->grad = calloc(n, sizeof(*r->grad));
    r->sum = calloc(n, sizeof(*r->sum));
    r->data = calloc(n, sizeof(*r->data));
    r->open = calloc(n, sizeof(*r->open));
    if (!r->master || !r->grad || !r->sum || !r->data || !r->open)
        return -1;
    r->be = units->unit[0].param[0]->g->backend;
    for (int u = 0; u < units->count; u++) {
        const struct unit *unit = &units->unit[u];

        r->master[u] = calloc((size_t)unit->elems, sizeof(float));
        r->grad[u] = calloc((size_t)unit->elems, sizeof(float));
        if (!r->master[u] || !r->grad[u] || alloc_unit(r, u))
            return -1;
        for (int i = 0; i < unit->param_count; i++)
            fill(r->master[u] + unit->param[i]->param->unit_offset, unit->param[i],
                 ((uint64_t)seed << 40) + ((uint64_t)u << 32) + ((uint64_t)i << 26));
    }
    resident_refresh(r);
    return 0;
}

void resident_refresh(struct resident *r)
{
    for (int u = 0; u < r->units->count; u++) {
        size_t n = (size_t)r->units->unit[u].elems;
        bool narrow = r->compute != ACCEL_F32;
        uint16_t *half = narrow ? calloc(n, sizeof(*half)) : NULL;

        if (half)
            floats_narrow(half, r->compute, r->master[u], n);
        r->be->from_host(r->be, r->data[u], narrow ? (const void *)half : r->master[u],
                         n * (narrow ? sizeof(*half) : sizeof(float)));
        free(half);
    }
}

void resident_pull(struct resident *r)
{
    for (int u = 0; r->be->device && u < r->units->count; u++)
        r->be->to_host_bytes(r->be, r->grad[u], r->sum[u],
                             (size_t)r->units->unit[u].elems * sizeof(float));
}

void resident_zero_grad(struct resident *r)
{
    for (int u = 0; u < r->units->count; u++)
        r->be->zero(r->be, r->sum[u], (size_t)r->units->unit[u].elems * sizeof(float));
}

static accel_status_t want(void *user, int unit, void **data_out, accel_error_t *err)
{
    struct resident *r = user;
    int open = 0;

    if (unit < 0 || unit >= r->units->count)
        return accel_fail(err, A0003, NULL, "no unit %d", unit);
    r->open[unit]++;
    for (int u = 0; u < r->units->count; u++)
        open += r->open[u] > 0;
    r->faults += open > 2;
    *data_out = r->data[unit];
    return ACCEL_OK;
}

static void done(void *user, int unit)
{
    struct resident *r = user;

    r->faults += --r->open[unit] < 0;
}

static accel_status_t grad(void *user, int unit, float **grad_out, accel_error_t *err)
{
    struct resident *r = user;

    (void)err;
    r->faults += r->open[unit] < 1;
    *grad_out = r->sum[unit];
    return ACCEL_OK;
}

struct residency resident_residency(struct resident *r)
{
    return (struct residency){ .user = r, .want = want, .done = done, .grad = grad };
}

void resident_close(struct resident *r)
{
    for (int u = 0; r->units && u < r->units->count; u++) {
        if (r->data)
            r->be->free(r->be, r->data[u]);
        if (r->sum && r->be->device)
            r->be->free(r->be, r->sum[u]);
        free(r->master ? r->master[u] : NULL);
        free(r->grad ? r->grad[u] : NULL);
    }
    free(r->master);
    free(r->grad);
    free(r->sum);
    free(r->data);
    free(r->open);
    memset(r, 0, sizeof(*r));
}

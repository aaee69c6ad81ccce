/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache of keys and values: size checks, memory, the count of positions. In: the
 * sizes of a model. Out: places for attention to write to. Never touches the values. A
 * cache is filled from the front; what lies beyond its length is never read.
 */
#include "ops/kv.h"

#include <stdlib.h>

accel_kv_t *kv_new(struct graph *g, int layers, int batch, int capacity, int kv_heads,
                   int head_width, accel_error_t *err)
{
    /* the product of all sizes is checked for overflow, factor by factor */
    const int size[] = { layers, batch, capacity, kv_heads, head_width };
    size_t bytes = 2 * accel_dtype_bytes(g->widest);
    accel_kv_t *kv;

    for (size_t i = 0; i < ACCEL_ARRAY_SIZE(size); i++)
        if (size[i] < 1 || __builtin_mul_overflow(bytes, (size_t)size[i], &bytes) ||
            bytes > (size_t)INT64_MAX) {
            accel_fail(err, A0605,
                       "use at least 1 for every size, and no more than fits in memory",
                       "kv cache: invalid sizes: %d layers, batch %d, capacity %d, %d "
                       "kv heads of width %d",
                       layers, batch, capacity, kv_heads, head_width);
            return NULL;
        }
    /* the struct is the host's; only the values are the device's */
    kv = calloc(1, sizeof(*kv));
    if (kv)
        *kv = (accel_kv_t){ g,          layers, batch, capacity, kv_heads,
                            head_width, 0,      NULL,  g->widest };
    if (!kv) {
        accel_fail_nomem(err, "the cache of keys and values", bytes);
        return NULL;
    }
    /* of the device, not of the arena: it outlives many forwards */
    if (g->backend->alloc(g->backend, MEMORY_WORK, bytes, &kv->data, err)) {
        free(kv);
        return NULL;
    }
    return kv;
}

/* A head's positions are adjacent, so that generation reads a head in one sweep. */
struct heads kv_heads_of(const accel_kv_t *kv, int layer, int which)
{
    /* of a layer's keys, or values; kv_new has checked that no product overflows */
    int64_t head = (int64_t)kv->capacity * kv->head_width;
    size_t half = (size_t)kv->batch * (size_t)kv->kv_heads * (size_t)head;
    size_t elem = accel_dtype_bytes(kv->type);

    return (struct heads){ (char *)kv->data +
                               ((size_t)layer * 2 + (size_t)which) * half * elem,
                           kv->kv_heads * head, kv->head_width, head };
}

int accel_kv_length(const accel_kv_t *kv)
{
    return kv ? kv->length : 0;
}

int accel_kv_capacity(const accel_kv_t *kv)
{
    return kv ? kv->capacity : 0;
}

/* Called once per forward, when every layer has appended. */
accel_status_t accel_kv_advance(accel_kv_t *kv, int positions, accel_error_t *err)
{
    /* the comparison by subtraction cannot overflow */
    if (!kv || positions < 0 || positions > kv->capacity - kv->length)
        return accel_fail(err, A0605,
                          "advance by the number of positions of the last forward",
                          "kv cache: cannot advance by %d positions: %d of %d are used",
                          positions, accel_kv_length(kv), accel_kv_capacity(kv));
    /* after the last layer: all of them wrote to the same positions */
    kv->length += positions;
    return ACCEL_OK;
}

/* Values beyond `length` stay in memory, to be overwritten by the next append. */
accel_status_t accel_kv_trim(accel_kv_t *kv, int length, accel_error_t *err)
{
    if (!kv || length < 0 || length > kv->length)
        return accel_fail(err, A0605, "trim to at most accel_kv_length",
                          "kv cache: cannot trim to %d positions: it holds %d", length,
                          accel_kv_length(kv));
    kv->length = length;
    return ACCEL_OK;
}

void accel_kv_free(accel_kv_t *kv)
{
    if (!kv)
        return;
    kv->g->backend->free(kv->g->backend, kv->data);
    free(kv);
}

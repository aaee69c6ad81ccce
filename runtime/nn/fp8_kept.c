/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8 weights that are kept from one change of the weights to the next: each is
 * quantised once for all micro-batches and for both of its matmuls. In: linears and a
 * backend. Out: memory, which ops/ fills.
 */
#include "backend/device.h"
#include "nn/fp8_linears.h"
#include "ops/linear_fp8.h"

/* Where the next copy begins: as aligned as any memory of a device. */
#define KEPT_ALIGN 256

static int64_t aligned(int64_t bytes)
{
    return (bytes + KEPT_ALIGN - 1) / KEPT_ALIGN * KEPT_ALIGN;
}

int64_t fp8_linears_keep(struct fp8_linears *l, const struct backend *be, bool keep)
{
    int64_t all = 0;

    for (int i = 0; i < 2 * l->count; i++) {
        const int64_t bytes = fp8_weight_bytes(be, l->weight[i / 2], i % 2);

        l->linear[i / 2].kept_bytes[i % 2] = keep ? bytes : 0;
        all += aligned(bytes);
    }
    l->kept_bytes = keep ? all : 0;
    return all;
}

accel_status_t fp8_linears_room(struct fp8_linears *l, const struct backend *be,
                                accel_error_t *err)
{
    char *at;
    accel_status_t st;

    if (!l->kept_bytes)
        return ACCEL_OK;
    ACCEL_CHECK(st,
                be->alloc(be, MEMORY_GATHERED, (size_t)l->kept_bytes, &l->kept, err));
    l->kept_be = be;
    at = l->kept;
    for (int i = 0; i < 2 * l->count; i++) {
        struct fp8_linear *one = &l->linear[i / 2];

        one->kept[i % 2] = one->kept_bytes[i % 2] ? at : NULL;
        at += aligned(one->kept_bytes[i % 2]);
    }
    return ACCEL_OK;
}

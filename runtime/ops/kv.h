/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values of past positions, for generation: memory of the backend, one block per
 * layer. Attention appends to it and reads it; nothing here is on the tape.
 */
#ifndef ACCEL_OPS_KV_H
#define ACCEL_OPS_KV_H

#include "backend/backend.h"
#include "tensor/graph.h"

struct accel_kv {
    struct graph *g;
    int layers, batch, capacity, kv_heads, head_width;
    int length; /* positions that are complete in every layer */
    void *data; /* [layers][2][batch][kv_heads][capacity][head_width] */
};

accel_kv_t *kv_new(struct graph *g, int layers, int batch, int capacity, int kv_heads,
                   int head_width, accel_error_t *err);
/* Keys (which 0) or values (1) of a layer. */
struct heads kv_heads_of(const accel_kv_t *kv, int layer, int which);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values of past positions, for generation: backend memory, one block per
 * layer. Attention appends to it and reads it. Nothing here is on the tape.
 */
#ifndef ACCEL_OPS_KV_H
#define ACCEL_OPS_KV_H

#include "backend/device.h"
#include "tensor/graph.h"

/* The cache owns `data`; the graph, and with it the backend, must outlive the cache.
 * All layers of one forward append at the same `length`; accel_kv_advance moves it once
 * they have. */
struct accel_kv {
    struct graph *g;
    int layers, batch, capacity, kv_heads, head_width;
    int length; /* positions that every layer has */
    void *data; /* [layers][2][batch][kv_heads][capacity][head_width] */
    /* that it has room for; what a layer appends has the dtype of its module */
    accel_dtype_t type;
};

/* Allocates a zeroed cache for the widest dtype of the modules; free it with
 * accel_kv_free. NULL: A0605 for sizes that make no sense, or out of memory. */
accel_kv_t *kv_new(struct graph *g, int layers, int batch, int capacity, int kv_heads,
                   int head_width, accel_error_t *err);
/* Addresses the keys (which 0) or values (1) of a layer, from position 0. */
struct heads kv_heads_of(const accel_kv_t *kv, int layer, int which);

#endif

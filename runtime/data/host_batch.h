/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch in host memory, field by field, each with its samples side by side; and its
 * way into tensors. The memory is the backend's (page-locked for a device).
 */
#ifndef ACCEL_LOADER_HOST_BATCH_H
#define ACCEL_LOADER_HOST_BATCH_H

#include "data/data.h"
#include "tensor/graph.h"

struct backend;

/* bytes of a batch: sizes below stay far from overflow */
#define HOST_BATCH_MAX ((int64_t)1 << 31)

struct host_batch {
    char *memory;
    size_t bytes;
    /* byte offset of each field, a multiple of 64 */
    int64_t at[DATA_MAX_FIELDS];
};

/* Bytes of one sample of these fields. */
int64_t host_sample_bytes(const accel_field_t *field, int fields);
/* Memory for `count` samples of these fields, at most HOST_BATCH_MAX, which the caller
 * has checked. */
accel_status_t host_batch_open(struct host_batch *b, const struct backend *be,
                               int64_t count, const accel_field_t *field, int fields,
                               accel_error_t *err);
void host_batch_close(struct host_batch *b, const struct backend *be);
/* Where sample i of a full batch goes: dst_out[fields]. */
void host_batch_sample(const struct host_batch *b, const accel_field_t *field,
                       int fields, int64_t i, void **dst_out);

/* Copies host[t->elems] of `dtype` to t; float values of the other width are converted
 * on the way. The caller may change `host` as soon as the call returns. */
void host_upload(const struct backend *be, accel_tensor_t *t, accel_dtype_t dtype,
                 const void *host);
/* A new tensor of the graph with these values; float fields in the compute dtype. NULL:
 * sticky error. */
accel_tensor_t *host_tensor(struct graph *g, accel_dtype_t dtype, int ndim,
                            const int64_t *dims, const void *host);

#endif

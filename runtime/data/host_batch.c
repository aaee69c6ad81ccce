/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches in host memory: see host_batch.h.
 */
#include "backend/device.h"
#include "numbers/floats.h"
#include "data/host_batch.h"

int64_t host_sample_bytes(const accel_field_t *field, int fields)
{
    int64_t bytes = 0;

    for (int f = 0; f < fields; f++)
        bytes += data_field_bytes(&field[f]);
    return bytes;
}

accel_status_t host_batch_open(struct host_batch *b, const struct backend *be,
                               int64_t count, const accel_field_t *field, int fields,
                               accel_error_t *err)
{
    int64_t bytes = 0;

    for (int f = 0; f < fields; f++) {
        b->at[f] = bytes;
        bytes += (count * data_field_bytes(&field[f]) + 63) / 64 * 64;
    }
    b->memory = be->host_alloc(be, (size_t)bytes);
    b->bytes = (size_t)bytes;
    return b->memory ? ACCEL_OK : accel_fail_nomem(err, "a micro-batch", b->bytes);
}

void host_batch_close(struct host_batch *b, const struct backend *be)
{
    if (b->memory)
        be->host_free(be, b->memory, b->bytes);
    b->memory = NULL;
}

void host_batch_sample(const struct host_batch *b, const accel_field_t *field,
                       int fields, int64_t i, void **dst_out)
{
    for (int f = 0; f < fields; f++)
        dst_out[f] = b->memory + b->at[f] + i * data_field_bytes(&field[f]);
}

/* Values of the other width go in converted pieces on the stack: no second copy of the
 * batch. */
void host_upload(const struct backend *be, accel_tensor_t *t, accel_dtype_t dtype,
                 const void *host)
{
    enum { PIECE = 2048 };
    size_t from = accel_dtype_bytes(dtype), to = accel_dtype_bytes(t->dtype);
    float piece[PIECE];

    if (dtype == t->dtype) {
        be->from_host(be, t->data, host, (size_t)t->elems * to);
        return;
    }
    for (int64_t i = 0; i < t->elems; i += PIECE) {
        size_t n = (size_t)(t->elems - i < PIECE ? t->elems - i : PIECE);
        const void *src = (const char *)host + (size_t)i * from;

        floats_widen(piece, src, dtype, n);
        floats_narrow(piece, t->dtype, piece, n);
        be->from_host(be, (char *)t->data + (size_t)i * to, piece, n * to);
    }
}

accel_tensor_t *host_tensor(struct graph *g, accel_dtype_t dtype, int ndim,
                            const int64_t *dims, const void *host)
{
    bool is_float = accel_dtype_is_float(dtype);
    accel_tensor_t *t = graph_tensor(g, is_float ? g->compute : dtype, ndim, dims);

    if (t)
        host_upload(g->backend, t, dtype, host);
    return t;
}

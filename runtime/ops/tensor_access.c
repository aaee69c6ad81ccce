/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program may read from a tensor and write to one: shape, dtype, values.
 * Parameters are refused: they are sharded. No rank holds all values of one.
 */
#include "ops/ops.h"

int accel_tensor_shape(const accel_tensor_t *t, const int64_t **dims_out)
{
    if (!t)
        return 0;
    if (dims_out)
        *dims_out = t->dim;
    return t->ndim;
}

accel_dtype_t accel_tensor_dtype(const accel_tensor_t *t)
{
    return t ? t->dtype : ACCEL_F32;
}

/* What had to be queued first has failed, with the graph's error. */
static accel_status_t access_failed(const struct graph *g, accel_error_t *err)
{
    if (err)
        *err = g->error;
    return g->error.code;
}

accel_status_t accel_tensor_read(const accel_tensor_t *t, float *host, size_t elems,
                                 accel_error_t *err)
{
    char shape[96];

    if (!t || !host)
        return accel_fail(err, A0611, "check the result of the forward",
                          "cannot read: the %s is NULL", t ? "destination" : "tensor");
    if (t->name)
        return accel_fail(err, A0611, "save a checkpoint and read it there",
                          "parameter %s is sharded and cannot be read", t->name);
    if (!graph_queue_waiting(t->g))
        return access_failed(t->g, err);
    /* the struct outlives its data until the graph_reset after the next, so a late read
     * is found */
    if (!t->data)
        return accel_fail(err, A0611, "read it before its step ends",
                          "the memory of the tensor %s has already been freed",
                          tensor_shape_text(t, shape, sizeof(shape)));
    /* the caller's buffer has that many: a wrong number must not be read past it */
    if (elems != (size_t)t->elems)
        return accel_fail(
            err, A0611, "pass the tensor's number of elements, from its shape",
            "the tensor %s has %lld elements, not %zu",
            tensor_shape_text(t, shape, sizeof(shape)), (long long)t->elems, elems);
    /* waits for the compute queue; check then tells a failure before this point */
    t->g->backend->to_host(t->g->backend, host, t->data, t->dtype, t->elems);
    return t->g->backend->check(t->g->backend, err);
}

accel_status_t accel_tensor_write(accel_tensor_t *t, const void *host, size_t bytes,
                                  accel_error_t *err)
{
    size_t want = t ? (size_t)t->elems * accel_dtype_bytes(t->dtype) : 0;

    if (!t || !host)
        return accel_fail(err, A0611, "check what the caller passes",
                          "cannot write: the %s is NULL", t ? "source" : "tensor");
    if (t->name)
        return accel_fail(err, A0611, "pass initial values to accel_param",
                          "parameter %s is sharded and cannot be written", t->name);
    /* what waits is of the values before */
    if (!graph_queue_waiting(t->g))
        return access_failed(t->g, err);
    if (!t->data)
        return accel_fail(
            err, A0611,
            "write a buffer after accel_prepare, other tensors before their step ends",
            "the tensor has no memory%s%s", t->buffer ? " yet: buffer " : " any more",
            t->buffer ? t->buffer : "");
    if (bytes != want)
        return accel_fail(err, A0611, "pass the whole tensor in its own dtype",
                          "the tensor has %zu bytes, not %zu", want, bytes);
    t->narrowed.copy[0] = t->narrowed.copy[1] = NULL; /* of the values before, too */
    /* host may change as soon as this returns */
    t->g->backend->from_host(t->g->backend, t->data, host, bytes);
    return ACCEL_OK;
}

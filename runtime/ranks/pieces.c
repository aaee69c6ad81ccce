/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of the program wherever they are: tensors in the memory of the run's device,
 * arrays in host memory. Checks them, allocates results, copies. Never communicates.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "ranks/ranks_impl.h"
#include "tensor/tape.h"

/* No size is larger, so that one times the number of ranks stays far from overflow. */
#define LARGEST_DIM ((int64_t)1 << 40)

/* The elements of those sizes, or -1: too many, or no sizes. */
static int64_t count_elems(int ndim, const int64_t *dims)
{
    int64_t elems = 1;

    for (int d = 0; d < ndim; d++)
        if (dims[d] < 0 || dims[d] > LARGEST_DIM ||
            __builtin_mul_overflow(elems, dims[d], &elems))
            return -1;
    return elems > INT64_MAX / 16 ? -1 : elems;
}

accel_status_t piece_of_tensor(accel_t *run, const char *call, const accel_tensor_t *t,
                               struct piece *piece_out, accel_error_t *err)
{
    *piece_out =
        (struct piece){ .comm = run->data ? run->data : run->comm, .be = run->backend };
    /* what made the tensor, or made none, has the better text */
    if (run->graph.error.code) {
        *err = run->graph.error;
        return err->code;
    }
    if (!t)
        return accel_fail_at(err, A0611, call, "check the result of the forward",
                             "the tensor is NULL");
    if (t->name)
        return accel_fail_at(err, A0611, call, "parameters are the run's to exchange",
                             "parameter %s is sharded and cannot be read", t->name);
    if (t->g != &run->graph)
        return accel_fail_at(err, A0611, call, "pass a tensor of this run",
                             "the tensor belongs to another run");
    if (!t->data)
        return accel_fail_at(err, A0611, call, "use it before its step ends",
                             "the memory of the tensor has already been freed");
    piece_out->dtype = t->dtype;
    piece_out->ndim = t->ndim;
    memcpy(piece_out->dims, t->dim, sizeof(t->dim));
    piece_out->elems = t->elems;
    piece_out->data = t->data;
    return ACCEL_OK;
}

accel_status_t piece_of_array(accel_t *run, const accel_array_t *a,
                              struct piece *piece_out, accel_error_t *err)
{
    int64_t elems;

    *piece_out = (struct piece){ .comm = run->comm };
    if (!a || a->ndim < 0 || a->ndim > TENSOR_MAX_DIMS ||
        !accel_dtype_array_bytes(a->dtype))
        return accel_fail(err, A0941, "fill in dtype, ndim (0 to 4), dims and data",
                          "the array is %s",
                          a ? "of no dtype or shape that there is" : "NULL");
    elems = count_elems(a->ndim, a->dims);
    if (elems < 0 || (elems > 0 && !a->data))
        return accel_fail(err, A0941, "fill in dims and data of the array",
                          "the array has %s",
                          elems < 0 ? "impossible sizes" : "no data");
    piece_out->dtype = a->dtype;
    piece_out->ndim = a->ndim;
    memcpy(piece_out->dims, a->dims, (size_t)a->ndim * sizeof(*a->dims));
    piece_out->elems = elems;
    piece_out->data = a->data;
    return ACCEL_OK;
}

accel_status_t ranks_room(const accel_array_t *a, accel_error_t *err)
{
    if (a && a->elems >= 0 && (a->data || a->elems == 0))
        return ACCEL_OK;
    return accel_fail(err, A0941, "pass an array with data and room in elems",
                      "the array for the result is %s", a ? "without memory" : "NULL");
}

struct ranks_record ranks_record(enum ranks_call call, const struct piece *p,
                                 const accel_array_t *to)
{
    struct ranks_record r;

    memset(&r, 0, sizeof(r));
    r.call = call;
    r.dtype = p->dtype;
    r.ndim = p->ndim;
    memcpy(r.dims, p->dims, sizeof(r.dims));
    r.room = to ? to->elems : -1;
    return r;
}

bool piece_on_device(const struct piece *p)
{
    return p->be && p->be->device;
}

size_t piece_bytes(const struct piece *p)
{
    return (size_t)p->elems * accel_dtype_bytes(p->dtype);
}

void piece_copy(const struct piece *p, void *dst, const void *src, size_t bytes)
{
    if (bytes == 0)
        return;
    if (p->be)
        p->be->copy(p->be, dst, src, bytes);
    else
        memcpy(dst, src, bytes);
}

/* A failed tensor keeps its error in the graph, as all ops do. */
static accel_status_t graph_error(const accel_t *run, accel_error_t *err)
{
    *err = run->graph.error;
    return err->code;
}

accel_status_t piece_scratch(accel_t *run, const struct piece *p, size_t bytes,
                             void **memory_out, accel_error_t *err)
{
    *memory_out = p->be ? graph_scratch(&run->graph, bytes) : malloc(bytes + 1);
    if (*memory_out)
        return ACCEL_OK;
    return p->be ? graph_error(run, err) : accel_fail_nomem(err, "scratch", bytes);
}

void piece_drop(accel_t *run, const struct piece *p, void *memory)
{
    if (p->be)
        graph_scratch_free(&run->graph, memory);
    else
        free(memory);
}

accel_status_t result_make(accel_t *run, const struct piece *p, struct ranks_result *to,
                           int ndim, const int64_t *dims, struct piece *out_out,
                           accel_error_t *err)
{
    int64_t elems = count_elems(ndim, dims);

    *out_out = *p;
    out_out->ndim = ndim;
    memcpy(out_out->dims, dims, (size_t)ndim * sizeof(*dims));
    out_out->elems = elems;
    if (!to->array) {
        run->graph.op = "between ranks";
        to->tensor = graph_tensor(&run->graph, p->dtype, ndim, dims);
        if (!to->tensor)
            return graph_error(run, err);
        out_out->data = to->tensor->data;
        return ACCEL_OK;
    }
    if (elems < 0 || elems > to->array->elems)
        return accel_fail(err, A0941, "pass a larger buffer, and its size in elems",
                          "the result has %lld elements, but the array has room for "
                          "%lld",
                          (long long)elems, (long long)to->array->elems);
    out_out->data = to->array->data;
    return ACCEL_OK;
}

void result_done(const struct ranks_result *to, const struct piece *out)
{
    accel_array_t *a = to->array;

    if (!a)
        return;
    a->dtype = out->dtype;
    a->ndim = out->ndim;
    memcpy(a->dims, out->dims, sizeof(out->dims));
    a->elems = out->elems;
}

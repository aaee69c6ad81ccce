/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers: named tensors of a module that are not trained, never sharded, and whole on
 * every rank. In: their declaration. Out: device memory with their initial values.
 */
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "numbers/bf16.h"
#include "nn/nn.h"
#include "tensor/tape.h"

/* Checks everything of a declaration before anything is allocated. First values are
 * constants; a program that wants others writes them with accel_tensor_write. */
static bool buffer_fits(accel_module_t *m, const char *name, accel_dtype_t type,
                        int ndim, const int64_t *dims, accel_init_t init)
{
    int64_t elems = 1;

    if (!nn_name_fits(m->g, m, name))
        return false;
    if (ndim < 1 || ndim > TENSOR_MAX_DIMS || !dims)
        return graph_fail(m->g, A0608, NULL, "use 1 to 4 dimensions",
                          "buffer %s of module '%s' has %d dimensions", name, m->path,
                          ndim);
    /* 64 times the elements still fit an int64_t, so sizes in bytes never overflow */
    for (int i = 0; i < ndim; i++)
        if (dims[i] < 1 || dims[i] > INT32_MAX ||
            __builtin_mul_overflow(elems, dims[i], &elems) || elems > INT64_MAX / 64)
            return graph_fail(m->g, A0608, NULL, "use at least 1 for every size",
                              "buffer %s of module '%s': size %d is %lld", name,
                              m->path, i, (long long)dims[i]);
    if (type != ACCEL_F32 && type != ACCEL_BF16 && type != ACCEL_I32)
        return graph_fail(m->g, A0603, NULL, "use float32, bfloat16 or int32",
                          "buffer %s of module '%s' has dtype %s", name, m->path,
                          accel_dtype_name(type));
    if (init.kind != ACCEL_INIT_ZEROS && init.kind != ACCEL_INIT_ONES &&
        init.kind != ACCEL_INIT_CONSTANT)
        return graph_fail(
            m->g, A0605, NULL, "use zeros, ones or a constant, and accel_tensor_write",
            "buffer %s of module '%s' cannot start with random values", name, m->path);
    return true;
}

accel_tensor_t *accel_buffer(accel_module_t *m, const char *name, accel_dtype_t type,
                             int ndim, const int64_t *dims, accel_init_t init)
{
    accel_tensor_t **list, *t;

    if (!m || m->g->error.code || !buffer_fits(m, name, type, ndim, dims, init))
        return NULL;
    list = reallocarray(m->buffer, (size_t)m->buffer_count + 1, sizeof(*list));
    if (list)
        m->buffer = list;
    t = list ? calloc(1, sizeof(*t)) : NULL;
    if (t)
        t->buffer = nn_join(m->path, name);
    if (!t || !t->buffer) {
        free(t);
        return graph_fail(m->g, A0001, NULL, "use more ranks or a smaller model",
                          "cannot allocate a buffer");
    }
    list[m->buffer_count++] = t;
    t->g = m->g;
    t->dtype = type;
    t->ndim = ndim;
    memcpy(t->dim, dims, (size_t)ndim * sizeof(*dims));
    t->elems = 1;
    for (int i = 0; i < ndim; i++)
        t->elems *= dims[i];
    t->refs = 1; /* the module's, until the tree is freed */
    t->init = init;
    return t;
}

/* Fills `host` with the constant that the initialiser stands for, in t's dtype. */
static void first_values(const accel_tensor_t *t, void *host)
{
    float v = t->init.kind == ACCEL_INIT_ZEROS  ? 0.0f
              : t->init.kind == ACCEL_INIT_ONES ? 1.0f
                                                : t->init.scale;

    for (int64_t i = 0; i < t->elems; i++) {
        if (t->dtype == ACCEL_F32)
            ((float *)host)[i] = v;
        else if (t->dtype == ACCEL_BF16)
            ((bf16_t *)host)[i] = f32_to_bf16(v);
        else
            ((int32_t *)host)[i] = (int32_t)v;
    }
}

/* One buffer: the values are made on the host and copied. from_host takes its own copy,
 * so the host memory can go at once. */
static accel_status_t open_one(accel_tensor_t *t, accel_error_t *err)
{
    const struct backend *be = t->g->backend;
    size_t bytes = (size_t)t->elems * accel_dtype_bytes(t->dtype);
    accel_status_t st;
    void *host;

    if (t->data)
        return ACCEL_OK;
    host = malloc(bytes);
    if (!host)
        return accel_fail_nomem(err, t->buffer, bytes);
    st = be->alloc(be, MEMORY_BUFFERS, bytes, &t->data, err);
    if (!st) {
        first_values(t, host);
        be->from_host(be, t->data, host, bytes);
    }
    free(host);
    return st;
}

/* The order is that of nn_buffers_list, so a checkpoint reads them as they
 * were made. */
accel_status_t nn_buffers_open(accel_module_t *root, accel_error_t *err)
{
    accel_status_t st = ACCEL_OK;

    for (int i = 0; !st && i < root->buffer_count; i++)
        st = open_one(root->buffer[i], err);
    for (accel_module_t *c = root->child; !st && c; c = c->next)
        st = nn_buffers_open(c, err);
    return st;
}

/* A buffer whose tree never got to accel_prepare has a name but no memory. */
void nn_buffers_free(accel_module_t *m)
{
    for (int i = 0; i < m->buffer_count; i++) {
        accel_tensor_t *t = m->buffer[i];

        if (t->data)
            m->g->backend->free(m->g->backend, t->data);
        free((char *)(uintptr_t)t->buffer);
        free(t->full);
        free(t);
    }
    free(m->buffer);
}

int64_t nn_buffers_list(accel_module_t *root, accel_tensor_t **list_out)
{
    int64_t n = 0;

    for (int i = 0; i < root->buffer_count; i++, n++)
        if (list_out)
            list_out[n] = root->buffer[i];
    for (accel_module_t *c = root->child; c; c = c->next)
        n += nn_buffers_list(c, list_out ? list_out + n : NULL);
    return n;
}

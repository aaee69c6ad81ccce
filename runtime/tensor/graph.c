/* SPDX-License-Identifier: Apache-2.0
 *
 * The context of one micro-batch: tensors by pool, their lifetime, the tape, the first
 * error. In: shapes and dtypes from ops/. Out: tensors with memory in the arena. Never
 * reads or writes tensor data.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device.h"
#include "tensor/tape.h"

#define POOL_CHUNK 256

/* Tensors are handed out in order and taken back all at once. */
struct tensor_pool {
    /* POOL_CHUNK tensors each; their addresses stay put */
    accel_tensor_t **chunk;
    int chunks;
    int tensors;
};

/* Two pools take turns. A tensor of the previous micro-batch is then still itself,
 * without data, and not one of this micro-batch at the same address. */
struct tape {
    struct tape_entry *entry;
    int length, cap;
    /* Entries put aside lie at the end of the same array: as many places are free there
     * as backward has taken entries off. */
    int aside;
    struct tensor_pool pool[2];
    int turn;
};

static void tape_free(struct tape *t)
{
    if (!t)
        return;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < t->pool[k].chunks; i++)
            free(t->pool[k].chunk[i]);
        free(t->pool[k].chunk);
    }
    free(t->entry);
    free(t);
}

/* The pool of this micro-batch. */
static struct tensor_pool *pool_now(const struct graph *g)
{
    return &g->tape->pool[g->tape->turn];
}

static accel_tensor_t *pool_at(const struct tensor_pool *p, int i)
{
    return &p->chunk[i / POOL_CHUNK][i % POOL_CHUNK];
}

accel_status_t graph_open(struct graph *g, const struct backend *backend,
                          accel_dtype_t compute, bool counting, accel_error_t *err)
{
    accel_status_t st;

    if (!accel_dtype_is_float(compute))
        return accel_fail(err, A0606, "use float32, bfloat16 or float16",
                          "compute dtype %s is not supported yet",
                          accel_dtype_name(compute));
    memset(g, 0, sizeof(*g));
    g->compute = g->widest = compute;
    g->backend = backend;
    g->recording = g->training = true;
    g->draws.batch = 1;
    g->module_path = "";
    ACCEL_CHECK(st, arena_open(&g->arena, counting ? NULL : backend, err));
    g->tape = calloc(1, sizeof(*g->tape));
    if (!g->tape) {
        graph_close(g);
        return accel_fail_nomem(err, "the tape", sizeof(*g->tape));
    }
    return ACCEL_OK;
}

void graph_close(struct graph *g)
{
    /* The device's mark points to names of modules, which are about to go. */
    if (g->backend)
        g->backend->mark(g->backend, NULL);
    tape_free(g->tape);
    arena_close(g->arena);
    g->tape = NULL;
    g->arena = NULL;
}

/* A pool that was not used keeps its turn: some callers reset twice between
 * micro-batches, and the previous tensors must survive that. */
void graph_reset(struct graph *g)
{
    struct tensor_pool *p = pool_now(g);

    for (int i = 0; i < p->tensors; i++)
        pool_at(p, i)->data = NULL;
    if (p->tensors)
        g->tape->turn = !g->tape->turn;
    pool_now(g)->tensors = 0;
    g->tape->length = g->tape->aside = 0;
    g->draws.calls = 0;
    g->waiting = (struct waiting_sum){ NULL };
    g->result = (struct waiting_result){ NULL };
    g->micro = g->micros = 0;
    arena_reset(g->arena);
    memset(&g->error, 0, sizeof(g->error));
    g->module_path = "";
    g->op = NULL;
    g->backend->mark(g->backend, NULL);
}

/* The first error wins. Its place is the module's path, and the op where it
 * is known. */
void *graph_fail(struct graph *g, enum message code, const char *op, const char *hint,
                 const char *fmt, ...)
{
    char text[sizeof(g->error.text)], where[sizeof(g->error.where)];
    const char *path = g->module_path && *g->module_path ? g->module_path : "model";
    va_list ap;

    if (g->error.code)
        return NULL;
    va_start(ap, fmt);
    text_vformat(text, sizeof(text), fmt, ap);
    va_end(ap);
    snprintf(where, sizeof(where), op ? "%s: %s" : "%s", path, op);
    accel_fail_at(&g->error, code, where, hint, "%s", text);
    return NULL;
}

void graph_mark(struct graph *g, const char *op, bool backward)
{
    g->op = op;
    g->backend->mark(g->backend, &(struct backend_mark){ op, g->module_path, backward,
                                                         g->micro, g->micros });
}

/* A device that knows where it was has said so; else it is the op at work. */
static void locate(struct graph *g, const char *op)
{
    const char *path = g->module_path && *g->module_path ? g->module_path : "model";

    if (!g->error.where[0])
        snprintf(g->error.where, sizeof(g->error.where), op ? "%s: %s" : "%s", path,
                 op);
}

/* Only a device reports late; with the CPU there is nothing to ask. */
bool graph_check(struct graph *g, const char *op)
{
    if (!g->backend->device || g->error.code ||
        g->backend->check(g->backend, &g->error) == ACCEL_OK)
        return !g->error.code;
    locate(g, op);
    return false;
}

/* The next tensor of the pool, zeroed; NULL: out of memory. */
static accel_tensor_t *pool_take(struct tensor_pool *p)
{
    accel_tensor_t *one;

    if (p->tensors == p->chunks * POOL_CHUNK) {
        accel_tensor_t **chunk =
            reallocarray(p->chunk, (size_t)p->chunks + 1, sizeof(*chunk));

        if (!chunk)
            return NULL;
        p->chunk = chunk;
        chunk[p->chunks] = calloc(POOL_CHUNK, sizeof(**chunk));
        if (!chunk[p->chunks])
            return NULL;
        p->chunks++;
    }
    one = pool_at(p, p->tensors++);
    memset(one, 0, sizeof(*one));
    return one;
}

/* Sizes as text: "[4, -1]". */
static const char *sizes_text(int ndim, const int64_t *dims, char *buf, size_t len)
{
    accel_tensor_t t = { .ndim = ndim };

    memcpy(t.dim, dims, (size_t)ndim * sizeof(*dims));
    return tensor_shape_text(&t, buf, len);
}

/* Checks a shape and counts its elements. An overflow counts as SIZE_MAX, which a size
 * of 0 still brings down to 0. */
static bool shape_possible(struct graph *g, accel_dtype_t type, int ndim,
                           const int64_t *dims, size_t *elems_out)
{
    size_t elems = 1, bytes;
    char shape[96];

    if (ndim < 1 || ndim > TENSOR_MAX_DIMS || !accel_dtype_array_bytes(type))
        return graph_fail(g, A0608, g->op, "use 1 to 4 dimensions",
                          "invalid tensor: %d dimensions, dtype %s", ndim,
                          accel_dtype_name(type));
    for (int i = 0; i < ndim; i++)
        if (dims[i] < 0 || dims[i] > INT32_MAX)
            return graph_fail(g, A0608, g->op, "use sizes from 0 to 2147483647",
                              "invalid tensor %s: size %d is %lld",
                              sizes_text(ndim, dims, shape, sizeof(shape)), i,
                              (long long)dims[i]);
    for (int i = 0; i < ndim; i++)
        if (__builtin_mul_overflow(elems, (size_t)dims[i], &elems))
            elems = SIZE_MAX;
    if (__builtin_mul_overflow(elems, accel_dtype_bytes(type), &bytes) ||
        elems > INT64_MAX)
        return graph_fail(g, A0608, g->op, "use a smaller batch or sequence",
                          "a tensor %s is too large",
                          sizes_text(ndim, dims, shape, sizeof(shape)));
    *elems_out = elems;
    return true;
}

/* A new tensor has one holder, the scope of the module at work. */
static void tensor_describe(struct graph *g, accel_tensor_t *t, accel_dtype_t type,
                            int ndim, const int64_t *dims, size_t elems)
{
    t->g = g;
    t->dtype = type;
    t->ndim = ndim;
    memcpy(t->dim, dims, (size_t)ndim * sizeof(*dims));
    t->elems = (int64_t)elems;
    t->refs = 1;
    t->scoped = true;
}

/* A device keeps what it could not give, with a text that says what holds the rest. */
static void *no_room(struct graph *g, const char *what, size_t bytes)
{
    if (g->backend->check(g->backend, &g->error)) {
        locate(g, g->op);
        return NULL;
    }
    return graph_fail(g, A0001, g->op, "use a smaller batch or sequence, or more ranks",
                      "cannot allocate %s of %zu bytes", what, bytes);
}

accel_tensor_t *graph_tensor(struct graph *g, accel_dtype_t type, int ndim,
                             const int64_t *dims)
{
    size_t elems, bytes;
    accel_tensor_t *t;

    if (g->error.code || !shape_possible(g, type, ndim, dims, &elems))
        return NULL;
    bytes = elems * accel_dtype_bytes(type);
    t = pool_take(pool_now(g));
    if (t)
        t->data = arena_alloc(g->arena, bytes);
    if (!t || !t->data)
        return no_room(g, "a tensor", bytes);
    tensor_describe(g, t, type, ndim, dims, elems);
    return t;
}

/* A view of a view holds the first tensor, so that chains do not grow. */
accel_tensor_t *graph_view(struct graph *g, accel_tensor_t *t, int ndim,
                           const int64_t *dims)
{
    accel_tensor_t *v;
    size_t elems;

    if (g->error.code || !shape_possible(g, t->dtype, ndim, dims, &elems))
        return NULL;
    v = pool_take(pool_now(g));
    if (!v)
        return graph_fail(g, A0001, g->op,
                          "use a smaller batch or sequence, or more ranks",
                          "cannot allocate a view");
    tensor_describe(g, v, t->dtype, ndim, dims, elems);
    v->base = t->base ? t->base : t;
    tensor_retain(v->base);
    v->data = t->data;
    v->needs_grad = t->needs_grad;
    return v;
}

void *graph_scratch(struct graph *g, size_t bytes)
{
    void *p = arena_alloc(g->arena, bytes);

    if (!p)
        return no_room(g, "scratch", bytes);
    return p;
}

void graph_scratch_free(struct graph *g, void *p)
{
    arena_free(g->arena, p);
}

void tensor_retain(accel_tensor_t *t)
{
    if (t && tensor_unit(t) < 0)
        t->refs++;
}

/* Calls beyond the last holder do nothing. */
void tensor_release(accel_tensor_t *t)
{
    if (!t || t->refs < 1 || --t->refs > 0)
        return;
    if (t->base)
        tensor_release(t->base);
    else
        arena_free(t->g->arena, t->data);
    t->data = NULL;
}

/* A device's failure is looked for here, once per op, while the op is known. */
bool tape_record(struct graph *g, const struct tape_entry *e)
{
    struct tape *t = g->tape;

    if (!graph_check(g, e->op))
        return false;
    if (t->length + t->aside == t->cap) {
        int cap = t->cap ? 2 * t->cap : 256;
        struct tape_entry *entry = reallocarray(t->entry, (size_t)cap, sizeof(*entry));

        if (entry)
            memmove(entry + cap - t->aside, entry + t->cap - t->aside,
                    (size_t)t->aside * sizeof(*entry));
        if (!entry)
            return graph_fail(g, A0001, e->op,
                              "use a smaller batch or sequence, or more ranks",
                              "cannot allocate the tape");
        t->entry = entry;
        t->cap = cap;
    }
    t->entry[t->length] = *e;
    t->entry[t->length].path = g->module_path;
    t->entry[t->length].compute = g->compute;
    t->length++;
    for (int i = 0; i < TAPE_MAX_SAVED; i++)
        tensor_retain(e->saved[i]);
    /* parameters are no results of ops: who reads them does not matter */
    for (int i = 0; i < TAPE_MAX_IN; i++)
        if (e->in[i] && tensor_unit(e->in[i]) < 0)
            e->in[i]->readers++;
    return true;
}

int tape_length(const struct graph *g)
{
    return g->tape->length;
}

/* Valid until the next tape_record, which may move the entries. */
struct tape_entry *tape_at(struct graph *g, int index)
{
    return &g->tape->entry[index];
}

void tape_pop(struct graph *g)
{
    struct tape_entry *e = &g->tape->entry[--g->tape->length];

    for (int i = 0; i < TAPE_MAX_SAVED; i++)
        tensor_release(e->saved[i]);
}

void tape_put_aside(struct graph *g)
{
    struct tape *t = g->tape;
    const struct tape_entry e = t->entry[--t->length];

    t->entry[t->cap - ++t->aside] = e;
}

void tape_put_back(struct graph *g)
{
    struct tape *t = g->tape;

    memmove(t->entry + t->length, t->entry + t->cap - t->aside,
            (size_t)t->aside * sizeof(*t->entry));
    t->length += t->aside;
    t->aside = 0;
}

int scope_begin(const struct graph *g)
{
    return pool_now(g)->tensors;
}

/* The scope's tensors are those of the pool from `mark` on; an inner scope has already
 * let go of its own, except its output. */
void scope_end(struct graph *g, int mark, const accel_tensor_t *out)
{
    const struct tensor_pool *p = pool_now(g);

    for (int i = mark; i < p->tensors; i++) {
        accel_tensor_t *t = pool_at(p, i);

        if (t == out || !t->scoped)
            continue;
        t->scoped = false;
        tensor_release(t);
    }
}

const char *tensor_shape_text(const accel_tensor_t *t, char *buf, size_t len)
{
    size_t n = 0;

    if (!t) {
        snprintf(buf, len, "NULL");
        return buf;
    }
    for (int i = 0; i < t->ndim && n < len; i++)
        n += (size_t)snprintf(buf + n, len - n, "%s%lld", i ? ", " : "[",
                              (long long)t->dim[i]);
    if (n < len)
        snprintf(buf + n, len - n, "]");
    return buf;
}

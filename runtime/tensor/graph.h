/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor/: tensors, the arena they live in, the tape of one micro-batch, and the context
 * (struct graph) that ties them together. Nothing here touches tensor data: that is the
 * backend's. Errors inside a forward are sticky: the first one stays in graph->error and
 * every later op returns NULL.
 */
#ifndef ACCEL_TENSOR_GRAPH_H
#define ACCEL_TENSOR_GRAPH_H

#include "common/common.h"

#define TENSOR_MAX_DIMS 4

struct backend; /* backend/backend.h */
struct graph;
struct tape_entry;

/* How parameters become present: implemented by shard/ (and by a resident stand-in in unit
 * tests). A unit is a group of parameters in one flat buffer. */
struct residency {
    void *user;
    /* The unit's full parameters in the compute dtype. Valid until done(unit). Calls for
     * up to two different units may be open at once. Collective when sharded. */
    accel_status_t (*want)(void *user, int unit, void **data_out, accel_error_t *err);
    void (*done)(void *user, int unit);
    /* The unit's full gradient, float32, same offsets; the caller adds to it. Asking for
     * another unit hands the previous one in (it may be reduced at that moment). */
    accel_status_t (*grad)(void *user, int unit, float **grad_out, accel_error_t *err);
};

struct accel_tensor {
    struct graph *g;
    accel_dtype_t dtype;
    int ndim;
    int64_t dim[TENSOR_MAX_DIMS];
    int64_t elems;
    void *data;                /* NULL for parameters */
    struct accel_tensor *grad; /* float32 or compute dtype; during backward only */
    bool needs_grad;
    int refs; /* holders of `data`: its module's scope, tape entries, a `grad` link */
    bool scoped;               /* the scope still holds it */
    struct accel_tensor *base; /* a view: the tensor whose data it shares, and holds */
    /* The result of an op that ends in an activation, while the tape has that op: what its
     * derivative is made from. An op that alone reads the result may hand in the gradient
     * before the activation. */
    struct accel_tensor *before; /* NULL: none */
    accel_activation_t act;
    int readers;      /* inputs of tape entries that it is */
    bool grad_before; /* grad is that of the value before the activation */
    /* parameters only */
    int unit;            /* -1: not a parameter, or not assigned yet */
    int64_t unit_offset; /* elements from the start of the unit */
    const char *name;    /* full name of a parameter, else NULL */
    const char *buffer;  /* full name of a buffer, else NULL */
    accel_init_t init;
    const float
        *values; /* the program's initial values, until accel_prepare; NULL: init */
    float lr_scale, weight_decay; /* of its group; set by accel_prepare */
};

/* The arena: one address range per run; alloc and free in any order, first fit over a
 * sorted free list, 64-byte aligned, in the memory of `be`. NULL, counting mode: it hands
 * out addresses that must not be touched and only keeps the books (used with the meta
 * backend to know the peak). */
struct arena;
accel_status_t arena_open(struct arena **arena_out, const struct backend *be,
                          accel_error_t *err);
void *arena_alloc(struct arena *a, size_t bytes); /* NULL: out of memory */
void arena_free(struct arena *a, void *p);        /* NULL is fine */
void arena_reset(struct arena *a);                /* frees all, keeps the memory */
size_t arena_peak_bytes(const struct arena *a);
void arena_close(struct arena *a);

/* Where random numbers of a forward come from: Philox(seed, call, sample, element). The
 * sample is counted over the whole run and all ranks, so that a mask does not depend on
 * who computes it. */
struct draws {
    uint64_t seed;
    int64_t first_sample; /* of this micro-batch, in the global order of the run */
    int64_t batch;        /* samples of this micro-batch: dim 0 of activations */
    uint32_t calls;       /* draws so far in this forward */
};

struct graph {
    accel_t *run;          /* for accel_module_run */
    accel_dtype_t compute; /* ACCEL_F32 or ACCEL_BF16 */
    const struct backend *backend;
    struct arena *arena;
    struct residency residency;
    const struct accel_log *log;
    bool recording;   /* false: evaluation, no tape */
    bool training;    /* false: no dropout */
    bool recomputing; /* a module's forward runs again, in backward */
    bool evaluating;  /* asked for by accel_eval: neither tape nor dropout */
    struct draws draws;
    accel_error_t error; /* first error of this micro-batch */
    struct tape *tape;
    const char *module_path; /* of the module in forward, for messages */
    const char *op;          /* at work, for messages; NULL: none yet */
    int depth;               /* forwards that have not returned */
};

/* Opens arena and tape on `backend`. */
accel_status_t graph_open(struct graph *g, const struct backend *backend,
                          accel_dtype_t compute, bool counting, accel_error_t *err);
void graph_close(struct graph *g);
/* Drops all tensors and the tape of the micro-batch; keeps memory. */
void graph_reset(struct graph *g);
/* A tensor with data in the arena (uninitialised); a size of 0 is fine, there is an address
 * then, too. NULL on failure (sticky error). */
accel_tensor_t *graph_tensor(struct graph *g, accel_dtype_t t, int ndim,
                             const int64_t *dims);
/* A tensor of other sizes, no more elements, over the data of `t` (an activation). Holds
 * the data; moves nothing, records nothing. NULL on failure (sticky error). */
accel_tensor_t *graph_view(struct graph *g, accel_tensor_t *t, int ndim,
                           const int64_t *dims);
/* The first error of the forward, or what keeps `loss` from being its loss. */
accel_status_t graph_check_loss(const struct graph *g, const accel_tensor_t *loss,
                                accel_error_t *err);
/* Backward of a one-element float32 loss with d(loss) = seed. */
accel_status_t graph_backward(struct graph *g, accel_tensor_t *loss, float seed,
                              accel_error_t *err);
/* Implemented by run/: the graph of a run. */
struct graph *accel_run_graph(accel_t *run);

#endif
